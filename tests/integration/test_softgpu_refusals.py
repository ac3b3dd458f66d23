"""Instructions that the software GPU does not know: the program's user reads which, and where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.appliance import BUILD, Appliance

MODULE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry fine(.param .u64 p) { .reg .b64 %d<2>; .reg .b32 %r<2>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, 42; st.global.u32 [%d0], %r0; ret; }
.visible .entry odd() { .reg .b32 %r<5>;
  wgmma.fence.sync.aligned;
  ret; }
"""
ALONE = (
    MODULE[: MODULE.index(".visible .entry fine")] + MODULE[MODULE.index(".visible .entry odd") :]
)
REASON = "instruction form not supported: wgmma.fence.sync.aligned"

PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def ok(result, expected=0):
    assert result == expected, result
context, module, function, library = (ctypes.c_void_p() for _ in range(4))
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
texts = [open(name, "rb").read() + b"\\0" for name in sys.argv[1:]]
log = ctypes.create_string_buffer(b"\\xa5" * 600, 600)
options = (ctypes.c_int * 2)(5, 6)
values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 500)
# the module's other kernel works; the log names the one that will not
ok(cuda.cuModuleLoadDataEx(ctypes.byref(module), texts[0], 2, options, values))
print("log of a good load:", log.value.decode())
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"odd"), 218)
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"fine"))
address, out = ctypes.c_uint64(), ctypes.c_uint32()
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), 4))
params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(address), ctypes.c_void_p))
ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, params, None))
ok(cuda.cuMemcpyDtoH_v2(ctypes.byref(out), address, 4))
assert out.value == 42
ok(cuda.cuLibraryLoadData(ctypes.byref(library), texts[0], None, None, 0, None, None, 0))
ok(cuda.cuLibraryGetKernel(ctypes.byref(function), library, b"odd"), 218)
# alone in its module it fails the load that asked for a log
values = (ctypes.c_void_p * 2)(ctypes.addressof(log), 500)
ok(cuda.cuModuleLoadDataEx(ctypes.byref(module), texts[1], 2, options, values), 218)
print("log of a failed load:", log.value.decode())
# without a buffer there is the log file
ok(cuda.cuModuleLoadData(ctypes.byref(module), b".version 8.0\\n.target sm_80\\n.nonsense;\\0"), 218)
"""


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    for name, text in (("two", MODULE), ("one", ALONE)):
        (tmp_path / name).write_text(text)
    return [str(tmp_path / "two"), str(tmp_path / "one")]


def check(output: str, log: str) -> None:
    assert f"log of a good load: odd: line 7: {REASON}" in output
    assert f"log of a failed load: odd: line 5: {REASON}" in output
    assert log.count(REASON) >= 3
    assert "unknown directive .nonsense" in log


def test_direct(texts: list[str], tmp_path: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_PRELOAD") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *texts],
        env=kept
        | {
            "LD_LIBRARY_PATH": str(BUILD / "lib/softgpu"),
            "HEADRACE_SOFTGPU": "1x64MiB",
            "HEADRACE_SOFTGPU_CACHE": str(tmp_path / "cache"),
            "HEADRACE_SOFTGPU_LOG": str(tmp_path / "log"),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(done.stdout, (tmp_path / "log").read_text())


def test_through_the_network(texts: list[str], tmp_path: Path) -> None:
    with Appliance(tmp_path / "appliance", software_gpu="1x1GiB") as appliance:
        done = appliance.run(
            *("run", "-n", "1", "-m", "256MiB", "--", sys.executable, "-c", PROGRAM, *texts),
            environment={"HEADRACE_LOG": str(tmp_path / "log")},
            timeout=100,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    check(done.stdout, (tmp_path / "log").read_text())
