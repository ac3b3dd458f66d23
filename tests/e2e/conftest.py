"""What the end-to-end tests share: built libraries, compiled programs, an appliance."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tutorial.catalogue import ROOT, Workshop, front_end_settings, prepare
from tests.fakes.sanitizers import sanitizer_settings

BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")
"""The build under test; `make test-asan` names another."""


@pytest.fixture(scope="session")
def build() -> Path:
    """The folder of the native build under test."""
    if not (BUILD / "lib/softgpu/libcuda.so.1").exists():
        pytest.fail(f"nothing is built in {BUILD}: run 'make build' first")
    return BUILD


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """The example programs, ready to start."""
    return prepare(tmp_path_factory.mktemp("workshop"))


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where compiled kernels are kept while the tests last."""
    folder = tmp_path_factory.mktemp("kernels")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def plain_environment(build: Path) -> dict[str, str]:
    """The environment of a program that knows nothing of a GPU."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | sanitizer_settings(build)


@pytest.fixture(scope="session")
def direct(build: Path, kernel_cache: Path, plain_environment: dict[str, str]) -> dict[str, str]:
    """The environment of a program that uses the software GPU without any network."""
    return plain_environment | {
        "LD_LIBRARY_PATH": str(build / "lib/softgpu"),
        "HEADRACE_SOFTGPU_CACHE": str(kernel_cache / "softgpu"),
        **front_end_settings(kernel_cache),
    }
