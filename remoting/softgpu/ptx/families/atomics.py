"""atom and red: the range check gives host addresses, then a device helper does lane after lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value
from ..forms import Slots, form
from ..generator import ELEM, type_bits
from ..model import Instr, Operand, Vec
from .memory import address, check_policy

if TYPE_CHECKING:
    from ..generator import Generator

_ORDER = "{.relaxed|.acquire|.release|.acq_rel|}"
_ORDER_RED = "{.relaxed|.release|}"
_SCOPE = "{.cta|.cluster|.gpu|.sys|}"
_SPACE = ("{space:.global|}", "{space:.shared}{::cta|}")
_OUTER = "{space:.global|}"
_POLICY = "{hint:.L2::cache_hint}"

# the order of older inline assembly
_SPACE_FIRST = "{space:.global|.shared}{.cta|.gpu|.sys}"
# Triton writes the space first, then scope and order, or order and scope
_TRITON = (
    "{space:.global|.shared}{.cta|.gpu|.sys}{.relaxed|.acquire|.release|.acq_rel}",
    "{space:.global|.shared}{.relaxed|.acquire|.release|.acq_rel}{.cta|.gpu|.sys}",
)

#: (operation, types)
_OPERATIONS = (
    ("{op:.and|.or|.xor}", "{type:.b32|.b64}"),
    ("{op:.add}", "{type:.u32|.s32|.u64|.f32|.f64}"),
    ("{op:.add}.noftz", "{type:.f16|.f16x2|.bf16|.bf16x2}"),
    ("{op:.inc|.dec}", "{type:.u32}"),
    ("{op:.min|.max}", "{type:.u32|.s32|.u64|.s64}"),
)
_ATOM_ONLY = ("{op:.exch}", "{type:.b32|.b64|.b128}")
_CAS = ("{op:.cas}", "{type:.b16|.b32|.b64|.b128}")
#: Several neighbouring elements, each of them atomic.
_VECTORS = (
    ("{op:.add}", "{vec:.v2|.v4}{type:.f32}"),
    ("{op:.add|.min|.max}.noftz", "{vec:.v2|.v4|.v8}{type:.f16|.bf16}"),
    ("{op:.add|.min|.max}.noftz", "{vec:.v2|.v4}{type:.f16x2|.bf16x2}"),
)


def _forms(opcode: str, order: str, operations: tuple[tuple[str, str], ...]) -> list[str]:
    heads = [
        *(order + _SCOPE + space for space in _SPACE),
        _SPACE_FIRST,
        *(_TRITON if opcode == "atom" else ()),
    ]
    result = [f"{opcode}{head}{op}{types}" for head in heads for op, types in operations]
    outer = order + _SCOPE + _OUTER
    return result + [f"{opcode}{outer}{op}{_POLICY}{types}" for op, types in operations]


def _vector_forms(opcode: str, order: str) -> list[str]:
    hint = _POLICY.replace("}", "|}")
    return [f"{opcode}{order}{_SCOPE}{_OUTER}{op}{hint}{types}" for op, types in _VECTORS]


def _run(
    g: Generator, where: Operand, inputs: list[list[Value]], op: str, type_name: str, space: str
) -> list[Value]:
    """The old values of neighbouring elements; ``inputs``: for each element its operands."""
    b = g.b
    window, lanes = address(g, where, space)
    bytes_ = type_bits(type_name) // 8
    resolved = g.temp("i64")
    spilled = g.spill(b.cast("zext", lanes, "i64"))
    g.helper(
        "resolve",
        "ptr %env",
        f"i32 {abi.SPACES[window]}",
        f"i32 {bytes_ * len(inputs)}",
        f"ptr {spilled}",
        f"i32 {g.mask}",
        f"ptr {resolved}",
    )
    kind = type_name
    if op in ("add", "inc", "dec"):
        kind = kind.replace("s", "u") if kind in ("s32", "s64") else kind
    elem = f"i{type_bits(type_name)}"
    family = "shared" if window == "shared" else "atom"
    first = b.load("i64", resolved, align=64)
    results = []
    for k, operands in enumerate(inputs):
        places = g.spill(b.bini("add", first, k * bytes_)) if k else resolved
        pointers = [f"ptr {g.spill(value)}" for value in operands]
        old = g.temp(elem)
        arguments = (f"i32 {g.mask}", f"ptr {places}", *pointers, f"ptr {old}")
        g.helper(f"{family}_{op}_{kind}", *arguments)
        results.append(b.load(elem, old, align=64))
    return results


def _input(g: Generator, op: Operand, type_name: str) -> Value:
    value = g.read(op, type_name)
    return g.b.bitcast(value, f"i{value.bits}") if ELEM[type_name] in ("float", "double") else value


# The order and scope may also follow the operation: cooperative groups write it so.
_LATE_ORDER = "{.relaxed|.acquire|.release|.acq_rel}{.cta|.gpu|.sys}"
_ADD_LATE = f"atom{{op:.add}}{_LATE_ORDER}{{space:}}{{type:.u32|.s32|.u64}}"


@form(_ADD_LATE, *_forms("atom", _ORDER, (*_OPERATIONS, _ATOM_ONLY)), operands=(3, 4))
def atom(g: Generator, i: Instr, f: Slots) -> None:
    check_policy(g, i, f, 3)
    given = [[_input(g, i.ops[2], f["type"])]]
    (old,) = _run(g, i.ops[1], given, f["op"], f["type"], f["space"])
    g.write(i.ops[0], f["type"], old)


@form(*_forms("atom", _ORDER, (_CAS,)), operands=(4, 5))
def compare_and_swap(g: Generator, i: Instr, f: Slots) -> None:
    check_policy(g, i, f, 4)
    given = [[_input(g, op, f["type"]) for op in i.ops[2:4]]]
    (old,) = _run(g, i.ops[1], given, "cas", f["type"], f["space"])
    g.write(i.ops[0], f["type"], old)


@form(*_forms("red", _ORDER_RED, _OPERATIONS), operands=(2, 3), writes=False)
def red(g: Generator, i: Instr, f: Slots) -> None:
    check_policy(g, i, f, 2)
    _run(g, i.ops[0], [[_input(g, i.ops[1], f["type"])]], f["op"], f["type"], f["space"])


def _elements(g: Generator, op: Operand, f: Slots) -> tuple[Operand, ...]:
    count = int(f["vec"][1:])
    if not isinstance(op, Vec) or len(op.items) != count:
        raise g.invalid(f"needs {count} elements")
    return op.items


@form(*_vector_forms("atom", _ORDER), operands=(3, 4))
def atom_vector(g: Generator, i: Instr, f: Slots) -> None:
    check_policy(g, i, f, 3)
    given = [[_input(g, item, f["type"])] for item in _elements(g, i.ops[2], f)]
    targets = _elements(g, i.ops[0], f)
    olds = _run(g, i.ops[1], given, f["op"], f["type"], f["space"])
    for target, old in zip(targets, olds, strict=True):
        g.write(target, f["type"], old)


@form(*_vector_forms("red", _ORDER_RED), operands=(2, 3), writes=False)
def red_vector(g: Generator, i: Instr, f: Slots) -> None:
    check_policy(g, i, f, 2)
    given = [[_input(g, item, f["type"])] for item in _elements(g, i.ops[1], f)]
    _run(g, i.ops[0], given, f["op"], f["type"], f["space"])
