"""A translator for the helper's tests: "PTX" is C for gcc, with lines that say how to fail.

Loaded by the helper under its bare name, with this folder in its path.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

KERNEL_ABI = Path(__file__).parents[3] / "remoting" / "softgpu" / "exec" / "kernel_abi.h"


class PtxError(Exception):
    """As the real translator's."""

    def __init__(self, kind: str, message: str, line: int) -> None:
        super().__init__(message)
        self.kind, self.message, self.line = kind, message, line


def prepare() -> None:
    """As the real translator's; there is nothing to prepare."""


@dataclass
class TargetSpec:
    """As the real translator's."""

    opt: int

    @staticmethod
    def host(opt: int | None) -> TargetSpec:
        return TargetSpec(2 if opt is None else opt)


@dataclass
class Kernel:
    name: str
    params: list[tuple[int, int]] = field(default_factory=lambda: [(0, 8), (8, 4)])
    param_bytes: int = 12
    static_shared: int = 16
    local_bytes: int = 32
    max_threads: int = 256
    req_ntid: tuple[int, int, int] = (0, 0, 0)
    refused: str = ""
    code: str = ""
    text_bytes: int = 100


@dataclass
class Global:
    name: str
    offset: int
    size: int
    align: int = 4
    constant: bool = False


@dataclass
class Relocation:
    offset: int
    target: str
    addend: int
    generic: bool = True


@dataclass
class ModuleInfo:
    kernels: list[Kernel]
    version: str = "8.7"
    target: str = "sm_80"
    globals: list[Global] = field(
        default_factory=lambda: [Global("table", 0, 16), Global("limit", 16, 4, 4, True)]
    )
    globals_bytes: int = 4096
    globals_align: int = 256
    image: bytes = bytes(range(20))
    relocations: list[Relocation] = field(default_factory=lambda: [Relocation(8, "limit", -4)])


def _obey(text: str, opt: int) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        order, _, rest = line.partition(" ")
        if order == "//optimising":  # the rest is an order for compiles that optimise
            order, _, rest = rest.partition(" ") if opt == 2 else ("", "", "")
        if order == "//count":
            with open(rest, "a") as file:
                file.write("once\n")
        elif order == "//wait":  # until the other side of the FIFO closes it
            with open(rest) as fifo:
                fifo.read()
        elif order == "//abort":
            os.abort()
        elif order == "//loop":
            while True:
                pass
        elif order == "//eat":
            bytearray(1 << 40)
        elif order == "//explode":
            raise RuntimeError("a bug")
        elif order == "//refuse":
            raise PtxError("unsupported_form", f"instruction form not supported: {rest}", number)


def inspect_module(text: str) -> ModuleInfo:
    """Describe the kernels of the //kernel lines."""
    if not text.startswith("//fake"):
        raise PtxError("invalid_ptx", "no .version directive", 1)
    lines = [line.split() for line in text.splitlines() if line.startswith("//kernel")]
    return ModuleInfo([_kernel(text, *words[1:]) for words in lines])


def _kernel(text: str, name: str, code: str = "") -> Kernel:
    """`code` says what the kernel is made from; without it, the whole text."""
    return Kernel(name, code=f"{name} {code or hashlib.sha256(text.encode()).hexdigest()}")


def compile_kernel(text: str, kernel: str, target: TargetSpec) -> bytes:
    """Compile C."""
    _obey(text, target.opt)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.o"
        done = subprocess.run(
            [
                *("gcc", f"-O{target.opt}", "-fPIC", "-c", "-x", "c", "-o", str(output)),
                *(f"-DKERNEL={kernel}", f'-DNAME="{kernel}"', "-include", str(KERNEL_ABI), "-"),
            ],
            input=text.encode(),
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise PtxError("invalid_ptx", done.stderr.decode(), 0)
        return output.read_bytes()
