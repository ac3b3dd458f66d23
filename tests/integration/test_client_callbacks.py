"""Functions of a program in streams, through the network: locks, lost servers, and what memory that
waits for them counts for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import BUILD, Appliance

PROGRAMS = Path(__file__).parent / "programs"
RUN = ("run", "-n", "1", "-m", "64MiB", "--")
END_LIMIT = 5.0
"""Seconds for a program that ends; two and a half times what is promised, for a busy machine."""

PRELUDE = """
import ctypes, sys, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
def ok(result, expected=0):
    assert result == expected, result
context, stream, address = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuStreamCreate(ctypes.byref(stream), 1))
MIB = 1 << 20
size = ctypes.c_size_t
def free_bytes():
    free, total = size(), size()
    ok(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value
gate = threading.Event()
reached = threading.Event()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def stop(_):
    reached.set()
    gate.wait()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def never(_):
    print("called", flush=True)
"""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    if not (BUILD / "bin/headrace-worker").exists():
        pytest.fail(f"no {BUILD}/bin/headrace-worker: run 'make build' first")
    folder = tmp_path_factory.mktemp("callbacks")
    with Appliance(folder, software_gpu="1x256MiB", flags=("--log-level", "debug")) as running:
        yield running


def run_python(appliance: Appliance, code: str) -> str:
    """What a program prints that ends well and says nothing else."""
    done = appliance.run(*RUN, sys.executable, "-c", PRELUDE + code)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_a_function_that_waits_for_the_interpreter_stops_no_other_call(
    appliance: Appliance,
) -> None:
    done = appliance.run(*RUN, sys.executable, PROGRAMS / "gil.py", "20000", timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "20000\n", "")


def test_functions_do_not_run_after_the_connection_is_lost(appliance: Appliance) -> None:
    code = """
ok(cuda.cuLaunchHostFunc(stream, stop, None))
ok(cuda.cuLaunchHostFunc(stream, never, None))
reached.wait()
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
ok(cuda.cuStreamSynchronize(stream), 46)
assert time.monotonic() - begin < 2, time.monotonic() - begin
gate.set()
ok(cuda.cuLaunchHostFunc(stream, never, None), 46)
sys.exit(7)
"""
    with subprocess.Popen(
        appliance.command(*RUN, sys.executable, "-c", PRELUDE + code),
        env=appliance.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.kill(appliance.log("worker_started")[-1]["worker"], signal.SIGKILL)
        begin = time.monotonic()
        output, errors = program.communicate("go\n", timeout=60)
    assert (program.returncode, output, errors) == (7, "", "")
    assert time.monotonic() - begin < END_LIMIT


def test_the_process_ends_though_a_function_does_not(appliance: Appliance) -> None:
    code = """
import os
ok(cuda.cuLaunchHostFunc(stream, stop, None))
ok(cuda.cuLaunchHostFunc(stream, never, None))
reached.wait()
os._exit(0)
"""
    begin = time.monotonic()
    assert run_python(appliance, code) == ""
    assert time.monotonic() - begin < END_LIMIT


def test_memory_freed_in_a_streams_order_counts_until_the_stream_has_come_there(
    appliance: Appliance,
) -> None:
    code = """
other = ctypes.c_void_p()
ok(cuda.cuStreamCreate(ctypes.byref(other), 1))
at_first = free_bytes()
ok(cuda.cuMemAllocAsync(ctypes.byref(address), size(40 * MIB), stream))
ok(cuda.cuLaunchHostFunc(stream, stop, None))
ok(cuda.cuMemFreeAsync(address, stream))
reached.wait()
assert free_bytes() == at_first - 40 * MIB
# The same stream can have it at once: it allocates after the free.
ok(cuda.cuMemAllocAsync(ctypes.byref(address), size(40 * MIB), stream))
ok(cuda.cuMemFreeAsync(address, stream))
assert free_bytes() == at_first - 40 * MIB
# Another one, and an allocation that is in no order, wait until it is there.
threading.Timer(0.05, gate.set).start()
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(40 * MIB)))
assert gate.is_set()
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(40 * MIB)), 2)
ok(cuda.cuCtxSynchronize())
assert free_bytes() == at_first - 40 * MIB
"""
    run_python(appliance, code)


def test_memory_freed_while_a_function_runs_comes_back_after_it(appliance: Appliance) -> None:
    code = """
at_first = free_bytes()
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(40 * MIB)))
ok(cuda.cuLaunchHostFunc(stream, stop, None))
reached.wait()
ok(cuda.cuMemFree_v2(address))
ok(cuda.cuMemFree_v2(address), 1)
assert free_bytes() == at_first - 40 * MIB
threading.Timer(0.05, gate.set).start()
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(60 * MIB)))
assert gate.is_set()
"""
    run_python(appliance, code)


def test_large_copies_behind_a_function_wait_for_it(appliance: Appliance) -> None:
    code = """
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(50 * MIB)))
data = bytes(range(256)) * (50 * MIB // 256)
ok(cuda.cuLaunchHostFunc(stream, stop, None))
reached.wait()
threading.Timer(0.05, gate.set).start()
ok(cuda.cuMemcpyHtoDAsync_v2(address, data, size(len(data)), stream))
back = ctypes.create_string_buffer(len(data))
ok(cuda.cuMemcpyDtoHAsync_v2(back, address, size(len(data)), stream))
ok(cuda.cuStreamSynchronize(stream))
assert back.raw == data
"""
    run_python(appliance, code)


def test_limits_of_kernels_count_against_the_slice(appliance: Appliance) -> None:
    code = """
PRINTF, HEAP = 1, 2
value = size()
at_first = free_bytes()
ok(cuda.cuCtxSetLimit(HEAP, size(128 * MIB)), 2)
ok(cuda.cuCtxSetLimit(HEAP, size(2**64 - 1)), 2)
ok(cuda.cuCtxSetLimit(HEAP, size(40 * MIB)))
assert at_first - free_bytes() == 32 * MIB  # beyond the 8 MiB of every context
ok(cuda.cuMemAlloc_v2(ctypes.byref(address), size(50 * MIB)), 2)
ok(cuda.cuCtxSetLimit(HEAP, size(MIB)))
assert free_bytes() == at_first
ok(cuda.cuCtxSetLimit(PRINTF, size(2**40)))
ok(cuda.cuCtxGetLimit(ctypes.byref(value), PRINTF))
assert value.value == 32 * MIB
assert at_first - free_bytes() == 31 * MIB
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
assert free_bytes() == at_first
"""
    run_python(appliance, code)
