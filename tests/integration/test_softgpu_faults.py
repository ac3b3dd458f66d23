"""Faults that are put into machine-wide software GPUs, and the time that kernels are said to take:
seen by the driver and NVML of all processes alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fakes.asked_program import ROOT, AskedProgram

OUT_OF_MEMORY, DEVICE_UNAVAILABLE, ECC, ILLEGAL_ADDRESS, TIMEOUT, FAILED = 2, 46, 214, 700, 702, 719

XID_EVENT, DOUBLE_BIT_EVENT = 8, 2

DEVICES = "2x64MiB"

# What the programs can be asked: a driver and an NVML at work.
PROGRAM = r"""
import ctypes, time
import pynvml
cuda = ctypes.CDLL("libcuda.so.1")
PTX = b'''.version 8.0
.target sm_80
.address_size 64
.visible .entry quick() { ret; }
.visible .entry slow() { ret; }
'''
held = {}
def launch(name, blocks=1, stream=None):
    return cuda.cuLaunchKernel(held[name], blocks, 1, 1, 1, 1, 1, 0, stream, None, None)
def start():
    assert cuda.cuInit(0) == 0
    context = ctypes.c_void_p()
    result = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    if result == 0:
        result = cuda.cuCtxSetCurrent(context)
    return result
def load():
    module = ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    for name in ("quick", "slow"):
        held[name] = ctypes.c_void_p()
        assert cuda.cuModuleGetFunction(ctypes.byref(held[name]), module, name.encode()) == 0
def alloc(size):
    address = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
def sync():
    return cuda.cuCtxSynchronize()
def timed(name, blocks=1, times=1):
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        assert cuda.cuEventCreate(ctypes.byref(event), 0) == 0
    begun = time.monotonic()
    assert cuda.cuEventRecord(events[0], None) == 0
    for _ in range(times):
        assert launch(name, blocks) == 0
    assert cuda.cuEventRecord(events[1], None) == 0
    assert sync() == 0
    wall = (time.monotonic() - begun) * 1000
    elapsed = ctypes.c_float()
    assert cuda.cuEventElapsedTime(ctypes.byref(elapsed), *events) == 0
    return [elapsed.value, wall]
def reset():
    return cuda.cuDevicePrimaryCtxReset_v2(0)
def query():
    return cuda.cuStreamQuery(None)
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
events = pynvml.nvmlEventSetCreate()
pynvml.nvmlDeviceRegisterEvents(device, 8 | 2, events)
def event(milliseconds=5000):
    try:
        found = pynvml.nvmlEventSetWait_v2(events, milliseconds)
    except pynvml.NVMLError_Timeout:
        return None
    return [found.eventType, found.eventData]
def ecc(uncorrected):
    return pynvml.nvmlDeviceGetTotalEccErrors(device, int(uncorrected), 0)
def name():
    return pynvml.nvmlDeviceGetName(device)
def memory():
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(device).total
    except pynvml.NVMLError_GpuIsLost:
        return "lost"
def busy():
    return pynvml.nvmlDeviceGetUtilizationRates(device).gpu
def processes():
    return sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device))
"""


class Machine:
    """Processes of one state folder."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.processes: list[AskedProgram] = []

    def start(self, **settings: str) -> AskedProgram:
        one = AskedProgram(PROGRAM, self.state, DEVICES, **settings)
        self.processes.append(one)
        return one

    def at_work(self, **settings: str) -> AskedProgram:
        one = self.start(**settings)
        assert one.ask("start") == 0
        one.ask("load")
        return one

    def fault(self, *words: str, device: int = 0) -> str:
        command = [sys.executable, "-m", "remoting.softgpu.faults", "--device", str(device)]
        done = subprocess.run(
            [*command, *words],
            cwd=ROOT,
            env={**os.environ, "HEADRACE_SOFTGPU_STATE": str(self.state)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "state")
    yield made
    for process in made.processes:
        process.kill()


def test_allocations_fail_as_often_as_was_said(machine: Machine) -> None:
    one, other = machine.at_work(), machine.at_work()
    machine.fault("oom", "2")
    assert one.ask("alloc", 4096) == OUT_OF_MEMORY
    assert other.ask("alloc", 4096) == OUT_OF_MEMORY
    assert one.ask("alloc", 4096) == 0
    machine.fault("oom")
    assert [one.ask("alloc", 4096) for _ in range(5)] == [OUT_OF_MEMORY] * 5
    machine.fault("clear")
    assert one.ask("alloc", 4096) == 0


def test_an_ecc_error_destroys_all_contexts_and_nvml_tells_it(machine: Machine) -> None:
    one, other, watcher = machine.at_work(), machine.at_work(), machine.start()
    machine.fault("ecc", "--corrected")
    assert watcher.ask("ecc", False) == 1
    assert one.ask("sync") == 0
    machine.fault("ecc")
    for process in (one, other):
        assert process.ask("sync") == ECC
        assert process.ask("launch", "quick") == ECC
        assert process.ask("alloc", 1) == ECC
        assert process.ask("query") == ECC
    assert watcher.ask("ecc", True) == 1
    assert sorted([watcher.ask("event"), watcher.ask("event")]) == [
        [DOUBLE_BIT_EVENT, 0],
        [XID_EVENT, 48],
    ]
    assert watcher.ask("event", 50) is None
    # A new context works, in the same process and in another.
    assert one.ask("reset") == 0
    assert one.ask("start") == 0
    assert one.ask("sync") == 0
    assert machine.at_work().ask("sync") == 0


def test_another_device_is_not_concerned(machine: Machine) -> None:
    one = machine.at_work()
    machine.fault("ecc", device=1)
    machine.fault("oom", device=1)
    assert one.ask("alloc", 4096) == 0
    assert one.ask("sync") == 0


@pytest.mark.parametrize(
    ("code", "result"), [(31, ILLEGAL_ADDRESS), (43, FAILED), (63, 0), (94, ECC), (119, FAILED)]
)
def test_an_xid_is_an_event_and_has_its_consequence(
    machine: Machine, code: int, result: int
) -> None:
    one, watcher = machine.at_work(), machine.start()
    machine.fault("xid", str(code))
    assert one.ask("sync") == result
    assert watcher.ask("event") == [XID_EVENT, code]
    assert f"xids: {code}" in machine.fault("show")


def test_a_device_that_fell_off_the_bus_is_lost_until_it_is_back(machine: Machine) -> None:
    one, watcher = machine.at_work(), machine.start()
    machine.fault("xid", "79")
    assert one.ask("sync") == FAILED
    assert watcher.ask("event") == [XID_EVENT, 79]
    assert watcher.ask("memory") == "lost"
    assert watcher.ask("name") == "Headrace Software GPU"
    assert machine.start().ask("start") == DEVICE_UNAVAILABLE
    machine.fault("clear")
    assert watcher.ask("memory") == 64 << 20
    assert machine.at_work().ask("sync") == 0
    assert one.ask("sync") == FAILED


def test_a_hung_kernel_hangs_until_it_is_let_go(machine: Machine) -> None:
    one, watcher = machine.at_work(), machine.start()
    machine.fault("hang")
    assert one.ask("launch", "quick") == 0
    assert one.ask("query") != 0
    watcher.ask("busy")
    time.sleep(0.25)  # a sample of its being busy
    assert watcher.ask("busy") > 80
    one.begin("sync")
    machine.fault("clear")
    assert one.answer() == 0
    assert one.ask("launch", "quick") == 0
    assert one.ask("sync") == 0


def test_a_hung_kernel_ends_by_the_time_limit_and_with_its_process(machine: Machine) -> None:
    limited, endless = machine.at_work(HEADRACE_SOFTGPU_TIMEOUT="0.2"), machine.at_work()
    machine.fault("hang", "2")
    assert limited.ask("launch", "quick") == 0
    assert limited.ask("sync") == TIMEOUT
    assert endless.ask("launch", "quick") == 0
    assert endless.ask("reset") == 0  # cancels what runs
    machine.fault("hang", "1")
    assert endless.ask("start") == 0
    endless.ask("load")
    assert endless.ask("launch", "quick") == 0
    endless.process.send_signal(signal.SIGTERM)
    assert endless.process.wait(20) == -signal.SIGTERM


def test_a_kernel_takes_the_time_that_it_is_said_to(machine: Machine) -> None:
    one = machine.at_work(HEADRACE_SOFTGPU_TIMES="slow=20ms+1ms/block,*=0")
    for blocks, expected in ((1, 21), (30, 50)):
        elapsed, wall = one.ask("timed", "slow", blocks)
        assert expected <= elapsed < 20 * expected  # and whatever else the machine has to do
        assert wall >= expected


def test_times_may_stand_in_a_file(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "times"
    file.write_text("# of one card\nslow = 30ms  # a long one\n")
    one = machine.at_work(HEADRACE_SOFTGPU_TIMES=f"@{file}")
    assert one.ask("timed", "slow")[0] >= 30


def test_busy_processes_share_the_device_equally(machine: Machine) -> None:
    times = {"HEADRACE_SOFTGPU_TIMES": "slow=40ms"}
    one, other, watcher = machine.at_work(**times), machine.at_work(**times), machine.start()
    alone, _ = one.ask("timed", "slow", 1, 3)
    assert alone >= 120
    for process in (one, other):
        process.begin("timed", "slow", 1, 5)
    shared = [process.answer()[0] for process in (one, other)]
    # 200 ms each of a device that they share: about 400. They do not begin at the same time.
    assert all(each >= 320 for each in shared), shared
    assert watcher.ask("processes") == sorted(p.process.pid for p in (one, other))
    assert watcher.ask("busy") > 50


def test_a_process_with_a_context_is_listed_until_it_is_gone(machine: Machine) -> None:
    watcher, one = machine.start(), machine.start()
    assert watcher.ask("processes") == []
    assert one.ask("start") == 0
    assert watcher.ask("processes") == [one.process.pid]
    assert one.ask("reset") == 0
    assert watcher.ask("processes") == []
    assert one.ask("start") == 0
    one.kill()
    assert watcher.ask("processes") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["oom", "x"], "neither a number nor all"),
        (["hang", "0"], "neither a number nor all"),
        (["xid", "0"], "range"),
        (["explode"], "No such command"),
    ],
)
def test_a_fault_that_does_not_exist_is_refused(
    tmp_path: Path, words: Sequence[str], said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "remoting.softgpu.faults", "--state", str(tmp_path), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
