"""Packed video instructions: two halves or four bytes at once (vadd2 ... vset4).

Only the plain forms: whole operands, all elements written.  Selectors and masks are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr

if TYPE_CHECKING:
    from ..generator import Generator

_TYPES = "{to:.u32|.s32}{a:.u32|.s32}{b:.u32|.s32}"
_OPERATIONS = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vavrg")


def _elements(g: Generator, i: Instr, k: int, kind: str, width: int) -> Value:
    """An operand's elements, extended: 64 or 128 lanes of 32 bits."""
    narrow = g.b.bitcast(g.read(i.ops[k], "b32"), f"i{width}")
    return g.b.cast("sext" if kind.startswith("s") else "zext", narrow, "i32")


def _compute(g: Generator, opcode: str, x: Value, y: Value) -> Value:
    """Exact: 32 bits hold every result of 16-bit elements."""
    b = g.b
    if opcode == "vadd":
        return b.bin("add", x, y)
    if opcode in ("vsub", "vabsdiff"):
        difference = b.bin("sub", x, y)
        if opcode == "vsub":
            return difference
        return b.call("llvm.abs", "i32", difference, extra="i1 false")
    if opcode == "vavrg":
        # rounded to nearest, halves away from zero
        total = b.bin("add", x, y)
        up = b.cast("zext", b.icmpi("sge", total, 0), "i32")
        return b.bini("ashr", b.bin("add", total, up), 1)
    return b.call(f"llvm.s{opcode[1:]}", "i32", x, y)


def _sum(g: Generator, i: Instr, values: Value) -> Value:
    """The elements of each word, added to the last operand."""
    b, count = g.b, values.lanes // 32
    total = g.read(i.ops[3], "b32")
    for k in range(count):
        total = b.bin("add", total, b.shuffle(values, None, list(range(k, values.lanes, count))))
    return total


@form(*(f"{op}{n}{_TYPES}{{how:.sat|.add|}}" for op in _OPERATIONS for n in "24"), operands=4)
def packed_video(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    width = 16 if i.opcode.endswith("2") else 8
    x, y = (_elements(g, i, k, f[name], width) for k, name in ((1, "a"), (2, "b")))
    result = _compute(g, i.opcode[:-1], x, y)
    if f["how"] == "add":
        g.write(i.ops[0], "b32", _sum(g, i, result))
        return
    g.read(i.ops[3], "b32")  # keeps elements that are not selected: none
    if f["how"] == "sat":
        signed = f["to"].startswith("s")
        low = -(1 << (width - 1)) if signed else 0
        high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
        result = b.call("llvm.smax", "i32", result, b.const("i32", low, result.lanes))
        result = b.call("llvm.smin", "i32", result, b.const("i32", high, result.lanes))
    g.write(i.ops[0], "b32", b.bitcast(b.cast("trunc", result, f"i{width}"), "i32"))


@form(
    *(
        f"vset{n}{{a:.u32|.s32}}{{b:.u32|.s32}}{{cmp:.eq|.ne|.lt|.le|.gt|.ge}}{{how:.add|}}"
        for n in "24"
    ),
    operands=4,
)
def packed_set(g: Generator, i: Instr, f: Slots) -> None:
    """1 where true, in each element."""
    b = g.b
    width = 16 if i.opcode.endswith("2") else 8
    x, y = (_elements(g, i, k, f[name], width) for k, name in ((1, "a"), (2, "b")))
    cmp = f["cmp"] if f["cmp"] in ("eq", "ne") else "s" + f["cmp"]
    result = b.cast("zext", b.icmp(cmp, x, y), "i32")
    if f["how"]:
        g.write(i.ops[0], "b32", _sum(g, i, result))
        return
    g.read(i.ops[3], "b32")
    g.write(i.ops[0], "b32", b.bitcast(b.cast("trunc", result, f"i{width}"), "i32"))
