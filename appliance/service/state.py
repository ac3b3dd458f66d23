"""The state folder: who this appliance is. Made at the first start, used by one daemon only."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from security.identity import Pseudonyms
from security.pki import CertificateAuthority, StateError
from security.pki.files import make_private_folder


@dataclass(frozen=True)
class State:
    """The appliance's identity, open."""

    folder: Path
    authority: CertificateAuthority
    pseudonyms: Pseudonyms


@contextlib.contextmanager
def open_state(folder: Path) -> Iterator[State]:
    """Lock the folder, and make what is missing in it."""
    make_private_folder(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StateError(
                f"another headraced uses {folder}", hint="give this one another --state"
            ) from error
        yield State(
            folder=folder,
            authority=CertificateAuthority.open(folder / "ca"),
            pseudonyms=Pseudonyms.open(folder / "pseudonym.key"),
        )
    finally:
        os.close(lock)  # and with it the lock
