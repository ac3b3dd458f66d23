"""The disk cache: results by key, written atomically, verified whenever they are read.

Every entry ends with a trailer (magic, SHA-256 of what stands before it), which the loader of
shared objects ignores. An entry that does not verify is removed and made anew. When the directory
cannot be used, entries go to a private temporary one, so that programs still run.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from remoting.softgpu.compiler.errors import NoSpace

log = logging.getLogger(__name__)

MAGIC = b"headrace softgpu cache 1\0\0\0\0\0\0\0\0"
TRAILER_BYTES = len(MAGIC) + 32
KEEP_SECONDS = 60.0
"""An entry used so recently is not removed: its reader may not have mapped it yet."""


def seal(data: bytes) -> bytes:
    """Return data with its trailer."""
    return data + MAGIC + hashlib.sha256(data).digest()


def unseal(sealed: bytes) -> bytes | None:
    """Return the data of a sealed entry, or None if it is damaged."""
    data, magic, digest = sealed[:-TRAILER_BYTES], sealed[-TRAILER_BYTES:-32], sealed[-32:]
    if magic != MAGIC or hashlib.sha256(data).digest() != digest:
        return None
    return data


def default_directory() -> Path | None:
    """Return the user's cache directory, or None where the user has no home."""
    base = os.environ.get("XDG_CACHE_HOME")
    if base and base.startswith("/"):
        return Path(base) / "headrace" / "softgpu"
    home = os.environ.get("HOME")
    return Path(home) / ".cache" / "headrace" / "softgpu" if home else None


def _make_readable(directory: Path) -> None:
    """Make a directory that all may read, whatever the umask: a helper may serve other users."""
    if not directory.is_dir():
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)


class Cache:
    """Entries of one directory, with a fallback; used by one process, shared on disk by several."""

    def __init__(self, directory: Path | None, limit: int = 1 << 30) -> None:
        self._directory = directory
        self._limit = limit
        self._size: int | None = None  # of the directory; counted before the first store
        self._fallback: Path | None = None
        self._complained = False

    def load(self, key: str, suffix: str) -> tuple[Path, bytes] | None:
        """Return path and data of an entry, or None if there is no sound one."""
        for root in (self._directory, self._fallback):
            if root is None:
                continue
            path = self._path(root, key, suffix)
            try:
                sealed = self._read(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._complain("cannot read %s: %s", path, error)
                continue
            data = unseal(sealed)
            if data is not None:
                self._touch(path)
                return path, data
            log.warning("damaged cache entry removed: %s", path)
            self._remove(path)
        return None

    def store(self, key: str, suffix: str, data: bytes) -> Path:
        """Write an entry and return its path; raises NoSpace when no directory takes it."""
        sealed = seal(data)
        if self._directory is not None:
            try:
                path = self._write(self._directory, key, suffix, sealed)
            except OSError as error:
                self._complain("cannot write to the cache %s: %s", self._directory, error)
            else:
                self._account(len(sealed))
                return path
        for base in dict.fromkeys((tempfile.gettempdir(), "/dev/shm")):
            try:
                if self._fallback is None:
                    self._fallback = Path(tempfile.mkdtemp(prefix="headrace-softgpu-", dir=base))
                    self._fallback.chmod(0o755)
                return self._write(self._fallback, key, suffix, sealed)
            except OSError as error:
                log.warning("cannot write to %s: %s", self._fallback or base, error)
                self._drop_fallback()
        raise NoSpace(
            f"no space for {len(sealed)} bytes of machine code in {self._directory}, "
            f"{tempfile.gettempdir()} and /dev/shm; free some, or name another directory in "
            "HEADRACE_SOFTGPU_CACHE"
        )

    def close(self) -> None:
        """Remove what was only temporary."""
        self._drop_fallback()

    def _drop_fallback(self) -> None:
        if self._fallback is not None:
            shutil.rmtree(self._fallback, ignore_errors=True)
            self._fallback = None

    @staticmethod
    def _path(root: Path, key: str, suffix: str) -> Path:
        return root / key[:2] / f"{key}{suffix}"

    def _read(self, path: Path) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid not in (os.geteuid(), 0):
                raise PermissionError("it belongs to another user")
            return file.read()

    def _write(self, root: Path, key: str, suffix: str, sealed: bytes) -> Path:
        self._own(root)
        path = self._path(root, key, suffix)
        _make_readable(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:
                file.write(sealed)
                os.fchmod(descriptor, 0o644)
            os.rename(name, path)
        except BaseException:
            self._remove(Path(name))
            raise
        return path

    @staticmethod
    def _own(root: Path) -> None:
        """Make the directory; refuse one into which others could put code."""
        root.parent.mkdir(parents=True, exist_ok=True)
        _make_readable(root)
        status = root.stat()
        if status.st_uid != os.geteuid():
            raise PermissionError("the directory belongs to another user")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError("others may write to the directory")

    def _account(self, added: int) -> None:
        """Keep the directory within its limit: what was not used for longest goes first."""
        assert self._directory is not None
        if self._size is not None:
            self._size += added
            if self._size <= self._limit:
                return
        entries: list[tuple[float, int, Path]] = []
        for path in self._directory.glob("??/*"):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append((status.st_mtime, status.st_size, path))
        self._size = sum(size for _, size, _ in entries)
        if self._size <= self._limit:
            return
        newest_to_go = time.time() - KEEP_SECONDS
        for used, size, path in sorted(entries):
            if self._size <= self._limit * 4 // 5 or used > newest_to_go:
                break
            self._remove(path)
            self._size -= size

    @staticmethod
    def _touch(path: Path) -> None:
        with contextlib.suppress(OSError):  # only the order of removal depends on it
            os.utime(path)

    @staticmethod
    def _remove(path: Path) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("cannot remove %s: %s", path, error)

    def _complain(self, text: str, *what: object) -> None:
        """Log the first trouble with the directory loudly, the rest quietly."""
        log.log(logging.DEBUG if self._complained else logging.WARNING, text, *what)
        self._complained = True
