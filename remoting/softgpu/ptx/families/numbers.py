"""Floating-point building blocks: flushing, widening and narrowing, rounding modes.

Rules: an operation rounds once, in the mode the form names; .ftz flushes the operands and the
result of that instruction only; NaN results of conversions and of half arithmetic are the
canonical quiet NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value

if TYPE_CHECKING:
    from ..generator import Generator

DIRECTED = ("rz", "rm", "rp")


def flush32(g: Generator, value: Value) -> Value:
    """f32 subnormals become zeros of the same sign."""
    b = g.b
    bits = b.bitcast(value, "i32")
    tiny = b.icmpi("eq", b.bini("and", bits, 0x7F800000), 0)
    return b.bitcast(b.select(tiny, b.bini("and", bits, 0x80000000), bits), "float")


def flush16(g: Generator, bits: Value) -> Value:
    """The same for f16 bits."""
    b = g.b
    tiny = b.icmpi("eq", b.bini("and", bits, 0x7C00), 0)
    return b.select(tiny, b.bini("and", bits, 0x8000), bits)


def lanes16(g: Generator, value: Value) -> Value:
    """Packed pairs as 64 lanes; single halves as they are."""
    return g.b.bitcast(value, "i16")


def widened(g: Generator, value: Value, type_name: str, ftz: bool = False) -> Value:
    """The numbers as float (half types) or as they are (f32, f64); pairs give 64 lanes."""
    b = g.b
    if type_name == "f64":
        return value
    if type_name == "f32":
        return flush32(g, value) if ftz else value
    bits = lanes16(g, value)
    if type_name.startswith("bf"):
        return b.bitcast(b.bini("shl", b.cast("zext", bits, "i32"), 16), "float")
    if ftz:
        bits = flush16(g, bits)
    return b.cast("fpext", b.bitcast(bits, "half"), "float")


def is_nan(g: Generator, value: Value) -> Value:
    return g.b.fcmp("uno", value, value)


def to_half(g: Generator, value: Value, mode: str = "rn") -> Value:
    """f32 -> f16 bits."""
    b = g.b
    if mode == "rn":
        bits = b.bitcast(b.cast("fptrunc", value, "half"), "i16")
    else:
        control = {"rm": 1, "rp": 2, "rz": 3}[mode]
        b.declare("<8 x i16> @llvm.x86.vcvtps2ph.256(<8 x float>, i32)")
        pieces = []
        for part in b.parts(value, 8):
            ref = b.raw(f"call <8 x i16> @llvm.x86.vcvtps2ph.256({part.typed}, i32 {control})")
            pieces.append(Value(ref, "i16", 8))
        bits = b.join(pieces)
    return b.select(is_nan(g, value), b.const("i16", 0x7FFF, bits.lanes), bits)


def to_bfloat(g: Generator, value: Value, mode: str = "rn") -> Value:
    """f32 -> bf16 bits, by hand: the processor's conversion flushes subnormals."""
    b = g.b
    bits = b.bitcast(value, "i32")
    if mode == "rn":
        last = b.bini("and", b.bini("lshr", bits, 16), 1)
        rounded = b.bin("add", bits, b.bini("add", last, 0x7FFF))
    elif mode == "rz":
        rounded = bits
    else:
        # towards +inf (rp) or -inf (rm): away from zero for one sign, cut for the other
        negative = b.icmpi("slt", bits, 0)
        away = b.bini("add", bits, 0xFFFF)
        rounded = b.select(negative, away, bits) if mode == "rm" else b.select(negative, bits, away)
    infinite = b.icmpi("eq", b.bini("and", bits, 0x7FFFFFFF), 0x7F800000)
    rounded = b.select(infinite, bits, rounded)
    rounded = b.select(is_nan(g, value), b.const("i32", 0x7FFF0000, bits.lanes), rounded)
    return b.cast("trunc", b.bini("lshr", rounded, 16), "i16")


def odd_f32(g: Generator, value: Value) -> Value:
    """f64 -> f32 rounded to odd: a further rounding to fewer bits then rounds the exact value."""
    b = g.b
    nearest = b.cast("fptrunc", value, "float")
    back = b.cast("fpext", nearest, "double")
    bits = b.bitcast(nearest, "i32")
    size, exact_size = b.call("llvm.fabs", "double", back), b.call("llvm.fabs", "double", value)
    bits = b.select(b.fcmp("ogt", size, exact_size), b.bini("sub", bits, 1), bits)
    inexact = b.cast("zext", b.fcmp("one", back, value), "i32")
    return b.bitcast(b.bin("or", bits, inexact), "float")


def odd_sum(g: Generator, x: Value, y: Value) -> Value:
    """x + y in f64, rounded to odd (error-free sum, then the last bit follows the error)."""
    b = g.b
    total = b.bin("fadd", x, y)
    part = b.bin("fsub", total, x)
    error = b.bin("fadd", b.bin("fsub", x, b.bin("fsub", total, part)), b.bin("fsub", y, part))
    bits = b.bitcast(total, "i64")
    even = b.icmpi("eq", b.bini("and", bits, 1), 0)
    inexact = b.fcmp("one", error, b.fconst("double", 0.0, error.lanes))
    same_sign = b.icmpi("sge", b.bin("xor", bits, b.bitcast(error, "i64")), 0)
    step = b.select(same_sign, b.const("i64", 1, bits.lanes), b.const("i64", -1, bits.lanes))
    moved = b.bin("add", bits, step)
    return b.bitcast(b.select(b.bin("and", even, inexact), moved, bits), "double")


def narrowed(g: Generator, value: Value, type_name: str) -> Value:
    """Round f32, or f64 for half types, to the destination; the result is bits for half types."""
    if type_name in ("f32", "f64"):
        return value
    if value.elem == "double":
        value = odd_f32(g, value)
    return to_bfloat(g, value) if type_name.startswith("bf") else to_half(g, value)


def directed(g: Generator, op: str, mode: str, type_name: str, *args: Value) -> Value:
    """An f32 or f64 operation in a rounding mode that is not the nearest (device helper)."""
    elem = "float" if type_name == "f32" else "double"
    out = g.temp(elem)
    pointers = [f"ptr {g.spill(a)}" for a in args]
    g.helper(f"{op}_{mode}_{type_name}", *pointers, f"ptr {out}")
    return g.b.load(elem, out, align=64)


def saturate(g: Generator, value: Value) -> Value:
    """Clamp to [0, 1]; NaN gives +0."""
    b = g.b
    zero, one = (b.fconst(value.elem, v, value.lanes) for v in (0.0, 1.0))
    low = b.call("llvm.maximumnum", value.elem, value, zero)
    return b.call("llvm.minimumnum", value.elem, low, one)


def relu(g: Generator, value: Value) -> Value:
    """Negative numbers become +0; NaN stays."""
    b = g.b
    negative = b.fcmp("ole", value, b.fconst(value.elem, 0.0, value.lanes))
    return b.select(negative, b.fconst(value.elem, 0.0, value.lanes), value)


def canonical(g: Generator, value: Value) -> Value:
    """NaN as 0x7fffffff (f32); f64 keeps its NaN."""
    if value.elem != "float":
        return value
    b = g.b
    nan = b.bitcast(b.const("i32", 0x7FFFFFFF, value.lanes), "float")
    return b.select(is_nan(g, value), nan, value)
