"""The software GPU's compile helper, one for all workers.

It runs outside the workers: a worker that was taken over can ask it to compile, but cannot write
the cache from which other tenants' workers load code. The daemon owns the listening socket, so a
worker that asks while the helper starts, or starts again, waits instead of failing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import time
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from appliance.spawner.child import BASE_ENVIRONMENT, PASSED_FD, ChildProcess

_TREE = Path(__file__).resolve().parents[2]
_LASTED_SECONDS = 10.0
_MAX_SHORT_LIVES = 3


class CompileHelper:
    """Starts the helper, and starts it again when it ends."""

    def __init__(
        self, path: Path, cache: Path, device_archive: Path, log: FilteringBoundLogger
    ) -> None:
        self._path = path
        self._command = [
            *_ends_with_us(),
            *(sys.executable, "-P", "-m", "remoting.softgpu.compiler"),
            *("--listen-fd", str(PASSED_FD), "--keep"),
            *("--cache", os.fspath(cache)),
            *("--device-archive", os.fspath(device_archive)),
        ]
        self._log = log
        self._listener: socket.socket | None = None
        self._process: ChildProcess | None = None
        self._started = 0.0
        self._short_lives = 0
        self._stopping = False

    @property
    def setting(self) -> str:
        """HEADRACE_SOFTGPU_COMPILER for workers."""
        return f"unix:{self._path}"

    def start(self) -> None:
        """Listen, and start the helper."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.fspath(self._path))
        self._path.chmod(0o600)
        self._listener.listen(64)
        self._spawn()

    async def stop(self, grace_seconds: float) -> None:
        """End the helper, and what it is compiling."""
        self._stopping = True
        if self._process is not None and not self._process.gone.is_set():
            self._process.end()
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._process.gone.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.gone.wait()
        self._close()

    def _spawn(self) -> None:
        assert self._listener is not None
        self._started = time.monotonic()
        environment = {**BASE_ENVIRONMENT, "PYTHONPATH": os.fspath(_TREE)}
        self._process = ChildProcess(self._command, self._listener, environment, self._gone)

    def _gone(self, process: ChildProcess) -> None:
        if self._stopping:
            return
        self._log.error("compile_helper_ended", reason=str(process.exit), output=process.last_words)
        lasted = time.monotonic() - self._started >= _LASTED_SECONDS
        self._short_lives = 0 if lasted else self._short_lives + 1
        if self._short_lives < _MAX_SHORT_LIVES:
            self._spawn()
        else:
            # Whoever connects now is told at once, instead of waiting for what never comes.
            self._log.error("compile_helper_given_up", socket=os.fspath(self._path))
            self._close()

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)


def _ends_with_us() -> list[str]:
    """What makes the kernel end the helper when the daemon is killed: it waits for no connection's
    end, so nothing else would."""
    setpriv = shutil.which("setpriv", path=BASE_ENVIRONMENT["PATH"])
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []
