"""Command line of the generator. Exit codes: 0 done, 1 the specification has faults, 2 usage."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import click

from remoting.codegen.emit import (
    coverage_page,
    cpp_files,
    message_files,
    python_codec,
    type_list,
    vector_file,
)
from remoting.codegen.errors import SpecError
from remoting.codegen.headers import read_headers
from remoting.codegen.passes import build_api
from remoting.codegen.spec import IDS, append_ids, read_spec
from remoting.codegen.wire import read_protocol

ROOT = Path(__file__).resolve().parents[2]
APISPEC = ROOT / "remoting" / "apispec"
MESSAGES = ROOT / "remoting" / "protocol" / "messages.toml"
VECTORS = ROOT / "remoting" / "protocol" / "vectors"
PYTHON_CODEC = ROOT / "remoting" / "protocol" / "gen" / "messages.py"
COVERAGE = ROOT / "docs" / "reference" / "driver-coverage.md"


def default_include() -> Path:
    """Where the CUDA headers lie in the environment of the running Python."""
    return Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "include"


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Write the C++ files here.")
@click.option("--protocol-python", is_flag=True, help=f"Write {PYTHON_CODEC.relative_to(ROOT)}.")
@click.option("--coverage", is_flag=True, help=f"Write {COVERAGE.relative_to(ROOT)}.")
@click.option("--assign-ids", is_flag=True, help=f"Append wire ids of new rows to {IDS}.")
@click.option(
    "--include",
    type=click.Path(path_type=Path),
    default=default_include,
    show_default="of the Python environment",
    help="Folder with cuda.h.",
)
def main(
    out: Path | None, protocol_python: bool, coverage: bool, assign_ids: bool, include: Path
) -> None:
    """Check the API specification against cuda.h, and generate what follows from both."""
    try:
        if protocol_python:
            write_if_changed(PYTHON_CODEC, python_codec(read_protocol(MESSAGES)))
        if protocol_python and not (out or coverage or assign_ids):
            return
        header = read_headers(include.resolve())
        if assign_ids:
            append_ids(APISPEC)
        api = build_api(header, read_spec(APISPEC))
        if coverage:
            write_if_changed(COVERAGE, coverage_page(api))
        if out is not None:
            protocol = read_protocol(MESSAGES)
            files = cpp_files(api) | message_files(protocol)
            files["test_vectors.inc"] = vector_file(protocol, api, VECTORS)
            files["type_list.inc"] = type_list(protocol, api)
            for name, text in files.items():
                write_if_changed(out / name, text)
    except SpecError as error:
        for fault in error.faults:
            click.echo(f"codegen: {fault}", err=True)
        click.echo("See remoting/codegen/README.md, 'Add a driver function'.", err=True)
        sys.exit(1)


def write_if_changed(path: Path, text: str) -> None:
    """Write a file, and leave it alone when it is right already: what depends on it stays built."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
