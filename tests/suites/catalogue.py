"""The suites that are run, and where their tests are found."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.suites.model import Notes, Suite, SuiteError
from tests.suites.sources import source

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build/suites"
"""Everything that running suites leaves behind: packages, caches, results."""


def numba_cuda() -> Suite:
    """numba-cuda's tests are in its wheel."""
    root = Path(str(importlib.metadata.distribution("numba-cuda").locate_file("")))
    root = root / "numba_cuda/numba/cuda/tests"
    return Suite(
        name="numba-cuda",
        version=importlib.metadata.version("numba-cuda"),
        root=root,
        files=_files(root),
        files_per_process=10,  # its own runs are one process, and each start takes seconds
        notes=Notes.load(HERE / "numba-cuda.toml"),
        package="numba.cuda.tests",
        plugins=("headrace_numba",),
        options=("-o", "consider_namespace_packages=true"),
        environment={"PYTHONPATH": str(packages())},
        # Some tests need two GPUs.
        gpus=2,
    )


def cupy_core() -> Suite:
    """CuPy's tests are in its source distribution only; those of its core are taken."""
    version = importlib.metadata.version("cupy-cuda13x")
    folder = source("cupy", version, WORK)
    root = folder / "tests"
    files = tuple(file for file in _files(root) if file.startswith("cupy_tests/core_tests/"))
    return Suite(
        name="cupy-core",
        version=version,
        root=root,
        files=files,
        notes=Notes.load(HERE / "cupy-core.toml"),
        # Markers, filters of warnings, and that an unexpected pass is a failure.
        options=("-c", str(folder / "pyproject.toml")),
        environment={"PYTHONPATH": str(packages())},
        plugins=("headrace_cupy",),
        # Some tests need two GPUs, some arrays of 8 GiB.
        gpus=2,
        gpu_memory="10GiB",
    )


SUITES: dict[str, Callable[[], Suite]] = {"numba-cuda": numba_cuda, "cupy-core": cupy_core}


def suite(name: str) -> Suite:
    """The suite of that name, ready to run."""
    return SUITES[name]()


def packages() -> Path:
    """The folder with requirements.txt installed in it."""
    wanted = (HERE / "requirements.txt").read_text()
    folder, stamp = WORK / "packages", WORK / "packages.installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-input", "--no-deps", "--upgrade", "--target", str(folder)),
            *("--requirement", str(HERE / "requirements.txt")),
        ]
        folder.mkdir(parents=True, exist_ok=True)
        if subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode:
            raise SuiteError("pip failed; what it said is above")
        stamp.write_text(wanted)
    return folder


def _files(root: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(root)) for path in root.rglob("test_*.py")))
