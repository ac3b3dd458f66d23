"""Comparison and selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr, Operand, Pair
from . import numbers

if TYPE_CHECKING:
    from ..generator import Generator

_BOOL = "{bool:.and|.or|.xor|}"
_ORDER = ".lt|.le|.gt|.ge"
_EQUAL = "{cmp:.eq|.ne}{type:.b16|.b32|.b64}"
_SIGNED = f"{{cmp:.eq|.ne|{_ORDER}}}{{type:.s16|.s32|.s64}}"
_UNSIGNED = f"{{cmp:.eq|.ne|{_ORDER}|.lo|.ls|.hi|.hs}}{{type:.u16|.u32|.u64}}"
_FLOAT_CMP = f"{{cmp:.eq|.ne|{_ORDER}|.equ|.neu|.ltu|.leu|.gtu|.geu|.num|.nan}}"
_ALIAS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_FLOATS = "{type:.f16|.bf16|.f32|.f64}"
_PAIRS = "{type:.f16x2|.bf16x2}"


def _with_bool(pattern: str) -> str:
    """``{cmp}{type}`` with the optional operator (and .ftz for floats) between."""
    return pattern.replace("}{type:", "}" + _BOOL + "{type:", 1)


def _compare(g: Generator, cmp: str, type_name: str, ftz: bool, x: Operand, y: Operand) -> Value:
    """Booleans; for pairs of halves 64 of them."""
    b = g.b
    if "f" in type_name:
        a, c = (numbers.widened(g, g.read(op, type_name), type_name, ftz) for op in (x, y))
        if cmp in ("num", "nan"):
            return b.fcmp("ord" if cmp == "num" else "uno", a, c)
        ordered = not cmp.endswith("u")
        return b.fcmp(
            ("o" + cmp) if ordered and cmp != "ne" else "one" if cmp == "ne" else "u" + cmp[:2],
            a,
            c,
        )
    a, c = g.read(x, type_name), g.read(y, type_name)
    if cmp in ("eq", "ne"):
        return b.icmp(cmp, a, c)
    return b.icmp(("s" if type_name.startswith("s") else "u") + _ALIAS.get(cmp, cmp), a, c)


def _float_forms(opcode: str, destination: str = "") -> list[str]:
    return [
        f"{opcode}{_FLOAT_CMP}{_BOOL}{{ftz:.ftz|}}{destination}{types}"
        for types in ("{type:.f16|.f32}",)
    ] + [f"{opcode}{_FLOAT_CMP}{_BOOL}{destination}{{type:.bf16|.f64}}"]


def _check_bool(g: Generator, i: Instr, f: Slots) -> None:
    if bool(f["bool"]) != (len(i.ops) == 4):
        raise g.invalid("wrong number of operands")


@form(
    *(f"setp{_with_bool(p)}" for p in (_EQUAL, _SIGNED, _UNSIGNED)),
    *_float_forms("setp"),
    operands=(3, 4),
)
def set_predicate(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    _check_bool(g, i, f)
    result = _compare(g, f["cmp"], f["type"], bool(f.get("ftz")), i.ops[1], i.ops[2])
    dest = i.ops[0]
    second = b.invert(result) if isinstance(dest, Pair) else None
    if f["bool"]:
        other = g.read(i.ops[3], "pred")
        result = b.bin(f["bool"], result, other)
        second = b.bin(f["bool"], second, other) if second is not None else None
    if isinstance(dest, Pair):
        assert second is not None
        g.write(dest.first, "pred", result)
        g.write(dest.second, "pred", second)
    else:
        g.write(dest, "pred", result)


def _halves(g: Generator, both: Value) -> tuple[Value, Value]:
    low = g.b.shuffle(both, None, list(range(0, 64, 2)))
    return low, g.b.shuffle(both, None, list(range(1, 64, 2)))


@form(
    f"setp{_FLOAT_CMP}{_BOOL}{{ftz:.ftz|}}{{type:.f16x2}}",
    f"setp{_FLOAT_CMP}{_BOOL}{{type:.bf16x2}}",
    operands=(3, 4),
)
def set_predicate_pair(g: Generator, i: Instr, f: Slots) -> None:
    """One predicate for each half."""
    _check_bool(g, i, f)
    dest = i.ops[0]
    if not isinstance(dest, Pair):
        raise g.invalid("needs two destinations")
    results = _halves(g, _compare(g, f["cmp"], f["type"], bool(f.get("ftz")), i.ops[1], i.ops[2]))
    if f["bool"]:
        other = g.read(i.ops[3], "pred")
        results = (g.b.bin(f["bool"], results[0], other), g.b.bin(f["bool"], results[1], other))
    g.write(dest.first, "pred", results[0])
    g.write(dest.second, "pred", results[1])


_SET_DEST = "{dest:.u32|.s32|.f32}"


def _set_integers(pattern: str) -> str:
    return "set" + pattern.replace("}{type:", "}" + _BOOL + _SET_DEST + "{type:", 1)


@form(
    *(_set_integers(p) for p in (_EQUAL, _SIGNED, _UNSIGNED)),
    *_float_forms("set", _SET_DEST),
    f"set{_FLOAT_CMP}{_BOOL}{{ftz:.ftz|}}{{dest:.f16}}{{type:.f16}}",
    f"set{_FLOAT_CMP}{_BOOL}{{dest:.bf16}}{{type:.bf16}}",
    f"set{_FLOAT_CMP}{_BOOL}{{ftz:.ftz|}}{{dest:.u16|.s16}}{{type:.f16}}",
    operands=(3, 4),
)
def set_value(g: Generator, i: Instr, f: Slots) -> None:
    """1.0 or all ones where true."""
    b = g.b
    _check_bool(g, i, f)
    result = _compare(g, f["cmp"], f["type"], bool(f.get("ftz")), i.ops[1], i.ops[2])
    if f["bool"]:
        result = b.bin(f["bool"], result, g.read(i.ops[3], "pred"))
    true = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(f["dest"], -1)
    elem = "i16" if f["dest"].endswith("16") else "i32"
    value = b.select(result, b.const(elem, true), b.const(elem, 0))
    g.write(i.ops[0], f["dest"], value)


@form(
    f"set{_FLOAT_CMP}{_BOOL}{{ftz:.ftz|}}{{dest:.f16x2|.u32|.s32}}{{type:.f16x2}}",
    f"set{_FLOAT_CMP}{_BOOL}{{dest:.bf16x2|.u32|.s32}}{{type:.bf16x2}}",
    operands=(3, 4),
)
def set_value_pair(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    _check_bool(g, i, f)
    result = _compare(g, f["cmp"], f["type"], bool(f.get("ftz")), i.ops[1], i.ops[2])
    if f["bool"]:
        other = b.shuffle(g.read(i.ops[3], "pred"), None, [k // 2 for k in range(64)])
        result = b.bin(f["bool"], result, other)
    true = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(f["dest"], -1)
    value = b.select(result, b.const("i16", true, 64), b.const("i16", 0, 64))
    g.write(i.ops[0], "b32", b.bitcast(value, "i32"))


_ANY = "{type:.b16|.b32|.b64|.u16|.u32|.u64|.s16|.s32|.s64|.f32|.f64}"


@form(f"selp{_ANY}", operands=4)
def select(g: Generator, i: Instr, f: Slots) -> None:
    a, b = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    g.write(i.ops[0], f["type"], g.b.select(g.read(i.ops[3], "pred"), a, b))


@form(f"slct{_ANY}.s32", f"slct{{ftz:.ftz|}}{_ANY}{{by:.f32}}", operands=4)
def select_by_sign(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    if f.get("by"):
        sign = numbers.widened(g, g.read(i.ops[3], "f32"), "f32", bool(f["ftz"]))
        condition = b.fcmp("oge", sign, b.fconst("float", 0.0))
    else:
        condition = b.icmpi("sge", g.read(i.ops[3], "s32"), 0)
    x, y = g.read(i.ops[1], f["type"]), g.read(i.ops[2], f["type"])
    g.write(i.ops[0], f["type"], b.select(condition, x, y))
