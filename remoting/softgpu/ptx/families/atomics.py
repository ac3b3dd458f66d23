"""atom and red: the range check gives host addresses, then a device helper does lane after lane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value
from ..forms import Slots, form
from ..generator import ELEM, type_bits
from ..model import Instr, Operand
from .memory import address

if TYPE_CHECKING:
    from ..generator import Generator

_ORDER = "{.relaxed|.acquire|.release|.acq_rel|}"
_ORDER_RED = "{.relaxed|.release|}"
_SCOPE = "{.cta|.cluster|.gpu|.sys|}"
_SPACE = "{space:.global|.shared|.shared::cta|}"

_USUAL = _ORDER + _SCOPE + _SPACE
# the order of older inline assembly
_SPACE_FIRST = "{space:.global|.shared}{.cta|.gpu|.sys}"
# Triton writes the space first, then scope and order, or order and scope
_TRITON = (
    "{space:.global|.shared}{.cta|.gpu|.sys}{.relaxed|.acquire|.release|.acq_rel}",
    "{space:.global|.shared}{.relaxed|.acquire|.release|.acq_rel}{.cta|.gpu|.sys}",
)

_OPERATIONS = (
    "{op:.and|.or|.xor}{type:.b32|.b64}",
    "{op:.add}{type:.u32|.s32|.u64|.f32|.f64}",
    "{op:.add}.noftz{type:.f16|.f16x2|.bf16|.bf16x2}",
    "{op:.inc|.dec}{type:.u32}",
    "{op:.min|.max}{type:.u32|.s32|.u64|.s64}",
)
_ATOM_ONLY = "{op:.exch}{type:.b32|.b64}"
_CAS = "{op:.cas}{type:.b16|.b32|.b64}"


def _run(
    g: Generator, where: Operand, inputs: list[Value], op: str, type_name: str, space: str
) -> Value:
    """The old values."""
    b = g.b
    window, lanes = address(g, where, space)
    bytes_ = type_bits(type_name) // 8
    resolved = g.temp("i64")
    spilled = g.spill(b.cast("zext", lanes, "i64"))
    g.helper(
        "resolve",
        "ptr %env",
        f"i32 {abi.SPACES[window]}",
        f"i32 {bytes_}",
        f"ptr {spilled}",
        f"i32 {g.mask}",
        f"ptr {resolved}",
    )
    kind = type_name
    if op in ("add", "inc", "dec"):
        kind = kind.replace("s", "u") if kind in ("s32", "s64") else kind
    pointers = [f"ptr {g.spill(value)}" for value in inputs]
    elem = f"i{type_bits(type_name)}"
    old = g.temp(elem)
    family = "shared" if window == "shared" else "atom"
    g.helper(f"{family}_{op}_{kind}", f"i32 {g.mask}", f"ptr {resolved}", *pointers, f"ptr {old}")
    return b.load(elem, old, align=64)


def _input(g: Generator, op: Operand, type_name: str) -> Value:
    value = g.read(op, type_name)
    return g.b.bitcast(value, f"i{value.bits}") if ELEM[type_name] in ("float", "double") else value


# The order and scope may also follow the operation: cooperative groups write it so.
_LATE_ORDER = "{.relaxed|.acquire|.release|.acq_rel}{.cta|.gpu|.sys}"
_ADD_LATE = f"atom{{op:.add}}{_LATE_ORDER}{{space:}}{{type:.u32|.s32|.u64}}"


@form(_ADD_LATE, operands=3)
@form(
    *(
        f"atom{kind}{op}"
        for kind in (_USUAL, _SPACE_FIRST, *_TRITON)
        for op in (*_OPERATIONS, _ATOM_ONLY)
    ),
    operands=3,
)
def atom(g: Generator, i: Instr, f: Slots) -> None:
    old = _run(g, i.ops[1], [_input(g, i.ops[2], f["type"])], f["op"], f["type"], f["space"])
    g.write(i.ops[0], f["type"], old)


@form(*(f"atom{kind}{_CAS}" for kind in (_USUAL, _SPACE_FIRST, *_TRITON)), operands=4)
def compare_and_swap(g: Generator, i: Instr, f: Slots) -> None:
    inputs = [_input(g, op, f["type"]) for op in i.ops[2:]]
    g.write(i.ops[0], f["type"], _run(g, i.ops[1], inputs, "cas", f["type"], f["space"]))


@form(
    *(f"red{_ORDER_RED}{_SCOPE}{_SPACE}{op}" for op in _OPERATIONS),
    *(f"red{_SPACE_FIRST}{op}" for op in _OPERATIONS),
    operands=2,
    writes=False,
)
def red(g: Generator, i: Instr, f: Slots) -> None:
    _run(g, i.ops[0], [_input(g, i.ops[1], f["type"])], f["op"], f["type"], f["space"])
