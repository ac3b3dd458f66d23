"""What a client needs on its disk to reach the pool: key, certificate, trust anchor, address."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from security.pki import files, keys
from security.pki.authority import CertificateAuthority, IssuedCertificate
from security.pki.errors import StateError
from security.pki.identities import check_name


def write_client_folder(
    authority: CertificateAuthority,
    name: str,
    folder: Path,
    server: str = "",
    lifetime: timedelta | None = None,
) -> IssuedCertificate:
    """Make a key and a client certificate in `folder`: client.key, client.pem, ca.pem, client.conf.

    A stand-in for enrolment, for development and the demo: here the key is made beside the CA,
    whereas an enrolled client makes its own and never sends it.
    """
    check_name(name, "client's name")
    if (folder / "client.key").exists():
        raise StateError(
            f"there is a client key in {folder} already",
            hint="give another folder, or remove that one if it is not in use",
        )
    files.make_private_folder(folder)
    key = keys.make_key()
    issued = authority.issue_client(name, key.public_key(), lifetime)
    files.write_file(folder / "ca.pem", authority.root_pem, files.PUBLIC)
    files.write_file(folder / "client.pem", issued.pem, files.PUBLIC)
    files.write_file(folder / "client.key", keys.private_pem(key), files.PRIVATE, replace=False)
    if server:
        files.write_file(folder / "client.conf", f"server {server}\n".encode(), files.PUBLIC)
    return issued
