"""Programs find the driver in other ways than by loading a library of that name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import Appliance

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

COUNT_DEVICES = """
#include <stdio.h>
int cuInit(unsigned flags);
int cuDeviceGetCount(int* count);
int main(void) {
  int count = -1;
  if (cuInit(0) != 0 || cuDeviceGetCount(&count) != 0) return 1;
  printf("%d device\\n", count);
  return 0;
}
"""

BY_NAME = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
count = ctypes.c_int(-1)
assert library.cuInit(0) == 0
assert library.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value, "device")
"""


@pytest.fixture(scope="module")
def appliance(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with Appliance(tmp_path_factory.mktemp("appliance"), build=build) as running:
        yield running


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_program_can_be_linked_with_the_driver(
    compiler: str, appliance: Appliance, tmp_path: Path
) -> None:
    (tmp_path / "count.c").write_text(COUNT_DEVICES)
    work = f"cd {tmp_path} && {compiler} count.c -lcuda -o count && ./count"
    done = appliance.run("run", "-n", "1", "-m", "512MiB", "--", "sh", "-c", work)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "1 device\n"


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so"])
def test_the_driver_has_both_names(name: str, appliance: Appliance) -> None:
    done = appliance.run(
        "run", "-n", "1", "-m", "512MiB", "--", sys.executable, "-c", BY_NAME, name
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "1 device\n"
