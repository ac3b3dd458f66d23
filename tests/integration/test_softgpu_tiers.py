"""Optimised code takes the place of quickly made code while threads launch the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release") / "lib/softgpu"

# Four threads launch until the log says that the kernel was exchanged, and a little longer; every
# launch must have its result.
PROGRAM = r'''
import ctypes, os, pathlib, threading
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 p) {
  .reg .b64 %d<3>; .reg .b32 %r<4>; .reg .f32 %f<2>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;
  ld.global.f32 %f0, [%d2]; add.f32 %f1, %f0, %f0; st.global.f32 [%d2], %f1; ret; }
"""
cuda = ctypes.CDLL("libcuda.so.1")
def ok(result):
    assert result == 0, result
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"twice"))
log = pathlib.Path(os.environ["HEADRACE_SOFTGPU_LOG"])
exchanged, failures = threading.Event(), []
def launch():
    try:
        ok(cuda.cuCtxSetCurrent(context))
        stream, memory = ctypes.c_void_p(), ctypes.c_uint64()
        ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
        ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(256)))
        params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
        data, left = (ctypes.c_float * 64)(), 50
        while left:
            left -= exchanged.is_set()
            data[:] = range(64)
            ok(cuda.cuMemcpyHtoD_v2(memory, data, ctypes.c_size_t(256)))
            ok(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, params, None))
            ok(cuda.cuStreamSynchronize(stream))
            ok(cuda.cuMemcpyDtoH_v2(data, memory, ctypes.c_size_t(256)))
            assert list(data) == [2.0 * k for k in range(64)]
            if "twice: optimised code" in log.read_text():
                exchanged.set()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=launch) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failures, failures
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
'''


def test_code_is_exchanged_between_launches(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    compiler = f"env PYTHONPATH={ROOT} {sys.executable} -P -m remoting.softgpu.compiler"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **{
                name: os.environ[name]
                for name in ("PATH", "HOME", "LD_PRELOAD")
                if name in os.environ
            },
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "HEADRACE_SOFTGPU": "1x64MiB",
            "HEADRACE_SOFTGPU_CACHE": str(tmp_path / "cache"),
            "HEADRACE_SOFTGPU_LOG": str(log),
            "HEADRACE_SOFTGPU_COMPILER": f"{compiler} --quick-from 1",
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + log.read_text()
    assert log.read_text().count("twice: optimised code") == 1
    assert len(list((tmp_path / "cache").glob("??/*.so"))) == 2
