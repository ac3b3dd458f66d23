"""Exact reference arithmetic: IEEE formats through fractions, integers through Python's.

Shares nothing with the translator.  Floating values are bit patterns; NaN results are compared as
NaN unless a row says otherwise.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

Number = Fraction | str
"""A finite value, or one of "inf", "-inf", "nan", "-0"."""


@dataclass(frozen=True)
class Format:
    """A binary floating-point format."""

    name: str
    width: int
    fraction: int

    @property
    def exponent_bits(self) -> int:
        return self.width - 1 - self.fraction

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    @functools.lru_cache(1 << 16)  # noqa: B019 - four formats, kept for the whole run
    def decode(self, bits: int) -> Number:
        size = bits & ~self.sign
        negative = bool(bits & self.sign)
        if size > self.infinity:
            return "nan"
        if size == self.infinity:
            return "-inf" if negative else "inf"
        exponent, fraction = size >> self.fraction, size & ((1 << self.fraction) - 1)
        if exponent:
            fraction |= 1 << self.fraction
        value = Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - self.bias - self.fraction)
        if not value:
            return "-0" if negative else Fraction(0)
        return -value if negative else value

    def encode(self, value: Number, mode: str = "rn") -> int:
        """Round once.  Modes: rn (ties to even), rz, rm, rp, rna (ties away)."""
        if isinstance(value, str):
            return {
                "nan": self.infinity | 1 << (self.fraction - 1),
                "inf": self.infinity,
                "-inf": self.infinity | self.sign,
                "-0": self.sign,
            }[value]
        sign = self.sign if value < 0 else 0
        size = abs(value)
        if not size:
            return 0
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if Fraction(2) ** exponent > size:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        step = Fraction(2) ** (exponent - self.fraction)
        units, rest = divmod(size, step)
        whole = int(units)
        up = {
            "rn": 2 * rest > step or (2 * rest == step and whole & 1 == 1),
            "rna": 2 * rest >= step,
            "rz": False,
            "rm": bool(rest) and value < 0,
            "rp": bool(rest) and value > 0,
        }[mode]
        whole += up
        # whole counts units of the exponent's step: adding it carries into the exponent
        bits = ((exponent + self.bias - 1) << self.fraction) + whole
        if bits >= self.infinity:
            limit = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
            bits = self.infinity - 1 if limit else self.infinity
        return sign | bits

    def flush(self, bits: int) -> int:
        """Subnormals become zeros."""
        return bits & self.sign if bits & ~self.sign < 1 << self.fraction else bits


F16 = Format("f16", 16, 10)
BF16 = Format("bf16", 16, 7)
F32 = Format("f32", 32, 23)
F64 = Format("f64", 64, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def _value(x: Number) -> Fraction:
    return Fraction(0) if isinstance(x, str) else x


def negative(x: Number) -> bool:
    return x in ("-0", "-inf") if isinstance(x, str) else x < 0


def neg(x: Number) -> Number:
    if isinstance(x, str):
        return {"nan": "nan", "inf": "-inf", "-inf": "inf", "-0": Fraction(0)}[x]
    return -x if x else "-0"


def is_infinite(x: Number) -> bool:
    return x in ("inf", "-inf")


def is_zero(x: Number) -> bool:
    return x == "-0" or x == 0


def add(x: Number, y: Number, mode: str = "rn") -> Number:
    if "nan" in (x, y):
        return "nan"
    if is_infinite(x) or is_infinite(y):
        if is_infinite(x) and is_infinite(y):
            return x if x == y else "nan"
        return x if is_infinite(x) else y
    total = _value(x) + _value(y)
    if total:
        return total
    if is_zero(x) and is_zero(y) and negative(x) == negative(y):
        return x
    return "-0" if mode == "rm" else Fraction(0)


def mul(x: Number, y: Number) -> Number:
    sign = negative(x) != negative(y)
    if "nan" in (x, y):
        return "nan"
    if is_infinite(x) or is_infinite(y):
        return "nan" if is_zero(x) or is_zero(y) else "-inf" if sign else "inf"
    if is_zero(x) or is_zero(y):
        return "-0" if sign else Fraction(0)
    return _value(x) * _value(y)


def div(x: Number, y: Number) -> Number:
    sign = negative(x) != negative(y)
    if "nan" in (x, y) or (is_infinite(x) and is_infinite(y)) or (is_zero(x) and is_zero(y)):
        return "nan"
    if is_infinite(x) or is_zero(y):
        return "-inf" if sign else "inf"
    if is_zero(x) or is_infinite(y):
        return "-0" if sign else Fraction(0)
    return _value(x) / _value(y)


def fma(x: Number, y: Number, z: Number, mode: str = "rn") -> Number:
    return add(mul(x, y), z, mode)


def sqrt(x: Number) -> Number:
    """Exact enough: the root cut after 200 bits, with a sticky bit for what was cut."""
    if x in ("nan", "inf", "-0") or is_zero(x):
        return x
    if negative(x):
        return "nan"
    value = _value(x)
    shift = 2 * (220 + max(value.denominator.bit_length(), value.numerator.bit_length()))
    scaled = (value.numerator << shift) // value.denominator
    root = isqrt(scaled)
    exact = root * root == scaled and (value.numerator << shift) % value.denominator == 0
    return (Fraction(root) + (0 if exact else Fraction(1, 3))) / (1 << (shift // 2))


def to_integral(x: Number, mode: str) -> Number:
    """Round to an integer (rni, rzi, rmi, rpi), keeping the sign of zero."""
    if isinstance(x, str):
        return x
    floor = x.numerator // x.denominator
    rest = x - floor
    if mode == "rni":
        up = 2 * rest > 1 or (2 * rest == 1 and floor & 1)
    elif mode == "rzi":
        up = x < 0 and rest != 0
    else:
        up = mode == "rpi" and rest != 0
    result = Fraction(floor + int(up))
    return result if result else ("-0" if x < 0 else Fraction(0))


_ORDER = {"inf": Fraction(10) ** 400, "-inf": -(Fraction(10) ** 400)}


def compare(op: str, x: Number, y: Number) -> bool:
    """PTX float comparison; a trailing u is true for NaN."""
    if op in ("num", "nan"):
        return ("nan" in (x, y)) == (op == "nan")
    base = op.removesuffix("u") if op not in ("ltu", "leu") else op[:2]
    if "nan" in (x, y):
        return op.endswith("u")
    a = _ORDER.get(x, Fraction(0)) if isinstance(x, str) else x
    b = _ORDER.get(y, Fraction(0)) if isinstance(y, str) else y
    return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[base]


def signed(value: int, width: int) -> int:
    """Two's complement."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)
