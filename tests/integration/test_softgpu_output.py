"""printf, assert, malloc and free of kernels, from CUDA source to the program's own output.

Every test runs directly on the software GPU and through the network: the text is the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import Appliance
from tests.unit.softgpu_ptx.nvrtc import compile_source

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release") / "lib/softgpu"

SOURCE = r"""
extern "C" __global__ void hello(int n) {
  int i = threadIdx.x;
  if (i < n) {
    int taken = printf("lane %d of %s: %5.2f %lld %c%%\n", i, "here", i * 0.5, 1ll << 40, 'a' + i % 26);
    if (taken != 5) printf("%d arguments\n", taken);
  }
}
extern "C" __global__ void much(int n) {
  for (int i = 0; i < n; ++i) printf("line %d\n", i);
}
extern "C" __global__ void check(int n) { assert((int)threadIdx.x < n); }
extern "C" __global__ void heap(int n) {
  int* mine = (int*)malloc(n);
  if (!mine) { printf("nothing\n"); return; }
  for (int k = 0; k < n / 4; ++k) mine[k] = threadIdx.x;
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < n / 4; ++k) sum += mine[k];
  if (sum != n / 4 * threadIdx.x) printf("wrong\n");
  free(mine);
}
"""

PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
libc = ctypes.CDLL(None)
def ok(result, expected=0):
    assert result == expected, result
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read() + b"\\0"))
def launch(name, number, blocks=1, threads=64):
    ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, name))
    value = ctypes.c_int(number)
    params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(value), ctypes.c_void_p))
    ok(cuda.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, None, params, None))
def set_limit(which, value, expected=0):
    ok(cuda.cuCtxSetLimit(which, ctypes.c_size_t(value)), expected)
"""
PRINTF_FIFO_SIZE, MALLOC_HEAP_SIZE, ERROR_INVALID_VALUE, ERROR_ASSERT = 1, 2, 1, 710


@pytest.fixture(scope="module")
def ptx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("output") / "kernels.ptx"
    path.write_text(compile_source(SOURCE, 80))
    return path


Run = Callable[..., tuple[str, str]]
"""Runs the program with more lines; what it prints to stdout and stderr."""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    folder = tmp_path_factory.mktemp("appliance")
    with Appliance(folder, software_gpu="1x64MiB") as running:
        yield running
    assert running.log("worker_crashed") == []


@pytest.fixture(params=["direct", "remote"])
def run(request: pytest.FixtureRequest, ptx: Path) -> Run:
    def command(*lines: str) -> list[str]:
        return [sys.executable, "-c", PROGRAM + "\n".join(lines), str(ptx)]

    def direct(*lines: str) -> subprocess.CompletedProcess[str]:
        names = ("PATH", "HOME", "LD_PRELOAD")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        return subprocess.run(
            command(*lines),
            env=kept
            | {
                "LD_LIBRARY_PATH": str(LIBRARIES),
                "HEADRACE_SOFTGPU": "1x64MiB",
                "HEADRACE_SOFTGPU_CACHE": str(ptx.parent / "cache"),
                "HEADRACE_SOFTGPU_LOG": str(ptx.parent / "log"),
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def remote(*lines: str) -> subprocess.CompletedProcess[str]:
        appliance: Appliance = request.getfixturevalue("appliance")
        return appliance.run("run", "-n", "1", "-m", "64MiB", "--", *command(*lines), timeout=100)

    def checked(*lines: str) -> tuple[str, str]:
        done = (direct if request.param == "direct" else remote)(*lines)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return checked


SYNCHRONISE = "ok(cuda.cuCtxSynchronize())"


def test_printf_comes_out_when_the_program_synchronises(run: Run) -> None:
    out, errors = run(
        "launch(b'hello', 40)",
        SYNCHRONISE,
        "print('behind', flush=True)",
        "launch(b'hello', 1)",
        "ok(cuda.cuStreamSynchronize(None))",
    )
    lines = out.splitlines()
    expected = [
        f"lane {i} of here: {i * 0.5:5.2f} 1099511627776 {chr(97 + i % 26)}%" for i in range(40)
    ]
    assert sorted(lines[:40]) == sorted(expected)
    assert lines[40:] == ["behind", expected[0]]
    assert errors == ""


def test_the_oldest_goes_when_the_buffer_is_full(run: Run) -> None:
    out, _ = run(f"set_limit({PRINTF_FIFO_SIZE}, 100)", "launch(b'hello', 20, 50)", SYNCHRONISE)
    assert 0 < len(out) <= 100
    assert all(line.startswith("lane ") for line in out.splitlines())


def test_a_kernel_that_prints_without_end_leaves_the_newest_megabyte(run: Run) -> None:
    out, _ = run("launch(b'much', 200_000, 1, 1)", SYNCHRONISE)
    lines = out.splitlines()
    assert lines[-1] == "line 199999"
    assert 1_000_000 < len(out) <= 1 << 20
    first = int(lines[0].split()[1])
    assert lines == [f"line {i}" for i in range(first, 200_000)]


def test_the_text_stands_where_it_belongs_among_the_programs_own(run: Run) -> None:
    out, errors = run(
        "libc.puts(b'before')",  # waits in the C library's buffer, as stdout is no terminal
        "launch(b'hello', 1)",
        SYNCHRONISE,
        "libc.puts(b'behind')",
        "launch(b'hello', 1)",
        "byte = ctypes.c_uint64()",
        "ok(cuda.cuMemAlloc_v2(ctypes.byref(byte), ctypes.c_size_t(16)))",
        "text = ctypes.create_string_buffer(16)",
        "ok(cuda.cuMemcpyDtoH_v2(text, byte, ctypes.c_size_t(16)))",  # waits, too
        "libc.puts(b'end')",
    )
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == ["before", "lane", "behind", "lane", "end"]
    assert errors == ""


# Whether the program waits for the failure or finds that it has happened.
@pytest.mark.parametrize("meanwhile", ["", "while cuda.cuStreamQuery(None) == 600: pass"])
def test_a_failed_assertion_is_told_and_spoils_the_context(run: Run, meanwhile: str) -> None:
    out, errors = run(
        "launch(b'check', 64)",
        SYNCHRONISE,
        "launch(b'check', 63)",
        meanwhile,
        f"ok(cuda.cuCtxSynchronize(), {ERROR_ASSERT})",
        f"ok(cuda.cuCtxSynchronize(), {ERROR_ASSERT})",
    )
    assert out == ""
    assert re.fullmatch(
        r"t\.cu:\d+: void check\(int\): block: \[0,0,0\], thread: \[63,0,0\] "
        r"Assertion `\(int\)threadIdx\.x < n` failed\.\n",
        errors,
    )


def test_malloc_gives_memory_until_there_is_none(run: Run) -> None:
    assert run("launch(b'heap', 256, 20)", SYNCHRONISE) == ("", "")
    out, _ = run(
        f"set_limit({MALLOC_HEAP_SIZE}, 4096)",
        "launch(b'heap', 2000, 1, 3)",
        SYNCHRONISE,
        f"set_limit({MALLOC_HEAP_SIZE}, 8192, {ERROR_INVALID_VALUE})",
        "launch(b'heap', 2000, 1, 2)",  # it was all given back
        SYNCHRONISE,
    )
    assert out == "nothing\n"
