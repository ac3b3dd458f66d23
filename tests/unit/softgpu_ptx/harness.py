"""Compiles PTX, links it with the device helpers, and runs it through launcher.c."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remoting.softgpu.ptx import TargetSpec, compile_kernel, inspect_module

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
DEVICE = ROOT / "remoting/softgpu/exec/device"
ARENA_BYTES = 64 << 20
_FLAGS = ["-O2", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-I", str(ROOT / "remoting")]


class Env(ctypes.Structure):
    """sg_warp_env."""

    _fields_ = [
        ("params", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("local", ctypes.c_void_p),
        ("globals", ctypes.c_void_p),
        ("ctaid", ctypes.c_uint32 * 3),
        ("nctaid", ctypes.c_uint32 * 3),
        ("ntid", ctypes.c_uint32 * 3),
        ("warp", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("dynamic_shared", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("clock_hi", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint32),
        ("grid_id", ctypes.c_uint64),
        ("arena_lo", ctypes.c_uint64),
        ("arena_hi", ctypes.c_uint64),
        ("pinned_lo", ctypes.c_uint64),
        ("pinned_hi", ctypes.c_uint64),
        ("services", ctypes.c_void_p),
        ("block", ctypes.c_void_p),
        ("grid_workspace", ctypes.c_uint64),
    ]


class Outcome(ctypes.Structure):
    """How a launch ended: trap kind (0: well), address, calls of services."""

    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("barriers", ctypes.c_uint64),
        ("yields", ctypes.c_uint64),
    ]


@functools.cache
def workspace() -> Path:
    """A folder for objects, removed at the end of the process."""
    holder = tempfile.TemporaryDirectory(prefix="softgpu-ptx-")
    workspace.holder = holder  # type: ignore[attr-defined]
    return Path(holder.name)


@functools.cache
def device_archive() -> Path:
    """The device helpers as a static library."""
    folder = workspace()
    jobs, objects = [], []
    for source in sorted(DEVICE.glob("*.c")):
        objects.append(folder / f"{source.stem}.o")
        jobs.append(
            subprocess.Popen(
                ["gcc", *_FLAGS, "-fvisibility=hidden", "-c", str(source), "-o", str(objects[-1])]
            )
        )
    assert all(job.wait() == 0 for job in jobs)
    archive = folder / "libdevice.a"
    subprocess.run(["ar", "rcs", str(archive), *map(str, objects)], check=True)
    return archive


@functools.cache
def launcher() -> ctypes.CDLL:
    path = workspace() / "launcher.so"
    subprocess.run(
        ["gcc", *_FLAGS, "-shared", str(HERE / "launcher.c"), "-o", str(path)], check=True
    )
    return ctypes.CDLL(str(path))


class Arena:
    """Device memory: one block of bytes, handed out in order with gaps between."""

    def __init__(self) -> None:
        self.memory = np.zeros(ARENA_BYTES + 4096, np.uint8)
        self.lo = (self.memory.ctypes.data + 4095) & ~4095
        self.hi = self.lo + ARENA_BYTES
        self.next = self.lo + 4096

    def reset(self) -> None:
        self.next = self.lo + 4096

    def alloc(self, size: int) -> int:
        address = self.next
        self.next = (address + size + 511) & ~255
        assert self.next < self.hi
        return address


@functools.cache
def arena() -> Arena:
    return Arena()


@functools.cache
def host_target(opt: int | None = None) -> TargetSpec:
    return TargetSpec.host(opt)


@dataclass
class Module:
    """A PTX text whose kernels can be launched."""

    text: str
    opt: int | None = None

    def __post_init__(self) -> None:
        self.info = inspect_module(self.text)
        self.kernels: dict[str, Any] = {}
        self.globals = 0

    def load(self, name: str) -> Any:
        if name not in self.kernels:
            folder = workspace()
            stem = folder / f"k{len(list(folder.glob('k*.so')))}"
            stem.with_suffix(".o").write_bytes(
                compile_kernel(self.text, name, host_target(self.opt))
            )
            subprocess.run(
                [
                    "ld",
                    "-shared",
                    "-z",
                    "noexecstack",
                    "-z",
                    "defs",
                    "-o",
                    f"{stem}.so",
                    f"{stem}.o",
                    str(device_archive()),
                    "-lc",
                    "-L/usr/lib/x86_64-linux-gnu",
                ],
                check=True,
            )
            library = ctypes.CDLL(f"{stem}.so")
            self.kernels[name] = (
                library,
                ctypes.addressof(ctypes.c_char.in_dll(library, "sgk_desc")),
            )
        return self.kernels[name][1]

    def place_globals(self) -> int:
        """Copy the image into the arena and fill in addresses, as the driver does."""
        info = self.info
        base = arena().alloc(max(info.globals_bytes, 1))
        ctypes.memset(base, 0, max(info.globals_bytes, 1))
        ctypes.memmove(base, info.image, len(info.image))
        offsets = {g.name: g.offset for g in info.globals}
        for relocation in info.relocations:
            value = base + offsets[relocation.target] + relocation.addend
            ctypes.memmove(base + relocation.offset, value.to_bytes(8, "little"), 8)
        self.globals = base
        return base

    def global_address(self, name: str) -> int:
        return self.globals + next(g.offset for g in self.info.globals if g.name == name)

    def launch(
        self,
        name: str,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
        keep: bool = False,
    ) -> Outcome:
        """Arguments: arrays are copied to the arena and back; numpy scalars and ints by value."""
        desc = self.load(name)
        space = arena()
        if not keep:
            space.reset()
            self.place_globals()
        kernel = next(k for k in self.info.kernels if k.name == name)
        block_bytes = bytearray(kernel.param_bytes + 16)
        copies: list[tuple[int, np.ndarray[Any, Any]]] = []
        assert len(args) == len(kernel.params)
        for value, (offset, size) in zip(args, kernel.params, strict=True):
            if isinstance(value, np.ndarray):
                address = space.alloc(value.nbytes)
                ctypes.memmove(address, value.ctypes.data, value.nbytes)
                copies.append((address, value))
                raw = address.to_bytes(8, "little")
            elif isinstance(value, int):
                raw = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            else:
                raw = value.tobytes() if hasattr(value, "tobytes") else bytes(value)
            assert len(raw) == size, (name, value, size)
            block_bytes[offset : offset + size] = raw
        params = (ctypes.c_char * len(block_bytes)).from_buffer(block_bytes)
        env = Env(
            params=ctypes.addressof(params),
            globals=self.globals,
            arena_lo=space.lo,
            arena_hi=space.hi,
        )
        outcome = Outcome()
        shape = ctypes.c_uint32 * 3
        launcher().run_kernel(
            ctypes.c_void_p(desc),
            shape(*(*grid, 1, 1)[:3]),
            shape(*(*block, 1, 1)[:3]),
            ctypes.c_uint32(shared),
            ctypes.byref(env),
            ctypes.byref(outcome),
        )
        for address, array in copies:
            ctypes.memmove(array.ctypes.data, address, array.nbytes)
        return outcome
