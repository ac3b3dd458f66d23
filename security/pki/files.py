"""Files that hold keys: written whole or not at all, and never readable by others."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from security.pki.errors import StateError

PRIVATE = 0o600
PUBLIC = 0o644


def make_private_folder(folder: Path) -> None:
    """Make a folder that only its owner may enter; an existing one must already be ours."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"cannot make the folder {folder}: {error.strerror}") from error
    if folder.stat().st_uid != os.geteuid():
        raise StateError(
            f"{folder} belongs to another user", hint="choose another folder, or run as its owner"
        )


def write_file(path: Path, data: bytes, mode: int, *, replace: bool = True) -> None:
    """Write atomically: a reader sees the old file or the whole new one, also after a crash.

    The temporary file has its mode from the start, so a key is at no time readable by others.
    With `replace` false an existing file is left alone and StateError is raised.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            os.fchmod(descriptor, mode)  # whatever the umask says
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if replace:
            temporary.rename(path)
        else:
            os.link(temporary, path)
            temporary.unlink()
        _sync_folder(path.parent)
    except FileExistsError as error:
        temporary.unlink(missing_ok=True)
        raise StateError(f"{path} is already there") from error
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StateError(f"cannot write {path}: {error.strerror}") from error


def read_private_file(path: Path) -> bytes:
    """Read a key file, and refuse one that others may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise StateError(
                    f"{path} can be read by others (mode {stat.S_IMODE(mode):04o})",
                    hint=f"chmod 600 {path}  # and think about who may have read it",
                )
            return file.read()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error


def read_file(path: Path) -> bytes:
    """Read a file that is no secret."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
