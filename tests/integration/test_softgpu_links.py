"""A link takes relocatable device code out of object files, and grids synchronise through it."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release") / "lib/softgpu"

# Every block adds 1, all wait for each other, every block then sees what all have added.
KERNEL = r'''
PTX = b""".version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 handle) cudaCGGetIntrinsicHandle(.param .b32 scope);
.extern .func (.param .b32 result) cudaCGSynchronize(.param .b64 handle, .param .b32 flags);
.visible .entry together(.param .u64 p) {
  .reg .b64 %d<6>; .reg .b32 %r<8>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, %ctaid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;
  atom.global.add.u32 %r1, [%d0], 1;
  { .param .b32 a; .param .b64 h; mov.b32 %r2, 1; st.param.b32 [a], %r2;
    call.uni (h), cudaCGGetIntrinsicHandle, (a); ld.param.b64 %d3, [h]; }
  { .param .b64 h; .param .b32 f; .param .b32 s; mov.b32 %r3, 0;
    st.param.b64 [h], %d3; st.param.b32 [f], %r3;
    call.uni (s), cudaCGSynchronize, (h, f); ld.param.b32 %r4, [s]; }
  ld.volatile.global.u32 %r5, [%d0]; add.u32 %r6, %r5, %r4; st.global.u32 [%d2+4], %r6; ret; }
"""
'''

PROGRAM = (
    KERNEL
    + r"""
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def ok(result):
    assert result == 0, result
context, module, function, link = (ctypes.c_void_p() for _ in range(4))
image, size, memory = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link)))
ok(cuda.cuLinkAddData_v2(link, 1, PTX, ctypes.c_size_t(len(PTX)), b"kernel", 0, None, None))
ok(cuda.cuLinkAddFile_v2(link, 4, sys.argv[1].encode(), 0, None, None))
ok(cuda.cuLinkComplete(link, ctypes.byref(image), ctypes.byref(size)))
ok(cuda.cuModuleLoadData(ctypes.byref(module), image))
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"together"))
ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64)))
params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(memory), ctypes.c_void_p))
for _ in range(3):
    data = (ctypes.c_uint32 * 16)()
    ok(cuda.cuMemcpyHtoD_v2(memory, data, ctypes.c_size_t(64)))
    ok(cuda.cuLaunchCooperativeKernel(function, 7, 1, 1, 64, 1, 1, 0, None, params))
    ok(cuda.cuMemcpyDtoH_v2(data, memory, ctypes.c_size_t(64)))
    assert list(data) == 8 * [7 * 64] + 8 * [0], list(data)
"""
)


def device_runtime() -> Path:
    files = importlib.metadata.files("nvidia-cuda-runtime") or []
    found = [file for file in files if file.name == "libcudadevrt.a"]
    return Path(str(found[0].locate()))


def run(program: str, argument: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, str(argument)],
        env={
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "HEADRACE_SOFTGPU_CACHE": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_blocks_wait_for_each_other_through_the_device_runtime(tmp_path: Path) -> None:
    done = run(PROGRAM, device_runtime(), tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_archive_without_device_code_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.a"
    empty.write_bytes(b"!<arch>\nx.o/            0           0     0     644     4         `\nnope")
    done = run(PROGRAM, empty, tmp_path)
    assert "AssertionError: 209" in done.stderr  # CUDA_ERROR_NO_BINARY_FOR_GPU
