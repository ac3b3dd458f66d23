"""Nothing started by a program outlives it: finds descendants that do, and ends them.

The kernel hands orphaned descendants to the nearest ancestor that asked for them, daemons that
left their session included. So whoever is still there at the end is a child of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

PATIENCE = 5.0
"""Seconds in which processes that are about to end may do so."""

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant that loses its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap() -> None:
    """Takes note of children that have ended, so that they do not count as running."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants() -> dict[int, str]:
    """Process number -> command line of every process below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # the name, in parentheses, may hold anything; the parent's number comes after it
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # gone in the meantime
            parents[int(entry.name)] = int(fields[1])
    below = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in below} - below:
        below |= more
    found = {}
    for process in below - {os.getpid()}:
        try:
            arguments = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        found[process] = arguments.replace(b"\0", b" ").decode(errors="replace").strip()[:80]
    return found


def end_leftovers() -> list[str]:
    """Waits a little for descendants to end; kills and names those that do not."""
    deadline = time.monotonic() + PATIENCE
    reap()
    while (left := descendants()) and time.monotonic() < deadline:
        time.sleep(0.05)
        reap()
    named = [f"{process} ({command})" for process, command in left.items()]
    while left:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
        left = descendants()
    return named
