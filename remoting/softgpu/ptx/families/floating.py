"""f32 and f64 arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr, Operand
from . import numbers

if TYPE_CHECKING:
    from ..generator import Generator

_RND = "{rnd:.rn|.rz|.rm|.rp|}"
_MUST = "{rnd:.rn|.rz|.rm|.rp}"
_F32 = "{ftz:.ftz|}{sat:.sat|}{type:.f32}"
_OPCODES = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def inputs(
    g: Generator, i: Instr, f: Slots, first: int = 1, last: int | None = None
) -> list[Value]:
    """Operands, flushed when the form says so."""
    return [_input(g, op, f["type"], bool(f.get("ftz"))) for op in i.ops[first:last]]


def _input(g: Generator, op: Operand, type_name: str, ftz: bool) -> Value:
    return numbers.widened(g, g.read(op, type_name), type_name, ftz)


def finish(g: Generator, i: Instr, f: Slots, value: Value) -> None:
    """Flush, saturate, write."""
    if f.get("ftz"):
        value = numbers.flush32(g, value)
    if f.get("sat"):
        value = numbers.saturate(g, value)
    g.write(i.ops[0], f["type"], value)


def _binary(g: Generator, opcode: str, mode: str, type_name: str, x: Value, y: Value) -> Value:
    if mode not in numbers.DIRECTED:
        return g.b.bin(_OPCODES[opcode], x, y)
    if opcode == "sub":
        opcode, y = "add", g.b.fneg(y)
    return numbers.directed(g, opcode, mode, type_name, x, y)


@form(
    *(f"{op}{_RND}{tail}" for op in ("add", "sub", "mul") for tail in (_F32, "{type:.f64}")),
    operands=3,
)
def arithmetic(g: Generator, i: Instr, f: Slots) -> None:
    x, y = inputs(g, i, f)
    finish(g, i, f, _binary(g, i.opcode, f["rnd"], f["type"], x, y))


@form(
    *(f"{op}{_RND}{{sat:.sat|}}{{type:.f32}}{{from:.f16|.bf16}}" for op in ("add", "sub")),
    operands=3,
)
def mixed_arithmetic(g: Generator, i: Instr, f: Slots) -> None:
    """The first operand is a half, the other and the result are f32."""
    x = numbers.widened(g, g.read(i.ops[1], f["from"]), f["from"])
    y = g.read(i.ops[2], "f32")
    finish(g, i, f, _binary(g, i.opcode, f["rnd"], "f32", x, y))


@form(f"fma{_MUST}{{sat:.sat|}}{{type:.f32}}{{from:.f16|.bf16}}", operands=4)
def mixed_fma(g: Generator, i: Instr, f: Slots) -> None:
    x, y = (numbers.widened(g, g.read(op, f["from"]), f["from"]) for op in i.ops[1:3])
    finish(g, i, f, _fused(g, f["rnd"], "f32", x, y, g.read(i.ops[3], "f32")))


def _fused(g: Generator, mode: str, type_name: str, x: Value, y: Value, z: Value) -> Value:
    if mode in numbers.DIRECTED:
        return numbers.directed(g, "fma", mode, type_name, x, y, z)
    return g.b.call("llvm.fma", x.elem, x, y, z)


@form(f"fma{_MUST}{_F32}", f"fma{_MUST}{{type:.f64}}", operands=4)
@form(f"mad{_RND}{_F32}", f"mad{_MUST}{{type:.f64}}", operands=4)
def fused(g: Generator, i: Instr, f: Slots) -> None:
    x, y, z = inputs(g, i, f)
    finish(g, i, f, _fused(g, f["rnd"], f["type"], x, y, z))


@form(
    "div{rnd:.rn|.rz|.rm|.rp|.approx|.full|}{ftz:.ftz|}{type:.f32}",
    f"div{_RND}{{type:.f64}}",
    operands=3,
)
def divide(g: Generator, i: Instr, f: Slots) -> None:
    """The approximate forms are rounded correctly, which is within what they promise."""
    x, y = inputs(g, i, f)
    finish(g, i, f, _binary(g, "div", f["rnd"], f["type"], x, y))


@form(
    "rcp{rnd:.approx|.rn|.rz|.rm|.rp}{ftz:.ftz|}{type:.f32}", f"rcp{_MUST}{{type:.f64}}", operands=2
)
def reciprocal(g: Generator, i: Instr, f: Slots) -> None:
    (x,) = inputs(g, i, f)
    if f["rnd"] in numbers.DIRECTED:
        value = numbers.directed(g, "rcp", f["rnd"], f["type"], x)
    else:
        value = g.b.bin("fdiv", g.b.fconst(x.elem, 1.0), x)
    finish(g, i, f, value)


@form(
    "sqrt{rnd:.approx|.rn|.rz|.rm|.rp}{ftz:.ftz|}{type:.f32}",
    f"sqrt{_MUST}{{type:.f64}}",
    operands=2,
)
def square_root(g: Generator, i: Instr, f: Slots) -> None:
    (x,) = inputs(g, i, f)
    if f["rnd"] in numbers.DIRECTED:
        value = numbers.directed(g, "sqrt", f["rnd"], f["type"], x)
    else:
        value = g.b.call("llvm.sqrt", x.elem, x)
    finish(g, i, f, value)


@form("rsqrt.approx{ftz:.ftz|}{type:.f32}", "rsqrt.approx{type:.f64}", operands=2)
def reciprocal_root(g: Generator, i: Instr, f: Slots) -> None:
    (x,) = inputs(g, i, f)
    root = g.b.call("llvm.sqrt", x.elem, x)
    finish(g, i, f, g.b.bin("fdiv", g.b.fconst(x.elem, 1.0), root))


@form("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", operands=2)
def high_half(g: Generator, i: Instr, f: Slots) -> None:
    """Only the upper word of operand and result count; subnormals are flushed."""
    b = g.b

    def flush(value: Value) -> Value:
        bits = b.bitcast(value, "i64")
        tiny = b.icmpi("eq", b.bini("and", bits, 0x7FF0000000000000), 0)
        bits = b.select(tiny, b.bini("and", bits, 1 << 63), bits)
        return b.bitcast(bits, "double")

    raw = g.read(i.ops[1], "f64")
    upper = b.bitcast(b.bini("and", b.bitcast(raw, "i64"), -1 << 32), "double")
    # a NaN whose payload is in the lower word must stay one
    x = flush(b.select(numbers.is_nan(g, raw), raw, upper))
    if i.opcode == "rsqrt":
        x = b.call("llvm.sqrt", "double", x)
    result = flush(b.bin("fdiv", b.fconst("double", 1.0), x))
    cut = b.bitcast(b.bini("and", b.bitcast(result, "i64"), -1 << 32), "double")
    g.write(
        i.ops[0], "f64", b.select(numbers.is_nan(g, result), b.fconst("double", float("nan")), cut)
    )


# ---------------------------------------------------------------------- signs and extremes
@form(
    "abs{ftz:.ftz|}{type:.f32}",
    "neg{ftz:.ftz|}{type:.f32}",
    "abs{type:.f64}",
    "neg{type:.f64}",
    operands=2,
)
def sign_change(g: Generator, i: Instr, f: Slots) -> None:
    (x,) = inputs(g, i, f)
    g.write(
        i.ops[0], f["type"], g.b.call("llvm.fabs", x.elem, x) if i.opcode == "abs" else g.b.fneg(x)
    )


@form("copysign{type:.f32|.f64}", operands=3)
def copy_sign(g: Generator, i: Instr, f: Slots) -> None:
    """The magnitude of the second operand with the sign of the first."""
    sign, size = (g.read(op, f["type"]) for op in i.ops[1:])
    g.write(i.ops[0], f["type"], g.b.call("llvm.copysign", size.elem, size, sign))


def extreme(g: Generator, opcode: str, nan: bool, xorsign: bool, values: list[Value]) -> Value:
    """min or max: -0 < +0; a NaN loses, or wins with .NaN."""
    b = g.b
    signs: Value | None = None
    if xorsign:
        bits = "i32" if values[0].elem == "float" else "i64"
        signs = b.bin("xor", b.bitcast(values[0], bits), b.bitcast(values[1], bits))
        values = [b.call("llvm.fabs", v.elem, v) for v in values]
    result = values[0]
    for other in values[1:]:
        result = b.call(f"llvm.{opcode}imum{'' if nan else 'num'}", result.elem, result, other)
    if signs is not None:
        result = b.call("llvm.copysign", result.elem, result, b.bitcast(signs, result.elem))
    return numbers.canonical(g, result)


@form(
    *(
        f"{op}{{ftz:.ftz|}}{{nan:.NaN|}}{{xorsign:.xorsign.abs|}}{{type:.f32}}"
        for op in ("min", "max")
    ),
    "min{type:.f64}",
    "max{type:.f64}",
    operands=3,
)
def min_max(g: Generator, i: Instr, f: Slots) -> None:
    result = extreme(g, i.opcode, bool(f.get("nan")), bool(f.get("xorsign")), inputs(g, i, f))
    g.write(i.ops[0], f["type"], result)


_CLASSES = {
    "finite": 0x1F8,
    "infinite": 0x204,
    "number": 0x3FC,
    "notanumber": 0x003,
    "normal": 0x108,
    "subnormal": 0x090,
}


@form(
    "testp{test:.finite|.infinite|.number|.notanumber|.normal|.subnormal}{type:.f32|.f64}",
    operands=2,
)
def test_property(g: Generator, i: Instr, f: Slots) -> None:
    value = g.read(i.ops[1], f["type"])
    g.write(
        i.ops[0],
        "pred",
        g.b.call("llvm.is.fpclass", "i1", value, extra=f"i32 {_CLASSES[f['test']]}"),
    )


# ---------------------------------------------------------------------- pairs of f32
@form(*(f"{op}{_RND}{{ftz:.ftz|}}.f32x2" for op in ("add", "sub", "mul")), operands=3)
@form(f"fma{_MUST}{{ftz:.ftz|}}.f32x2", operands=4)
def pair_arithmetic(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    whole = [b.bitcast(g.read(op, "b64"), "float") for op in i.ops[1:]]
    halves = []
    for k in range(2):
        args = [b.shuffle(v, None, list(range(k, 64, 2))) for v in whole]
        if f["ftz"]:
            args = [numbers.flush32(g, v) for v in args]
        if i.opcode == "fma":
            value = _fused(g, f["rnd"], "f32", *args)
        else:
            value = _binary(g, i.opcode, f["rnd"], "f32", *args)
        halves.append(numbers.flush32(g, value) if f["ftz"] else value)
    both = b.shuffle(halves[0], halves[1], [k // 2 + 32 * (k % 2) for k in range(64)])
    g.write(i.ops[0], "b64", b.bitcast(both, "i64"))
