"""A real appliance with a software GPU in a temporary folder, for tests and the demo.

It starts `python -m appliance.service` on a free port of the loopback, with a CA of its own, and
makes the configuration folder of one client.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from security.pki import CertificateAuthority, write_client_folder
from tests.fakes.sanitizers import sanitizer_settings

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
_SANITIZERS = ("ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")


class ApplianceError(AssertionError):
    """The appliance did not start or end as it should; the text has the end of its log."""


class Appliance:
    """A daemon that runs from __enter__ to __exit__.

    `flags` go to the daemon as they are; `environment` is added to its environment.
    """

    def __init__(
        self,
        folder: Path,
        *,
        software_gpu: str = "1x4GiB",
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        client: str = "test-client",
        build: Path = BUILD,
        start_seconds: float = _START_SECONDS,
    ) -> None:
        self.folder = folder
        self.build = build
        self.address = ""
        """HOST:PORT of the data port."""
        self.broker = Path()
        """The workers' Unix socket."""
        self.client = client
        self.config = folder / "client"
        """The client's configuration folder: client.conf, ca.pem, client.pem, client.key."""
        self.log_file = folder / "headraced.log"
        self._software_gpu = software_gpu
        self._flags = tuple(flags)
        self._start_seconds = start_seconds
        self._environment = dict(environment or {})
        self._sockets: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        # A Unix socket's path has a limit that test folders reach.
        self._sockets = Path(tempfile.mkdtemp(prefix="headrace-", dir="/tmp"))
        try:
            self._start()
            authority = CertificateAuthority.load(self.state / "ca")
            if not self.config.exists():
                write_client_folder(authority, self.client, self.config, self.address)
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        status = self._end(signal.SIGTERM)
        if kind is None and status != 0:
            raise ApplianceError(f"the appliance ended with status {status}\n{self._log_tail()}")

    @property
    def state(self) -> Path:
        """The daemon's state folder."""
        return self.folder / "state"

    @property
    def pid(self) -> int:
        """The daemon's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def port(self) -> int:
        """The data port."""
        return int(self.address.rpartition(":")[2])

    def _start(self) -> None:
        assert self._sockets is not None
        command = [
            *_ends_with_us(),
            *(sys.executable, "-m", "appliance.service"),
            *("--state", os.fspath(self.state)),
            *("--broker", os.fspath(self._sockets / "broker.sock")),
            *("--listen", "127.0.0.1:0"),
            *("--software-gpu", self._software_gpu),
            *("--software-gpu-libraries", os.fspath(self.build / "lib/softgpu")),
            *("--worker", os.fspath(self.build / "bin/headrace-worker")),
            *("--worker-environment", ",".join(_SANITIZERS)),
            *("--ready-file", "-"),
            *self._flags,
        ]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                # The daemon loads the software GPU's NVML into its Python.
                env={**_inherited(), **sanitizer_settings(self.build), **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], self._start_seconds)
        line = self._process.stdout.readline() if readable else ""
        if not line:
            raise ApplianceError(f"the appliance did not start\n{self._log_tail()}")
        ready = json.loads(line)
        self.address = ready["listen"][0]
        self.broker = Path(ready["broker"])

    def _end(self, number: signal.Signals) -> int:
        status = 0
        if self._process is not None:
            self._process.send_signal(number)
            try:
                status = self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = self._process.wait()
            if self._process.stdout:
                self._process.stdout.close()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
        return status

    # ------------------------------------------------------------------ use

    def command(self, *words: str | os.PathLike[str]) -> list[str]:
        """The command line of `headrace WORDS…`."""
        return [os.fspath(self.build / "bin/headrace"), *(os.fspath(word) for word in words)]

    def environment(self) -> dict[str, str]:
        """The environment in which the client's programs run."""
        return {
            **_inherited(),
            **sanitizer_settings(self.build),
            "HEADRACE_CONFIG": os.fspath(self.config),
        }

    def run(
        self,
        *words: str | os.PathLike[str],
        timeout: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run `headrace WORDS…` to its end; its status is the caller's business."""
        return subprocess.run(
            self.command(*words),
            env={**self.environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def log(self, event: str | None = None) -> list[dict[str, Any]]:
        """The daemon's log so far; only lines of one event if named."""
        lines = []
        for line in self.log_file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if event is None or entry.get("event") == event:
                    lines.append(entry)
        return lines

    def wait_for_log(self, event: str, count: int = 1, seconds: float = 20) -> None:
        """Return when the log has so many lines of an event. What a connection's end leaves in the
        log comes after the peer has seen that end."""
        deadline = time.monotonic() + seconds
        while len(self.log(event)) < count:
            if time.monotonic() > deadline:
                raise ApplianceError(f"no {event} within {seconds} s\n{self._log_tail()}")
            time.sleep(0.01)

    def _log_tail(self) -> str:
        return "\n".join(self.log_file.read_text().splitlines()[-20:])


def _inherited() -> dict[str, str]:
    """Our own environment without what would reach into either side."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("LD_", "CUDA_", "HEADRACE_SESSION", "HEADRACE_CONFIG", "HEADRACED_")
        )
    }


def _ends_with_us() -> list[str]:
    """The kernel ends the daemon when whoever started it is killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []
