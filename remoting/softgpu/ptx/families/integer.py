"""Integer arithmetic: 16, 32, 64 bits, packed 16x2, carry chains, dot products."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..generator import type_bits
from ..model import Instr

if TYPE_CHECKING:
    from ..generator import Generator

_INT = "{type:.s16|.u16|.s32|.u32|.s64|.u64}"
_PACKED = "{type:.s16x2|.u16x2}"


def is_signed(type_name: str) -> bool:
    return type_name.startswith("s")


def packed(g: Generator, value: Value) -> Value:
    """32 lanes of pairs as 64 lanes of 16 bits."""
    return g.b.bitcast(value, "i16")


@form(f"add{_INT}", operands=3)
@form(f"sub{_INT}", operands=3)
def add_sub(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    g.write(i.ops[0], f["type"], g.b.bin(i.opcode, a, b))


@form("add.sat.s32", "sub.sat.s32", operands=3)
def add_sub_saturating(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], "s32"), g.read(i.ops[2], "s32")
    g.write(i.ops[0], "s32", g.b.call(f"llvm.s{i.opcode}.sat", "i32", a, b))


@form(f"add{_PACKED}", f"sub{_PACKED}", operands=3)
def add_sub_packed(g: Generator, i: Instr, f: Slots) -> None:
    a, b = (packed(g, g.read(op, f["type"])) for op in i.ops[1:])
    g.write(i.ops[0], "b32", g.b.bitcast(g.b.bin(i.opcode, a, b), "i32"))


# ---------------------------------------------------------------------- carry chains
_CHAIN = "{type:.u32|.s32|.u64|.s64}"


def _add_carry(g: Generator, a: Value, c: Value, carry: bool) -> tuple[Value, Value]:
    b = g.b
    total = b.bin("add", a, c)
    out = b.icmp("ult", total, a)
    if carry:
        more = b.cast("zext", g.read_carry(), total.elem)
        whole = b.bin("add", total, more)
        out = b.bin("or", out, b.icmp("ult", whole, total))
        total = whole
    return total, out


def _sub_borrow(g: Generator, a: Value, c: Value, borrow: bool) -> tuple[Value, Value]:
    b = g.b
    rest = b.bin("sub", a, c)
    out = b.icmp("ult", a, c)
    if borrow:
        more = b.cast("zext", g.read_carry(), rest.elem)
        out = b.bin("or", out, b.icmp("ult", rest, more))
        rest = b.bin("sub", rest, more)
    return rest, out


def _finish_chain(g: Generator, i: Instr, f: Slots, result: tuple[Value, Value]) -> None:
    g.write(i.ops[0], f["type"], result[0])
    if f["cc"]:
        g.write_carry(result[1])


@form(f"add{{cc:.cc}}{_CHAIN}", f"addc{{cc:.cc|}}{_CHAIN}", operands=3)
def add_with_carry(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    _finish_chain(g, i, f, _add_carry(g, a, b, i.opcode == "addc"))


@form(f"sub{{cc:.cc}}{_CHAIN}", f"subc{{cc:.cc|}}{_CHAIN}", operands=3)
def sub_with_borrow(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    _finish_chain(g, i, f, _sub_borrow(g, a, b, i.opcode == "subc"))


@form(
    f"mad{{half:.lo|.hi}}{{cc:.cc}}{_CHAIN}", f"madc{{half:.lo|.hi}}{{cc:.cc|}}{_CHAIN}", operands=4
)
def mad_with_carry(g: Generator, i: Instr, f: Slots) -> None:
    product = multiply(g, i, f["half"], f["type"])
    addend = g.read(i.ops[3], f["type"])
    _finish_chain(g, i, f, _add_carry(g, product, addend, i.opcode == "madc"))


# ---------------------------------------------------------------------- multiplication
def multiply(g: Generator, i: Instr, half: str, type_name: str) -> Value:
    """lo, hi or wide part of the product of operands 1 and 2."""
    b = g.b
    x, y = g.read(i.ops[1], type_name), g.read(i.ops[2], type_name)
    if half == "lo":
        return b.bin("mul", x, y)
    width = type_bits(type_name)
    extend = "sext" if is_signed(type_name) else "zext"
    wide = f"i{2 * width}"
    product = b.bin("mul", b.cast(extend, x, wide), b.cast(extend, y, wide))
    if half == "wide":
        return product
    return b.cast("trunc", b.bini("lshr", product, width), f"i{width}")


def wider(type_name: str) -> str:
    """u16 -> u32, s32 -> s64."""
    return f"{type_name[0]}{2 * type_bits(type_name)}"


_WIDE = "{half:.wide}{type:.s16|.u16|.s32|.u32}"


@form(f"mul{{half:.lo|.hi}}{_INT}", f"mul{_WIDE}", operands=3)
def mul(g: Generator, i: Instr, f: Slots) -> None:
    dest = wider(f["type"]) if f["half"] == "wide" else f["type"]
    g.write(i.ops[0], dest, multiply(g, i, f["half"], f["type"]))


@form(f"mad{{half:.lo|.hi}}{_INT}", f"mad{_WIDE}", operands=4)
def mad(g: Generator, i: Instr, f: Slots) -> None:
    dest = wider(f["type"]) if f["half"] == "wide" else f["type"]
    product = multiply(g, i, f["half"], f["type"])
    g.write(i.ops[0], dest, g.b.bin("add", product, g.read(i.ops[3], dest)))


@form("mad.hi.sat.s32", operands=4)
def mad_saturating(g: Generator, i: Instr, f: Slots) -> None:
    product = multiply(g, i, "hi", "s32")
    g.write(i.ops[0], "s32", g.b.call("llvm.sadd.sat", "i32", product, g.read(i.ops[3], "s32")))


def _product24(g: Generator, i: Instr, half: str, type_name: str) -> Value:
    """Product of the low 24 bits: its low 32 bits, or bits 16 to 47."""
    b = g.b
    shift = "ashr" if is_signed(type_name) else "lshr"
    extend = "sext" if is_signed(type_name) else "zext"
    x, y = (b.bini(shift, b.bini("shl", g.read(op, type_name), 8), 8) for op in i.ops[1:3])
    product = b.bin("mul", b.cast(extend, x, "i64"), b.cast(extend, y, "i64"))
    if half == "hi":
        product = b.bini("lshr", product, 16)
    return b.cast("trunc", product, "i32")


@form("mul24{half:.lo|.hi}{type:.s32|.u32}", operands=3)
def mul24(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], f["type"], _product24(g, i, f["half"], f["type"]))


@form("mad24{half:.lo|.hi}{type:.s32|.u32}", operands=4)
def mad24(g: Generator, i: Instr, f: Slots) -> None:
    product = _product24(g, i, f["half"], f["type"])
    g.write(i.ops[0], f["type"], g.b.bin("add", product, g.read(i.ops[3], f["type"])))


@form("mad24.hi.sat.s32", operands=4)
def mad24_saturating(g: Generator, i: Instr, f: Slots) -> None:
    product = _product24(g, i, "hi", "s32")
    g.write(i.ops[0], "s32", g.b.call("llvm.sadd.sat", "i32", product, g.read(i.ops[3], "s32")))


# ---------------------------------------------------------------------- division
@form(f"div{_INT}", f"rem{_INT}", operands=3)
def divide(g: Generator, i: Instr, f: Slots) -> None:
    """The processor traps on x/0 and on the most negative number / -1, a GPU does not:
    x/0 is all ones, x%0 is x, and the overflow wraps."""
    b = g.b
    x, y = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    zero = b.icmpi("eq", y, 0)
    guard = zero
    signed = is_signed(f["type"])
    if signed:
        lowest = b.icmpi("eq", x, 1 << (type_bits(f["type"]) - 1))
        guard = b.bin("or", zero, b.bin("and", lowest, b.icmpi("eq", y, -1)))
    safe = b.select(guard, b.const(y.elem, 1), y)
    result = b.bin(f"{'s' if signed else 'u'}{i.opcode}", x, safe)
    if i.opcode == "div":
        # with the divisor replaced by 1 the overflow case is x itself, as it should be
        result = b.select(zero, b.const(x.elem, -1), result)
    else:
        result = b.select(zero, x, result)
    g.write(i.ops[0], f["type"], result)


# ---------------------------------------------------------------------- one and two operands
@form("abs{type:.s16|.s32|.s64}", operands=2)
def absolute(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(i.ops[0], f["type"], g.b.call("llvm.abs", value.elem, value, extra="i1 false"))


@form("neg{type:.s16|.s32|.s64}", operands=2)
def negate(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(i.ops[0], f["type"], g.b.bin("sub", g.b.const(value.elem, 0), value))


@form(f"min{_INT}", f"max{_INT}", operands=3)
def min_max(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    sign = "s" if is_signed(f["type"]) else "u"
    g.write(i.ops[0], f["type"], g.b.call(f"llvm.{sign}{i.opcode}", a.elem, a, b))


@form("min.relu.s32", "max.relu.s32", operands=3)
def min_max_relu(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    result = b.call(f"llvm.s{i.opcode}", "i32", g.read(i.ops[1], "s32"), g.read(i.ops[2], "s32"))
    g.write(i.ops[0], "s32", b.call("llvm.smax", "i32", result, b.const("i32", 0)))


@form(
    f"min{_PACKED}",
    f"max{_PACKED}",
    "min{relu:.relu}{type:.s16x2}",
    "max{relu:.relu}{type:.s16x2}",
    operands=3,
)
def min_max_packed(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x, y = (packed(g, g.read(op, f["type"])) for op in i.ops[1:])
    result = b.call(f"llvm.{'s' if is_signed(f['type']) else 'u'}{i.opcode}", "i16", x, y)
    if f.get("relu"):
        result = b.call("llvm.smax", "i16", result, b.const("i16", 0, 64))
    g.write(i.ops[0], "b32", b.bitcast(result, "i32"))


@form(f"sad{_INT}", operands=4)
def sum_of_differences(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x, y, z = (g.read(op, f["type"]) for op in i.ops[1:])
    sign = "s" if is_signed(f["type"]) else "u"
    high, low = b.call(f"llvm.{sign}max", x.elem, x, y), b.call(f"llvm.{sign}min", x.elem, x, y)
    g.write(i.ops[0], f["type"], b.bin("add", z, b.bin("sub", high, low)))


# ---------------------------------------------------------------------- dot products
def _field(g: Generator, value: Value, start: int, width: int, signed: bool) -> Value:
    shifted = g.b.bini("shl", value, 32 - start - width)
    return g.b.bini("ashr" if signed else "lshr", shifted, 32 - width)


@form("dp4a{left:.u32|.s32}{right:.u32|.s32}", operands=4)
def dot4(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x, y, total = (g.read(op, "b32") for op in i.ops[1:])
    for k in range(4):
        left = _field(g, x, 8 * k, 8, is_signed(f["left"]))
        right = _field(g, y, 8 * k, 8, is_signed(f["right"]))
        total = b.bin("add", total, b.bin("mul", left, right))
    g.write(i.ops[0], "b32", total)


@form("dp2a{half:.lo|.hi}{left:.u32|.s32}{right:.u32|.s32}", operands=4)
def dot2(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x, y, total = (g.read(op, "b32") for op in i.ops[1:])
    for k in range(2):
        left = _field(g, x, 16 * k, 16, is_signed(f["left"]))
        place = 8 * k + (16 if f["half"] == "hi" else 0)
        right = _field(g, y, place, 8, is_signed(f["right"]))
        total = b.bin("add", total, b.bin("mul", left, right))
    g.write(i.ops[0], "b32", total)
