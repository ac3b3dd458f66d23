"""Functions that CUDA's compilers take for granted: printf, assert, malloc and free.

The scheduler's services do the work, for one active lane after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..forms import Slots, form
from ..model import Instr, Reg, Sink

if TYPE_CHECKING:
    from ..generator import Generator


def _vectors(g: Generator, i: Instr, first: int, *types: str) -> list[str]:
    """Arguments in memory, one vector each, as operands of a service."""
    for op in i.ops:
        if not isinstance(op, (Reg, Sink)):  # its name would be read as its address
            raise g.unsupported(f"{i.form} with parameters that are no registers")
    values = [g.read(op, kind) for op, kind in zip(i.ops[first:], types, strict=True)]
    return [f"ptr {g.spill(value)}" for value in values]


@form("call.vprintf", operands=3)
def print_text(g: Generator, i: Instr, f: Slots) -> None:
    """(number of arguments), format, argument buffer"""
    given = _vectors(g, i, 1, "b64", "b64")
    result = g.temp("i32")
    g.service("print", f"i32 {g.mask}", *given, f"ptr {result}")
    g.write(i.ops[0], "b32", g.b.load("i32", result))


@form("call.__assertfail", operands=5, writes=False)
def assert_fail(g: Generator, i: Instr, f: Slots) -> None:
    """message, file, line, function, size of a character"""
    given = _vectors(g, i, 0, "b64", "b64", "b32", "b64", "b64")
    b = g.b
    failing, following = b.new_label(), b.new_label()
    b.branch(b.raw(f"icmp ne i32 {g.mask}, 0"), failing, following)
    b.label(failing)
    g.service("assert_fail", f"i32 {g.mask}", *given[:4])
    b.emit("unreachable")
    b.label(following)


@form("call.malloc", operands=2)
def allocate(g: Generator, i: Instr, f: Slots) -> None:
    """(address), size"""
    g.flags |= abi.KERNEL_USES_HEAP
    size = _vectors(g, i, 1, "b64")
    result = g.temp("i64")
    g.service("allocate", f"i32 {g.mask}", *size, f"ptr {result}")
    g.write(i.ops[0], "b64", g.b.load("i64", result))


@form("call.free", operands=1, writes=False)
def release(g: Generator, i: Instr, f: Slots) -> None:
    """address"""
    g.flags |= abi.KERNEL_USES_HEAP
    g.service("release", f"i32 {g.mask}", *_vectors(g, i, 0, "b64"))
