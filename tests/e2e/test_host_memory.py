"""Programs whose kernels use page-locked memory by its address, directly and through the network."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import Appliance

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CUDA = Path(sysconfig.get_paths()["purelib"]) / "nvidia/cu13"
EXPECTED = "stores seen: 800 of 800\ncounter: 2440, type 1, same address: 1\n"

NUMBA = """
import numpy
from numba import cuda

@cuda.jit
def scale(values, factors):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = values[i] * factors[0]

values = cuda.mapped_array(5000, dtype=numpy.float32)
factors = cuda.mapped_array(1, dtype=numpy.float32)
expected = numpy.arange(5000, dtype=numpy.float32)
values[:] = expected
for factor in (2, 3, 0.5):
    factors[0] = factor
    scale[20, 256](values, factors)
    cuda.synchronize()
    expected *= factor
    assert (values == expected).all(), factor
print("mapped arrays agree")
"""


@pytest.fixture(scope="module")
def appliance(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """One appliance for the programs of this file."""
    with Appliance(tmp_path_factory.mktemp("appliance"), build=build) as running:
        yield running


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runtime's program, built as anyone would."""
    path = tmp_path_factory.mktemp("programs") / "host_memory"
    options = ["-std=c++17", "-gencode", "arch=compute_80,code=compute_80", "-cudart", "static"]
    source = Path(__file__).with_name("host_memory.cu")
    command = [CUDA / "bin/nvcc", *options, f"-L{CUDA}/lib", "-o", path, source]
    subprocess.run(command, check=True)
    return path


def test_the_program_reads_what_kernels_wrote(
    program: Path, appliance: Appliance, direct: dict[str, str]
) -> None:
    here = subprocess.run([program], env=direct, stdout=subprocess.PIPE, text=True, check=True)
    assert here.stdout == EXPECTED
    there = appliance.run("run", "-n", "1", "-m", "256MiB", "--", program, timeout=240)
    assert (there.returncode, there.stdout) == (0, EXPECTED), there.stderr


def test_mapped_arrays_of_numba_are_used_where_they_lie(
    appliance: Appliance, direct: dict[str, str]
) -> None:
    command = [sys.executable, "-c", NUMBA]
    here = subprocess.run(command, env=direct, stdout=subprocess.PIPE, text=True, check=True)
    assert here.stdout == "mapped arrays agree\n"
    there = appliance.run("run", "-n", "1", "-m", "256MiB", "--", *command, timeout=240)
    assert (there.returncode, there.stdout) == (0, "mapped arrays agree\n"), there.stderr
