"""Builds the fake NVML once per test session."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")


def build_fake_nvml(folder: Path) -> Path:
    """A libnvidia-ml.so.1 whose devices FAKE_NVML names, with a stand-in for libcuda beside it."""
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True, capture_output=True
    )
    (folder / "libcuda.so.1").touch()
    return library
