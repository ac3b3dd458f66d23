"""Conversions to packed narrow types: eight-bit floating point, and saturated integer fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr
from . import numbers

if TYPE_CHECKING:
    from ..generator import Generator

_EIGHT = ".e4m3x2|.e5m2x2"


def _to_eight(g: Generator, value: Value, kind: str) -> Value:
    """32 or 64 floats as bytes."""
    value = numbers.relu(g, value) if kind.endswith("+") else value
    parts = g.b.parts(value, 32)
    source = g.spill(*parts)
    out = g.temp("i8", 2)
    g.helper(f"cvt_to_{kind.rstrip('+')}", f"i32 {value.lanes}", f"ptr {source}", f"ptr {out}")
    return g.b.load("i8", out, value.lanes, align=1)


def _kind(f: Slots, name: str) -> str:
    return f[name].removesuffix("x2") + ("+" if f["relu"] else "")


@form(f"cvt.rn.satfinite{{relu:.relu|}}{{to:{_EIGHT}}}.f32", operands=3)
def pack_eight(g: Generator, i: Instr, f: Slots) -> None:
    """The first source becomes the upper byte."""
    b = g.b
    high, low = (_to_eight(g, g.read(op, "f32"), _kind(f, "to")) for op in i.ops[1:])
    high, low = (b.cast("zext", v, "i16") for v in (high, low))
    g.write(i.ops[0], "b16", b.bin("or", b.bini("shl", high, 8), low))


@form(f"cvt.rn.satfinite{{relu:.relu|}}{{to:{_EIGHT}}}{{from:.f16x2}}", operands=2)
def narrow_pair(g: Generator, i: Instr, f: Slots) -> None:
    value = numbers.widened(g, g.read(i.ops[1], "f16x2"), "f16x2")
    g.write(i.ops[0], "b16", g.b.bitcast(_to_eight(g, value, _kind(f, "to")), "i16"))


@form(f"cvt.rn{{relu:.relu|}}.f16x2{{from:{_EIGHT}}}", operands=2)
def widen_pair(g: Generator, i: Instr, f: Slots) -> None:
    """Exact: every number of eight bits is one of f16."""
    b = g.b
    pairs = b.bitcast(g.read(i.ops[1], "b16"), "i8")
    source = g.temp("i8", 2)
    b.store(pairs, source, 1)
    out = g.temp("float", 2)
    g.helper(f"cvt_from_{f['from'].removesuffix('x2')}", "i32 64", f"ptr {source}", f"ptr {out}")
    value = b.load("float", out, 64, align=64)
    if f["relu"]:
        value = numbers.relu(g, value)
    g.write(i.ops[0], "b32", b.bitcast(numbers.to_half(g, value), "i32"))


_WIDTHS = {"u2": 2, "s2": 2, "u4": 4, "s4": 4, "u8": 8, "s8": 8, "u16": 16, "s16": 16}


def _clamped(g: Generator, i: Instr, k: int, kind: str) -> Value:
    """A 32-bit integer limited to the narrow type, its bits at the bottom of a word."""
    b, width = g.b, _WIDTHS[kind]
    signed = kind.startswith("s")
    low = -(1 << (width - 1)) if signed else 0
    high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    value = b.call("llvm.smax", "i32", g.read(i.ops[k], "s32"), b.const("i32", low))
    value = b.call("llvm.smin", "i32", value, b.const("i32", high))
    return b.bini("and", value, (1 << width) - 1)


def _fields(g: Generator, i: Instr, kind: str) -> Value:
    b = g.b
    high, low = _clamped(g, i, 1, kind), _clamped(g, i, 2, kind)
    return b.bin("or", b.bini("shl", high, _WIDTHS[kind]), low)


@form("cvt.pack.sat{to:.u16|.s16}.s32", operands=3)
def pack_halves(g: Generator, i: Instr, f: Slots) -> None:
    """The first source becomes the upper half."""
    g.write(i.ops[0], "b32", _fields(g, i, f["to"]))


@form("cvt.pack.sat{to:.u2|.s2|.u4|.s4|.u8|.s8}.s32.b32", operands=4)
def pack_fields(g: Generator, i: Instr, f: Slots) -> None:
    """The low bits of the last source move up to make room for the two new fields."""
    b = g.b
    rest = b.bini("shl", g.read(i.ops[3], "b32"), 2 * _WIDTHS[f["to"]])
    g.write(i.ops[0], "b32", b.bin("or", rest, _fields(g, i, f["to"])))
