"""`python -m security.pki`: a development CA and client certificates from the command line."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import click

from security.pki import CertificateAuthority, PkiError, write_client_folder


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Make a pool's CA and certificates for its clients (development and demo)."""


@main.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a new CA in DIR."""
    authority = CertificateAuthority.create(folder)
    click.echo(f"CA made in {folder}")
    click.echo(f"SHA-256 fingerprint: {authority.fingerprint}")


@main.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("name", metavar="NAME")
@click.argument("out", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--server", metavar="HOST:PORT", default="", help="Write client.conf for this server."
)
@click.option("--days", type=click.IntRange(1, 825), help="Life of the certificate.")
def client(folder: Path, name: str, out: Path, server: str, days: int | None) -> None:
    """Make a key and a certificate for the client NAME of the CA in DIR, and write them to OUT."""
    lifetime = timedelta(days=days) if days else None
    issued = write_client_folder(CertificateAuthority.load(folder), name, out, server, lifetime)
    click.echo(
        f"client {name!r}: key and certificate in {out}, valid until {issued.expires:%F %T} UTC"
    )
    click.echo(f"Use them with: headrace list --config {out}")


def run() -> int:
    """Run the command line; failures end with what failed and the next step."""
    try:
        main(standalone_mode=True)
    except PkiError as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
