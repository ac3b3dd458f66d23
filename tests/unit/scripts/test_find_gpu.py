"""`make test-gpu` says in one line that there is no real GPU, and never takes ours for one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def has_driver() -> bool:
    """Whether the system itself has a libcuda."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def find(library_path: str) -> subprocess.CompletedProcess[str]:
    """Runs the look-up with a library path."""
    return subprocess.run(
        [sys.executable, "scripts/find_gpu.py"],
        cwd=ROOT,
        env=os.environ | {"LD_LIBRARY_PATH": library_path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_here_is_said_in_one_line() -> None:
    found = find("")
    assert len(found.stdout.splitlines()) == 1
    assert found.stderr == ""
    assert found.returncode == 0 or found.stdout.startswith("no real GPU here")


def test_without_a_driver_the_target_fails_although_a_software_gpu_is_in_the_path() -> None:
    done = subprocess.run(
        ["scripts/test-gpu"],
        cwd=ROOT,
        env=os.environ | {"LD_LIBRARY_PATH": "build/release/lib/softgpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    if has_driver():
        assert done.stdout.startswith("test-gpu: ")
    else:
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.startswith("test-gpu: no real GPU here")
        assert len(done.stderr.splitlines()) == 1
