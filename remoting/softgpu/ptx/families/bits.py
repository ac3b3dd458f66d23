"""Logic, shifts, bit fields, counting, permutation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..generator import type_bits
from ..model import Instr, Int, Pair

if TYPE_CHECKING:
    from ..generator import Generator

_LOGIC = "{type:.pred|.b16|.b32|.b64}"


@form(f"and{_LOGIC}", f"or{_LOGIC}", f"xor{_LOGIC}", operands=3)
def logic(g: Generator, i: Instr, f: Slots) -> None:
    g.write(
        i.ops[0],
        f["type"],
        g.b.bin(i.opcode, g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])),
    )


@form(f"not{_LOGIC}", operands=2)
def invert(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], f["type"], g.b.invert(g.read(i.ops[1], f["type"])))


@form("cnot{type:.b16|.b32|.b64}", operands=2)
def logical_not(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(i.ops[0], f["type"], g.b.cast("zext", g.b.icmpi("eq", value, 0), value.elem))


def _table(g: Generator, i: Instr) -> Value:
    """Any function of three bits, as the sum of its true rows."""
    b = g.b
    table = i.ops[4]
    if not isinstance(table, Int) or not 0 <= table.value <= 255:
        raise g.invalid("the table must be a constant of 0 to 255")
    inputs = [g.read(op, "b32") for op in i.ops[1:4]]
    inverted = [b.invert(value) for value in inputs]
    if table.value > 127:  # fewer rows when the complement is built
        rows, flip = 255 - table.value, True
    else:
        rows, flip = table.value, False
    result = b.const("i32", 0)
    for row in range(8):
        if rows >> row & 1:
            x, y, z = (inputs[k] if row >> (2 - k) & 1 else inverted[k] for k in range(3))
            result = b.bin("or", result, b.bin("and", b.bin("and", x, y), z))
    return b.invert(result) if flip else result


@form("lop3.b32", operands=5)
def lop3(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], "b32", _table(g, i))


@form("lop3{bool:.or|.and}.b32", operands=6)
def lop3_predicate(g: Generator, i: Instr, f: Slots) -> None:
    dest = i.ops[0]
    if not isinstance(dest, Pair):
        raise g.invalid("needs two destinations")
    result = _table(g, i)
    predicate = g.b.bin(f["bool"], g.b.icmpi("ne", result, 0), g.read(i.ops[5], "pred"))
    g.write(dest.first, "b32", result)
    g.write(dest.second, "pred", predicate)


# ---------------------------------------------------------------------- shifts
@form("shl{type:.b16|.b32|.b64}", operands=3)
@form("shr{type:.b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64}", operands=3)
def shift(g: Generator, i: Instr, f: Slots) -> None:
    """Amounts beyond the width give 0, or the sign."""
    b = g.b
    value, amount = g.read(i.ops[1], f["type"]), g.read(i.ops[2], "u32")
    width = type_bits(f["type"])
    arithmetic = i.opcode == "shr" and f["type"].startswith("s")
    op = "shl" if i.opcode == "shl" else "ashr" if arithmetic else "lshr"
    limited = b.call("llvm.umin", "i32", amount, b.const("i32", width - 1))
    result = b.bin(op, value, b.resize(limited, value.elem))
    if not arithmetic:
        result = b.select(
            b.icmp("ugt", amount, b.const("i32", width - 1)), b.const(value.elem, 0), result
        )
    g.write(i.ops[0], f["type"], result)


@form("shf{way:.l|.r}{mode:.clamp|.wrap}.b32", operands=4)
def funnel_shift(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    low, high, amount = (g.read(op, "b32") for op in i.ops[1:])
    if f["mode"] == "clamp":
        amount = b.call("llvm.umin", "i32", amount, b.const("i32", 32))
    else:
        amount = b.bini("and", amount, 31)
    pair = b.bin("or", b.cast("zext", low, "i64"), b.bini("shl", b.cast("zext", high, "i64"), 32))
    wide = b.cast("zext", amount, "i64")
    if f["way"] == "l":
        result = b.bini("lshr", b.bin("shl", pair, wide), 32)
    else:
        result = b.bin("lshr", pair, wide)
    g.write(i.ops[0], "b32", b.cast("trunc", result, "i32"))


# ---------------------------------------------------------------------- bit fields
def _byte(g: Generator, i: Instr, k: int, limit: int) -> Value:
    """A position or length: its low 8 bits, not more than the width."""
    b = g.b
    return b.call(
        "llvm.umin", "i32", b.bini("and", g.read(i.ops[k], "u32"), 255), b.const("i32", limit)
    )


@form("bfe{type:.u32|.s32|.u64|.s64}", operands=4)
def extract(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    width, signed = type_bits(f["type"]), f["type"].startswith("s")
    shift_right, extend = ("ashr", "sext") if signed else ("lshr", "zext")
    value = g.read(i.ops[1], f["type"])
    start, length = _byte(g, i, 2, width), _byte(g, i, 3, width)
    wide = f"i{2 * width}"
    moved = b.bin(shift_right, b.cast(extend, value, wide), b.cast("zext", start, wide))
    moved = b.cast("trunc", moved, value.elem)
    none = b.icmpi("eq", length, 0)
    spare = b.select(none, b.const("i32", 0), b.bin("sub", b.const("i32", width), length))
    spare = b.resize(spare, value.elem)
    result = b.bin(shift_right, b.bin("shl", moved, spare), spare)
    g.write(i.ops[0], f["type"], b.select(none, b.const(value.elem, 0), result))


@form("bfi{type:.b32|.b64}", operands=5)
def insert(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    width = type_bits(f["type"])
    wide = f"i{2 * width}"
    field, base = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    start = b.cast("zext", _byte(g, i, 3, width), wide)
    length = b.cast("zext", _byte(g, i, 4, width), wide)
    ones = b.bini("sub", b.bin("shl", b.const(wide, 1), length), 1)
    mask = b.cast("trunc", b.bin("shl", ones, start), field.elem)
    moved = b.cast("trunc", b.bin("shl", b.cast("zext", field, wide), start), field.elem)
    g.write(
        i.ops[0],
        f["type"],
        b.bin("or", b.bin("and", moved, mask), b.bin("and", base, b.invert(mask))),
    )


@form("szext{mode:.clamp|.wrap}{type:.u32|.s32}", operands=3)
def extend_low_bits(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    value, count = g.read(i.ops[1], f["type"]), g.read(i.ops[2], "u32")
    if f["mode"] == "clamp":
        count = b.call("llvm.umin", "i32", count, b.const("i32", 32))
    else:
        count = b.bini("and", count, 31)
    none = b.icmpi("eq", count, 0)
    spare = b.select(none, b.const("i32", 0), b.bin("sub", b.const("i32", 32), count))
    op = "ashr" if f["type"] == "s32" else "lshr"
    result = b.bin(op, b.bin("shl", value, spare), spare)
    g.write(i.ops[0], f["type"], b.select(none, b.const("i32", 0), result))


@form("bmsk{mode:.clamp|.wrap}.b32", operands=3)
def make_mask(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    start, length = g.read(i.ops[1], "b32"), g.read(i.ops[2], "b32")
    if f["mode"] == "clamp":
        start, length = (b.call("llvm.umin", "i32", v, b.const("i32", 32)) for v in (start, length))
    else:
        start, length = b.bini("and", start, 31), b.bini("and", length, 31)
    ones = b.bini("sub", b.bin("shl", b.const("i64", 1), b.cast("zext", length, "i64")), 1)
    g.write(
        i.ops[0], "b32", b.cast("trunc", b.bin("shl", ones, b.cast("zext", start, "i64")), "i32")
    )


# ---------------------------------------------------------------------- counting
@form("popc{type:.b32|.b64}", operands=2)
def population(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(i.ops[0], "u32", g.b.resize(g.b.call("llvm.ctpop", value.elem, value), "i32"))


@form("clz{type:.b32|.b64}", operands=2)
def leading_zeros(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(
        i.ops[0],
        "u32",
        g.b.resize(g.b.call("llvm.ctlz", value.elem, value, extra="i1 false"), "i32"),
    )


@form("brev{type:.b32|.b64}", operands=2)
def reverse(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(i.ops[0], f["type"], g.b.call("llvm.bitreverse", value.elem, value))


@form("bfind{amount:.shiftamt|}{type:.u32|.s32|.u64|.s64}", operands=2)
def find_leading(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    width = type_bits(f["type"])
    value = g.read(i.ops[1], f["type"])
    if f["type"].startswith("s"):
        value = b.bin("xor", value, b.bini("ashr", value, width - 1))
    zeros = b.resize(b.call("llvm.ctlz", value.elem, value, extra="i1 false"), "i32")
    place = zeros if f["amount"] else b.bin("sub", b.const("i32", width - 1), zeros)
    g.write(i.ops[0], "u32", b.select(b.icmpi("eq", zeros, width), b.const("i32", -1), place))


@form("fns.b32", operands=4)
def find_nth_set(g: Generator, i: Instr, f: Slots) -> None:
    """The n-th set bit at or beyond a position, upwards or downwards; all ones if there is none."""
    given = [f"ptr {g.spill(g.read(op, 'b32'))}" for op in i.ops[1:]]
    out = g.temp("i32")
    g.helper("fns", *given, f"ptr {out}")
    g.write(i.ops[0], "b32", g.b.load("i32", out, align=64))


# ---------------------------------------------------------------------- bytes
#: Selector nibbles of the special prmt modes for the four values of c[1:0].
_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@form("prmt.b32{mode:.f4e|.b4e|.rc8|.ecl|.ecr|.rc16|}", operands=4)
def permute(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    low, high, selector = (g.read(op, "b32") for op in i.ops[1:])
    if f["mode"]:
        choice = b.bini("and", selector, 3)
        selector = b.const("i32", 0)
        for k, nibbles in enumerate(_PERMUTATIONS[f["mode"]]):
            selector = b.select(b.icmpi("eq", choice, k), b.const("i32", nibbles), selector)
    pair = b.bin("or", b.cast("zext", low, "i64"), b.bini("shl", b.cast("zext", high, "i64"), 32))
    result = b.const("i32", 0)
    for k in range(4):
        nibble = b.bini("lshr", selector, 4 * k)
        place = b.cast("zext", b.bini("shl", b.bini("and", nibble, 7), 3), "i64")
        byte = b.bini("and", b.cast("trunc", b.bin("lshr", pair, place), "i32"), 255)
        sign = b.bini("ashr", b.bini("shl", byte, 24), 31)
        copies_sign = b.icmpi("ne", b.bini("and", nibble, 8), 0)
        byte = b.select(copies_sign, b.bini("and", sign, 255), byte)
        result = b.bin("or", result, b.bini("shl", byte, 8 * k))
    g.write(i.ops[0], "b32", result)
