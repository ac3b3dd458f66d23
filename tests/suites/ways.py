"""The two ways to the software GPU: in the suite's own process, and through an appliance."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.tutorial.catalogue import front_end_settings
from tests.fakes.appliance import Appliance
from tests.suites.model import Suite
from tests.suites.runner import Way

NAMES = ("direct", "remote")


def _plain() -> dict[str, str]:
    """Our environment without what would lead to another GPU."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LD_", "CUDA_", "HEADRACE", "PYTEST", "PYTHON"))
    }


@contextlib.contextmanager
def direct(suite: Suite, build: Path, caches: Path) -> Iterator[Way]:
    """The suite's process loads the software GPU's libraries. One compile helper serves all."""
    socket = Path("/tmp") / f"headrace-suites-{os.getpid()}.sock"
    cache = caches / "softgpu"
    cache.mkdir(parents=True, exist_ok=True)
    helper = subprocess.Popen(
        [
            # The kernel ends it when we are killed.
            *("setpriv", "--pdeathsig", "TERM"),
            *(sys.executable, "-m", "remoting.softgpu.compiler", "--keep"),
            *("--socket", str(socket), "--cache", str(cache)),
            *("--device-archive", str(build / "lib/softgpu/libsoftgpu_device.a")),
            *("--log", str(caches / "compiler.log")),
        ],
        stdin=subprocess.DEVNULL,
    )
    try:
        yield Way(
            "direct",
            environment={
                **_plain(),
                **front_end_settings(caches),
                "LD_LIBRARY_PATH": str(build / "lib/softgpu"),
                "HEADRACE_SOFTGPU": f"{suite.gpus}x{suite.gpu_memory}",
                "HEADRACE_SOFTGPU_CACHE": str(cache),
                "HEADRACE_SOFTGPU_COMPILER": f"unix:{socket}",
            },
        )
    finally:
        helper.send_signal(signal.SIGTERM)
        helper.wait()
        socket.unlink(missing_ok=True)


@contextlib.contextmanager
def remote(suite: Suite, build: Path, caches: Path) -> Iterator[Way]:
    """The suite's process runs under `headrace run`, with all GPUs of an appliance."""
    cache = caches / "softgpu"
    cache.mkdir(parents=True, exist_ok=True)
    size = f"{suite.gpus}x{suite.gpu_memory}"
    with (
        tempfile.TemporaryDirectory(prefix="headrace-suites-") as folder,
        Appliance(
            _with_cache(Path(folder), cache),
            software_gpu=size,
            build=build,
            start_seconds=300,  # a run that takes hours is nice to others, and may have to wait
        ) as appliance,
    ):
        run = ("run", "-n", str(suite.gpus), "-m", suite.gpu_memory, "--")
        settings = front_end_settings(caches)
        yield Way(
            "remote",
            prefix=tuple(appliance.command(*run)),
            environment={**appliance.environment(), **_plain(), **settings}
            | {"HEADRACE_CONFIG": str(appliance.config)},
        )


def _with_cache(folder: Path, cache: Path) -> Path:
    """A folder for an appliance that finds the kernels of earlier runs."""
    (folder / "state").mkdir()
    (folder / "state/softgpu-cache").symlink_to(cache, target_is_directory=True)
    return folder


@contextlib.contextmanager
def way(name: str, suite: Suite, build: Path, caches: Path) -> Iterator[Way]:
    """The way of that name, ready to be gone."""
    with (direct if name == "direct" else remote)(suite, build, caches) as ready:
        yield ready
