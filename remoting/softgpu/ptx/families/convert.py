"""cvt: all pairs of types, with rounding and saturation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..generator import type_bits
from ..model import Instr
from . import numbers

if TYPE_CHECKING:
    from ..generator import Generator

_INTS = ".u8|.s8|.u16|.s16|.u32|.s32|.u64|.s64"
_RND = "{rnd:.rn|.rz|.rm|.rp}"
_TO_INT = {"rni": "llvm.roundeven", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}
_IRND = "{rnd:.rni|.rzi|.rmi|.rpi}"


@form(f"cvt{{sat:.sat|}}{{to:{_INTS}}}{{from:{_INTS}}}", operands=2)
def integers(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["from"], chop=True)
    if f["sat"]:
        value = _clamp(g, value, f["from"], f["to"])
    to = f"i{type_bits(f['to'])}"
    g.write(i.ops[0], f["to"], g.b.resize(value, to, signed=f["from"].startswith("s")), widen=True)


def _clamp(g: Generator, value: Value, source: str, target: str) -> Value:
    """Limit to the target's range, in the source's type."""
    b = g.b
    bits, target_bits = value.bits, type_bits(target)
    signed = target.startswith("s")
    low = -(1 << (target_bits - 1)) if signed else 0
    high = (1 << (target_bits - 1)) - 1 if signed else (1 << target_bits) - 1
    if source.startswith("s"):
        if high < (1 << (bits - 1)) - 1:
            value = b.call("llvm.smin", value.elem, value, b.const(value.elem, high))
        if low > -(1 << (bits - 1)):
            value = b.call("llvm.smax", value.elem, value, b.const(value.elem, low))
    elif high < (1 << bits) - 1:
        value = b.call("llvm.umin", value.elem, value, b.const(value.elem, high))
    return value


@form(
    f"cvt{_RND}{{ftz:.ftz|}}{{sat:.sat|}}{{to:.f32}}{{from:{_INTS}}}",
    f"cvt{_RND}{{sat:.sat|}}{{to:.f64|.f16|.bf16}}{{from:{_INTS}}}",
    operands=2,
)
def from_integer(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    value = g.read(i.ops[1], f["from"], chop=True)
    signed = f["from"].startswith("s")
    if value.bits < 32:
        value = b.resize(value, "i32", signed=signed)
    source = ("s" if signed else "u") + str(value.bits)
    if f["to"] in ("f16", "bf16"):
        result = _sticky(g, value, source)
        if f["sat"]:
            result = numbers.saturate(g, result)
        bits = (
            numbers.to_half(g, result, f["rnd"])
            if f["to"] == "f16"
            else numbers.to_bfloat(g, result, f["rnd"])
        )
        g.write(i.ops[0], f["to"], bits, widen=True)
        return
    result = _int_to_float(g, value, source, f["to"], f["rnd"])
    if f["sat"]:
        result = numbers.saturate(g, result)
    g.write(i.ops[0], f["to"], result, widen=True)


def _int_to_float(g: Generator, value: Value, source: str, target: str, mode: str) -> Value:
    elem = "float" if target == "f32" else "double"
    if mode == "rn":
        return g.b.cast("sitofp" if source[0] == "s" else "uitofp", value, elem)
    out = g.temp(elem)
    g.helper(f"cvt_{mode}_{target}_{source}", f"ptr {g.spill(value)}", f"ptr {out}")
    return g.b.load(elem, out, align=64)


def _sticky(g: Generator, value: Value, source: str) -> Value:
    """An integer as f32 rounded to odd: rounding again to a half rounds the exact value."""
    b = g.b
    down, up = (_int_to_float(g, value, source, "f32", mode) for mode in ("rz", "rp"))
    other = _int_to_float(g, value, source, "f32", "rm")
    inexact = b.cast("zext", b.fcmp("one", up, other), "i32")
    return b.bitcast(b.bin("or", b.bitcast(down, "i32"), inexact), "float")


@form(
    f"cvt{_IRND}{{ftz:.ftz|}}{{sat:.sat|}}{{to:{_INTS}}}{{from:.f32}}",
    f"cvt{_IRND}{{sat:.sat|}}{{to:{_INTS}}}{{from:.f16|.bf16|.f64}}",
    operands=2,
)
def to_integer(g: Generator, i: Instr, f: Slots) -> None:
    """Out of range saturates.  NaN is 0, but the lowest number (only the top bit set) for 64-bit
    results and f64 operands."""
    b = g.b
    flush = bool(f.get("ftz")) and f["from"] == "f32"
    value = numbers.widened(g, g.read(i.ops[1], f["from"], chop=True), f["from"], flush)
    if f["rnd"] != "rzi":
        value = b.call(_TO_INT[f["rnd"]], value.elem, value)
    width = type_bits(f["to"])
    kind = "s" if f["to"].startswith("s") else "u"
    result = b.convert_call(f"llvm.fpto{kind}i.sat", f"i{width}", value)
    if width == 64 or f["from"] == "f64":
        result = b.select(numbers.is_nan(g, value), b.const(result.elem, 1 << (width - 1)), result)
    g.write(i.ops[0], f["to"], result, widen=True)


@form(
    f"cvt{_IRND}{{ftz:.ftz|}}{{sat:.sat|}}{{to:.f32}}{{from:.f32}}",
    f"cvt{_IRND}{{sat:.sat|}}{{to:.f64}}{{from:.f64}}",
    f"cvt{_IRND}{{sat:.sat|}}{{to:.f16}}{{from:.f16}}",
    f"cvt{_IRND}{{to:.bf16}}{{from:.bf16}}",
    operands=2,
)
def to_integral(g: Generator, i: Instr, f: Slots) -> None:
    value = numbers.widened(
        g, g.read(i.ops[1], f["from"], chop=True), f["from"], bool(f.get("ftz"))
    )
    _finish(g, i, f, g.b.call(_TO_INT[f["rnd"]], value.elem, value), "rn")


@form(
    "cvt{ftz:.ftz|}{sat:.sat|}{to:.f32}{from:.f32|.f16}",
    "cvt{sat:.sat|}{to:.f64}{from:.f64|.f16}",
    "cvt{ftz:.ftz|}{sat:.sat|}{to:.f64}{from:.f32}",
    "cvt{sat:.sat|}{to:.f16}{from:.f16}",
    "cvt{to:.bf16}{from:.bf16}",
    "cvt{ftz:.ftz|}{to:.f32}{from:.bf16}",
    "cvt{to:.f64}{from:.bf16}",
    f"cvt{_RND}{{ftz:.ftz|}}{{sat:.sat|}}{{to:.f32}}{{from:.f64}}",
    f"cvt{_RND}{{ftz:.ftz|}}{{sat:.sat|}}{{to:.f16}}{{from:.f32}}",
    f"cvt{_RND}{{sat:.sat|}}{{to:.f16}}{{from:.f64}}",
    "cvt.rn{relu:.relu}{to:.f16}{from:.f32}",
    "cvt{rnd:.rn|.rz}{relu:.relu|}{finite:.satfinite}{to:.f16}{from:.f32}",
    "cvt{rnd:.rn|.rz}{relu:.relu|}{finite:.satfinite|}{to:.bf16}{from:.f32}",
    f"cvt{_RND}{{to:.bf16}}{{from:.f64|.f16}}",
    f"cvt{_RND}{{to:.f16}}{{from:.bf16}}",
    operands=2,
)
def floats(g: Generator, i: Instr, f: Slots) -> None:
    """Between floating types; widening is exact, narrowing rounds once."""
    flush = bool(f.get("ftz")) and f["from"] == "f32"
    value = numbers.widened(g, g.read(i.ops[1], f["from"], chop=True), f["from"], flush)
    _finish(g, i, f, value, f.get("rnd") or "rn")


def _finish(g: Generator, i: Instr, f: Slots, value: Value, mode: str) -> None:
    """Saturate, round to the destination type, write."""
    b = g.b
    to = f["to"]
    if f.get("sat"):
        value = numbers.saturate(g, value)
    if f.get("relu"):
        value = numbers.relu(g, value)
    if to in ("f16", "bf16"):
        if value.elem == "double":
            value = numbers.odd_f32(g, value)
        bits = numbers.to_half(g, value, mode) if to == "f16" else numbers.to_bfloat(g, value, mode)
        if f.get("finite"):
            bits = _finite(g, bits, 0x7C00 if to == "f16" else 0x7F80)
        g.write(i.ops[0], to, bits, widen=True)
        return
    if to == "f32" and value.elem == "double":
        if mode == "rn":
            value = b.cast("fptrunc", value, "float")
        else:
            out = g.temp("float")
            g.helper(f"cvt_{mode}_f32_f64", f"ptr {g.spill(value)}", f"ptr {out}")
            value = b.load("float", out, align=64)
    if to == "f32" and f.get("ftz"):
        value = numbers.flush32(g, value)
    if to == "f32":
        value = numbers.canonical(g, value)
    if to == "f64" and value.elem == "float":
        value = b.cast("fpext", value, "double")
    g.write(i.ops[0], to, value, widen=True)


@form(
    "cvt{rnd:.rn|.rz}{relu:.relu|}{sat:.satfinite|}{to:.f16x2|.bf16x2}.f32",
    operands=3,
)
def pack_floats(g: Generator, i: Instr, f: Slots) -> None:
    """The first source becomes the upper half."""
    b = g.b
    brain = f["to"] == "bf16x2"
    halves = []
    for op in i.ops[1:]:
        value = g.read(op, "f32")
        if f["relu"]:
            value = numbers.relu(g, value)
        bits = (
            numbers.to_bfloat(g, value, f["rnd"]) if brain else numbers.to_half(g, value, f["rnd"])
        )
        if f["sat"]:
            bits = _finite(g, bits, 0x7F80 if brain else 0x7C00)
        halves.append(b.cast("zext", bits, "i32"))
    g.write(i.ops[0], "b32", b.bin("or", b.bini("shl", halves[0], 16), halves[1]))


def _finite(g: Generator, bits: Value, infinity: int) -> Value:
    """Infinity becomes the greatest finite number of its sign."""
    b = g.b
    infinite = b.icmpi("eq", b.bini("and", bits, 0x7FFF), infinity)
    return b.select(infinite, b.bini("sub", bits, 1), bits)


@form(
    "cvt{rnd:.rna}{sat:.satfinite|}.tf32.f32",
    "cvt{rnd:.rn|.rz}{relu:.relu|}{sat:.satfinite|}.tf32.f32",
    operands=2,
)
def to_tf32(g: Generator, i: Instr, f: Slots) -> None:
    """Ten bits of fraction, in a 32-bit register."""
    b = g.b
    value = g.read(i.ops[1], "f32")
    if f.get("relu"):
        value = numbers.relu(g, value)
    bits = b.bitcast(value, "i32")
    if f["rnd"] == "rna":
        bits = b.bini("add", bits, 0x1000)
    elif f["rnd"] == "rn":
        last = b.bini("and", b.bini("lshr", bits, 13), 1)
        bits = b.bin("add", bits, b.bini("add", last, 0x0FFF))
    bits = b.bini("and", bits, 0xFFFFE000)
    special = b.icmpi("eq", b.bini("and", b.bitcast(value, "i32"), 0x7F800000), 0x7F800000)
    bits = b.select(special, b.bitcast(value, "i32"), bits)
    if f["sat"]:
        infinite = b.icmpi("eq", b.bini("and", bits, 0x7FFFFFFF), 0x7F800000)
        bits = b.select(infinite, b.bini("sub", bits, 0x2000), bits)
    bits = b.select(numbers.is_nan(g, value), b.const("i32", 0x7FFFFFFF), bits)
    g.write(i.ops[0], "b32", bits)
