"""Software GPUs as a machine has them: memory and its accounting across processes, several devices,
copies between them, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.asked_program import AskedProgram

MIB = 1 << 20
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED = 0, 1, 2, 801

DEVICES = "1x64MiB,1x32MiB"

# What the programs can be asked.
PROGRAM = r"""
import ctypes
import pynvml
cuda = ctypes.CDLL("libcuda.so.1")
contexts, memory = {}, {}
def use(device):
    assert cuda.cuInit(0) == 0
    if device not in contexts:
        contexts[device] = ctypes.c_void_p()
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(contexts[device]), device) == 0
    assert cuda.cuCtxSetCurrent(contexts[device]) == 0
def alloc(name, size):
    memory[name] = ctypes.c_uint64()
    return cuda.cuMemAlloc_v2(ctypes.byref(memory[name]), ctypes.c_size_t(size))
def free(name):
    return cuda.cuMemFree_v2(memory.pop(name))
def fill(name, byte, size):
    return cuda.cuMemsetD8_v2(memory[name], ctypes.c_ubyte(byte), ctypes.c_size_t(size))
def count(name, byte, size):
    data = ctypes.create_string_buffer(size)
    assert cuda.cuMemcpyDtoH_v2(data, memory[name], ctypes.c_size_t(size)) == 0
    return data.raw.count(byte)
def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return [free.value, total.value]
def peer(to, to_device, source, source_device, size, stream):
    args = [memory[to], contexts[to_device], memory[source], contexts[source_device],
            ctypes.c_size_t(size)]
    if stream:
        result = cuda.cuMemcpyPeerAsync(*args, None)
        return result or cuda.cuCtxSynchronize()
    return cuda.cuMemcpyPeer(*args)
def copy(to, source, size):
    return cuda.cuMemcpy(memory[to], memory[source], ctypes.c_size_t(size))
def nvml():
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    first = pynvml.nvmlDeviceGetMemoryInfo(handle)
    second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return [[m.free, m.used, m.total] for m in (first, second)]
def refused(name):
    return getattr(cuda, name)(*[ctypes.create_string_buffer(512) for _ in range(4)])
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[AskedProgram] = []

    def make(device: int = 0, **settings: str) -> AskedProgram:
        started.append(AskedProgram(PROGRAM, tmp_path / "state", DEVICES, **settings))
        started[-1].ask("use", device)
        return started[-1]

    yield make
    for process in started:
        process.kill()


def check_figures(process: AskedProgram) -> int:
    """Free and used are the total, everywhere; the bytes in use."""
    free, total = process.ask("info")
    used = total - free
    assert 0 <= free <= total
    for nvml in process.ask("nvml"):
        assert nvml == [free, used, total]
    return int(used)


def test_memory_of_a_device_is_counted_over_all_processes(start: Any) -> None:
    one, other = start(), start()
    assert one.ask("alloc", "a", 40 * MIB) == SUCCESS
    assert other.ask("alloc", "b", 30 * MIB) == OUT_OF_MEMORY
    assert other.ask("alloc", "b", 24 * MIB) == SUCCESS
    assert check_figures(one) == check_figures(other) == 64 * MIB
    assert one.ask("alloc", "c", 1) == OUT_OF_MEMORY
    one.kill()
    # At once, and without anybody having cleaned up.
    assert check_figures(other) == 24 * MIB
    assert other.ask("alloc", "c", 40 * MIB) == SUCCESS
    assert check_figures(other) == 64 * MIB


@pytest.mark.parametrize("way", ["freed", "killed"])
def test_freed_memory_keeps_its_content_for_the_next_process(start: Any, way: str) -> None:
    one = start()
    assert one.ask("alloc", "a", 64 * MIB) == SUCCESS
    assert one.ask("fill", "a", 0xA7, 64 * MIB) == SUCCESS
    assert one.ask("count", "a", 0xA7, 1) == 1  # and so it is done
    if way == "freed":
        assert one.ask("free", "a") == SUCCESS
    else:
        one.kill()
    other = start()
    assert other.ask("alloc", "b", 64 * MIB) == SUCCESS
    assert other.ask("count", "b", 0xA7, 64 * MIB) == 64 * MIB


@pytest.mark.parametrize("asynchronous", [False, True])
def test_copies_between_devices(start: Any, asynchronous: bool) -> None:
    process = start(0)
    assert process.ask("alloc", "a", 4 * MIB) == SUCCESS
    assert process.ask("fill", "a", 0x3C, 4 * MIB) == SUCCESS
    process.ask("use", 1)
    assert process.ask("alloc", "b", 4 * MIB) == SUCCESS
    assert process.ask("fill", "b", 0, 4 * MIB) == SUCCESS
    assert process.ask("peer", "b", 1, "a", 0, 3 * MIB, asynchronous) == SUCCESS
    assert process.ask("count", "b", 0x3C, 4 * MIB) == 3 * MIB
    # Back, by addresses alone, whatever context is current.
    assert process.ask("fill", "b", 0x55, 4 * MIB) == SUCCESS
    assert process.ask("copy", "a", "b", 4 * MIB) == SUCCESS
    process.ask("use", 0)
    assert process.ask("count", "a", 0x55, 4 * MIB) == 4 * MIB
    assert process.ask("peer", "b", 1, "a", 0, 5 * MIB, asynchronous) == INVALID_VALUE


def test_devices_have_their_own_memory(start: Any) -> None:
    process = start(1)
    assert process.ask("info")[1] == 32 * MIB
    assert process.ask("alloc", "a", 33 * MIB) == OUT_OF_MEMORY
    process.ask("use", 0)
    assert process.ask("alloc", "a", 33 * MIB) == SUCCESS


@pytest.mark.parametrize(
    "name",
    [
        "cuMipmappedArrayCreate",
        "cuTexObjectCreate",
        "cuTexRefCreate",
        "cuSurfObjectCreate",
        "cuMemAllocManaged",
        "cuIpcGetMemHandle",
    ],
)
def test_what_a_software_device_has_not_is_refused_by_name(
    start: Any, tmp_path: Path, name: str
) -> None:
    log = tmp_path / "log"
    process = start(HEADRACE_SOFTGPU_LOG=str(log))
    assert process.ask("refused", name) == NOT_SUPPORTED
    assert name in log.read_text()
    assert process.ask("alloc", "a", MIB) == SUCCESS
