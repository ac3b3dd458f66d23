"""Runs a program to its end and tells which files it had mapped.

The program's output goes into a pipe that is already full, so its last write cannot end before
this side has looked at /proc/PID/maps of the finished work.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PIPE_SIZE = 4096
LOOK_EVERY = 0.01  # seconds; looking more often finds nothing more, since the end is waited for
WRITE = "1"  # number of the system call on x86-64


@dataclass(frozen=True)
class Watched:
    """What became of a program."""

    status: int
    output: str
    errors: str
    mapped: frozenset[Path]

    def mapped_named(self, part: str) -> set[Path]:
        """The mapped files with `part` in their name."""
        return {path for path in self.mapped if part in path.name}


def mapped_files(pid: int) -> set[Path]:
    """The files that a process has mapped now; none when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    return {Path(f[5]) for f in fields if len(f) == 6 and f[5].startswith("/")}


def waits_in_write(pid: int) -> bool:
    """Whether the process's main thread stands in write(1, ...)."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return call[:2] == [WRITE, "0x1"]


def watch(command: Sequence[str], environment: Mapping[str, str], timeout: float) -> Watched:
    """Starts the command, which may exec another program, and follows its process to the end."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    os.write(writer, b"\n" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    with (
        os.fdopen(reader, "rb") as output,
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=errors,
        ) as process,
    ):
        os.close(writer)
        mapped: set[Path] = set()
        deadline = time.monotonic() + timeout
        while process.poll() is None:
            at_the_end = waits_in_write(process.pid)
            mapped |= mapped_files(process.pid)
            if at_the_end:
                break
            if time.monotonic() > deadline:
                process.kill()
            time.sleep(LOOK_EVERY)
        said = output.read().decode()
        status = process.wait()
        errors.seek(0)
        return Watched(status, said, errors.read(), frozenset(mapped))
