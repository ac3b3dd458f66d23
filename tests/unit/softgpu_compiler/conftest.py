"""Starts compile helpers with the fake translator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.unit.softgpu_compiler.harness import HERE, ROOT, Helper, StartHelper


@pytest.fixture
def start_helper(tmp_path: Path) -> Iterator[StartHelper]:
    """Starts helpers on sockets that listen already, so that nobody has to wait for them."""
    with ExitStack() as stack:

        def start(
            *arguments: str, cache: Path | None = None, environment: dict[str, str] | None = None
        ) -> Helper:
            number = len(list(tmp_path.glob("helper*.sock")))
            path = tmp_path / f"helper{number}.sock"
            log = tmp_path / f"helper{number}.log"
            cache = cache or tmp_path / "cache"
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(str(path))
            listener.listen(16)
            archive = tmp_path / "helpers.a"
            if not archive.exists():
                archive.write_bytes(b"!<arch>\n")
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "remoting.softgpu.compiler"),
                    *("--listen-fd", str(listener.fileno()), "--translator", "fake_translator"),
                    *("--cache", str(cache), "--log", str(log), "--device-archive", str(archive)),
                    *arguments,
                ],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(HERE), **(environment or {})},
                pass_fds=[listener.fileno()],
            )
            listener.close()
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)
            return Helper(process, path, cache, log, stack)

        yield start
