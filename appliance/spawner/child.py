"""One child process: starting it with a descriptor of ours, watching it, ending it.

The descriptor is number 3 in the child, as systemd passes them. The process leads its own session,
so that whatever it starts can be ended with it. Its exit is watched through a pidfd, which cannot
mean another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

PASSED_FD = 3
_OUTPUT_KEPT = 2048
BASE_ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
"""All that a child gets of what could be inherited."""


@dataclass(frozen=True)
class Exit:
    """How a process ended."""

    code: int | None
    signal: int | None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"killed by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"killed by signal {self.signal}"


class ChildProcess:
    """A process that was started; `gone` is set when it has ended and is reaped."""

    def __init__(
        self,
        command: Sequence[str],
        passed: socket.socket,
        environment: Mapping[str, str],
        on_gone: Callable[[ChildProcess], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_gone = on_gone
        self._output = bytearray()
        self.gone = asyncio.Event()
        self.exit: Exit | None = None
        self.killed = False
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            os.set_blocking(writing, True)
            self.pid = _spawn(command, passed.fileno(), writing, environment)
            self._pidfd = _watch(self.pid)
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self._reading = reading
        self._loop.add_reader(self._pidfd, self._reap)
        self._loop.add_reader(self._reading, self._read)

    @property
    def last_words(self) -> str:
        """The last line on its standard error, without anything that could forge a log."""
        lines = self._output.decode(errors="replace").strip().splitlines()
        return "".join(c if c.isprintable() else "?" for c in lines[-1]) if lines else ""

    def end(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it, and whatever it started."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self.gone.is_set():
            self.killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # Not reaped yet, so the group's number is still ours: what is left of it goes first.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        os.close(self._pidfd)
        self._read()
        if self._reading >= 0:
            self._close_output()
        if result is None or result.si_code == os.CLD_EXITED:
            self.exit = Exit(result.si_status if result else None, None)
        else:
            self.exit = Exit(None, result.si_status)
        self.gone.set()
        self._on_gone(self)

    def _read(self) -> None:
        """Keep the end of what it says; a worker that floods its standard error fills nothing."""
        while self._reading >= 0:
            try:
                data = os.read(self._reading, 65536)
            except BlockingIOError:
                return
            if not data:
                self._close_output()
                return
            self._output += data
            del self._output[:-_OUTPUT_KEPT]
            if len(data) == 65536:
                return  # let others run; the loop calls again

    def _close_output(self) -> None:
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        self._reading = -1


def _watch(pid: int) -> int:
    """A pidfd of our child; a child that cannot be watched (out of descriptors) must not run."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _spawn(command: Sequence[str], passed: int, output: int, environment: Mapping[str, str]) -> int:
    return os.posix_spawn(
        command[0],
        list(command),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 2),
            (os.POSIX_SPAWN_DUP2, passed, PASSED_FD),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM],
    )
