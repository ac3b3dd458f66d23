"""The driver-semantics program against each libcuda.so.1 that can be had without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")


@pytest.fixture(scope="module")
def program() -> Path:
    path = BUILD / "bin/driver_tests"
    if not path.exists():
        pytest.fail(f"no {path}: run 'make build' first")
    return path


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(params=["direct"])
def environment(
    request: pytest.FixtureRequest, kernel_cache: Path, tmp_path: Path
) -> dict[str, str]:
    """How to start a program so that it finds the libcuda under test."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    assert request.param == "direct"
    return kept | {
        "LD_LIBRARY_PATH": str(BUILD / "lib/softgpu"),
        "HEADRACE_SOFTGPU": "2x1GiB",
        "HEADRACE_SOFTGPU_CACHE": str(kernel_cache),
        "HEADRACE_SOFTGPU_LOG": str(tmp_path / "softgpu.log"),
    }


SUITES = [
    "callbacks",
    "errors",
    "context",
    "memory",
    "host memory",
    "pointers",
    "streams",
    "modules",
    "launches",
    "graphs",
    "faults",
    "bad handles",
    "virtual memory",
    "stream memory",
    "arrays",
    "graph objects",
]


@pytest.mark.parametrize("suite", SUITES)
def test_suite(program: Path, environment: dict[str, str], suite: str) -> None:
    done = subprocess.run(
        [program, f"--test-suite={suite}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A suite of another name would pass without a test.
    assert re.search(r"test cases:\s+[1-9]", done.stdout)
    assert done.stderr == ""


def test_no_device_is_one_line(program: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [program],
        env=environment | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "CUDA_ERROR_NO_DEVICE" in done.stderr
