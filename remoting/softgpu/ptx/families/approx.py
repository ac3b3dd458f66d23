"""ex2, lg2, sin, cos, tanh: the approximate functions, as polynomials.

All stay within the errors that PTX allows (measured in the tests), and give the same bits on every
CPU; they are not a GPU's bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr
from . import numbers
from .floating import finish, inputs

if TYPE_CHECKING:
    from ..generator import Generator

# Chebyshev fits, coefficients rounded to f32, lowest power first.
#: 2**x on [-1/2, 1/2]
_EX2 = (
    1.0,
    0.6931471824645996,
    0.24022650718688965,
    0.055503569543361664,
    0.009618056938052177,
    0.0013390866806730628,
    0.00015461447765119374,
)
#: log2(1 + x) / x on [sqrt(1/2) - 1, sqrt(2) - 1]
_LG2 = (
    1.4426950216293335,
    -0.7213475108146667,
    0.4808979034423828,
    -0.360674113035202,
    0.2885761857032776,
    -0.24046902358531952,
    0.20504458248615265,
    -0.17888294160366058,
    0.1720258891582489,
    -0.16918815672397614,
    0.09724100679159164,
)
#: (sin(x) - x) / x**3 and (cos(x) - 1 + x**2/2) / x**4 in x**2, to a little over pi/4
_SIN = (-0.1666666716337204, 0.008333331905305386, -0.00019839961896650493, 2.7234186745772604e-06)
_COS = (0.0416666679084301, -0.0013888886896893382, 2.4800474420771934e-05, -2.7285904025120544e-07)
#: (tanh(x) - x) / x**3 in x**2, to 0.7
_TANH = (
    -0.33333322405815125,
    0.1333208978176117,
    -0.05375875532627106,
    0.02060709148645401,
    -0.0055892146192491055,
)

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17)


def _fma(g: Generator, a: Value, b: Value, c: Value) -> Value:
    return g.b.call("llvm.fma", a.elem, a, b, c)


def _poly(g: Generator, x: Value, coefficients: tuple[float, ...]) -> Value:
    result = g.b.fconst(x.elem, coefficients[-1], x.lanes)
    for c in reversed(coefficients[:-1]):
        result = _fma(g, result, x, g.b.fconst(x.elem, c, x.lanes))
    return result


def ex2(g: Generator, x: Value) -> Value:
    """2**x with gradual underflow."""
    b = g.b

    def const(value: float) -> Value:
        return b.fconst("float", value, x.lanes)

    limited = b.call("llvm.minimumnum", "float", x, const(130.0))
    limited = b.call("llvm.maximumnum", "float", limited, const(-160.0))
    whole = b.call("llvm.roundeven", "float", limited)
    result = _poly(g, b.bin("fsub", limited, whole), _EX2)
    power = b.cast("fptosi", whole, "i32")
    first = b.bini("ashr", power, 1)
    # the scale is applied in two steps, so that results below the normal range are rounded once
    for part in (first, b.bin("sub", power, first)):
        scale = b.bitcast(b.bini("shl", b.bini("add", part, 127), 23), "float")
        result = b.bin("fmul", result, scale)
    return b.select(numbers.is_nan(g, x), x, result)


def lg2(g: Generator, x: Value) -> Value:
    """log2(x); subnormals are scaled first."""
    b = g.b
    bits = b.bitcast(x, "i32")
    tiny = b.icmp("ult", bits, b.const("i32", 0x00800000, x.lanes))
    scaled = b.select(tiny, b.bin("fmul", x, b.fconst("float", 2.0**24, x.lanes)), x)
    bits = b.bitcast(scaled, "i32")
    power = b.bini("ashr", b.bini("sub", bits, 0x3F3504F3), 23)
    mantissa = b.bitcast(b.bin("sub", bits, b.bini("shl", power, 23)), "float")
    rest = b.bin("fsub", mantissa, b.fconst("float", 1.0, x.lanes))
    small = b.bin("fmul", rest, _poly(g, rest, _LG2))
    zero = b.fconst("float", 0.0, x.lanes)
    whole = b.bin(
        "fadd",
        b.cast("sitofp", power, "float"),
        b.select(tiny, b.fconst("float", -24.0, x.lanes), zero),
    )
    result = b.bin("fadd", small, whole)
    infinity = b.bitcast(b.const("i32", 0x7F800000, x.lanes), "float")
    result = b.select(
        b.fcmp("oeq", x, zero), b.bitcast(b.const("i32", 0xFF800000, x.lanes), "float"), result
    )
    nan = b.bitcast(b.const("i32", 0x7FFFFFFF, x.lanes), "float")
    result = b.select(b.fcmp("ult", x, zero), nan, result)
    return b.select(b.fcmp("oeq", x, infinity), infinity, result)


def _circle(g: Generator, x: Value, quarter: int) -> Value:
    """sin(x + quarter * pi/2), reduced in f64."""
    b = g.b
    wide = b.cast("fpext", x, "double")

    def const(value: float) -> Value:
        return b.fconst("double", value, x.lanes)

    turns = b.call("llvm.roundeven", "double", b.bin("fmul", wide, const(_TWO_OVER_PI)))
    rest = _fma(g, turns, const(-_HALF_PI[0]), wide)
    rest = _fma(g, turns, const(-_HALF_PI[1]), rest)
    fourth = b.call("llvm.floor", "double", b.bin("fmul", turns, const(0.25)))
    quadrant = _fma(g, fourth, const(-4.0), turns)
    quadrant = b.select(b.fcmp("ord", quadrant, quadrant), quadrant, const(0.0))
    place = b.bini("add", b.cast("fptosi", quadrant, "i32"), quarter)
    small = b.cast("fptrunc", rest, "float")
    square = b.bin("fmul", small, small)
    sine = _fma(g, b.bin("fmul", small, square), _poly(g, square, _SIN), small)
    one = b.fconst("float", 1.0, x.lanes)
    half = _fma(g, square, b.fconst("float", -0.5, x.lanes), one)
    cosine = _fma(g, b.bin("fmul", square, square), _poly(g, square, _COS), half)
    result = b.select(b.icmpi("ne", b.bini("and", place, 1), 0), cosine, sine)
    result = b.select(b.icmpi("ne", b.bini("and", place, 2), 0), b.fneg(result), result)
    # far out the reduction has no correct digits left: stay in range at least
    limited = b.call("llvm.minimumnum", "float", result, one)
    limited = b.call("llvm.maximumnum", "float", limited, b.fconst("float", -1.0, x.lanes))
    nan = b.bitcast(b.const("i32", 0x7FFFFFFF, x.lanes), "float")
    return b.select(b.fcmp("uno", rest, rest), nan, limited)


def sine(g: Generator, x: Value) -> Value:
    """sin(x), keeping the sign of zero."""
    b = g.b
    zero = b.fcmp("oeq", x, b.fconst("float", 0.0, x.lanes))
    return b.select(zero, x, _circle(g, x, 0))


def cosine(g: Generator, x: Value) -> Value:
    return _circle(g, x, 1)


def tanh(g: Generator, x: Value) -> Value:
    """tanh(x): an odd polynomial near zero, 1 - 2 / (e**2x + 1) elsewhere."""
    b = g.b
    size = b.call("llvm.fabs", "float", x)
    square = b.bin("fmul", x, x)
    near = _fma(g, b.bin("fmul", x, square), _poly(g, square, _TANH), x)
    power = ex2(g, b.bin("fmul", size, b.fconst("float", 2.885390043258667, x.lanes)))
    one = b.fconst("float", 1.0, x.lanes)
    two = b.fconst("float", 2.0, x.lanes)
    far = b.bin("fsub", one, b.bin("fdiv", two, b.bin("fadd", power, one)))
    far = b.call("llvm.copysign", "float", far, x)
    result = b.select(b.fcmp("olt", size, b.fconst("float", 0.625, x.lanes)), near, far)
    return b.select(numbers.is_nan(g, x), x, result)


_FUNCTIONS: dict[str, Callable[[Generator, Value], Value]] = {
    "ex2": ex2, "lg2": lg2, "sin": sine, "cos": cosine, "tanh": tanh,
}  # fmt: skip


@form(
    *(f"{op}.approx{{ftz:.ftz|}}{{type:.f32}}" for op in ("ex2", "lg2", "sin", "cos")),
    "tanh.approx{type:.f32}",
    operands=2,
)
def approximate(g: Generator, i: Instr, f: Slots) -> None:
    (x,) = inputs(g, i, f)
    finish(g, i, f, numbers.canonical(g, _FUNCTIONS[i.opcode](g, x)))


@form(
    "ex2.approx{type:.f16|.f16x2}",
    "ex2.approx.ftz{type:.bf16|.bf16x2}",
    "tanh.approx{type:.f16|.f16x2|.bf16|.bf16x2}",
    operands=2,
)
def approximate_half(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x = numbers.widened(g, g.read(i.ops[1], f["type"]), f["type"])
    brain = f["type"].startswith("bf")
    if brain and i.opcode == "ex2":
        x = numbers.flush32(g, x)
    value = _FUNCTIONS[i.opcode](g, x)
    if brain and i.opcode == "ex2":
        value = numbers.flush32(g, value)
    bits = numbers.narrowed(g, value, f["type"])
    g.write(i.ops[0], f["type"], b.bitcast(bits, "i32" if f["type"].endswith("x2") else "i16"))
