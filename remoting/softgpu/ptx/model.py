"""The parsed form of a PTX module: variables, functions, instructions, operands."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import NamedTuple

#: Size in bytes of every type that a variable or register may have.
TYPE_BYTES: dict[str, int] = {
    "b8": 1, "s8": 1, "u8": 1,
    "b16": 2, "s16": 2, "u16": 2, "f16": 2, "bf16": 2,
    "b32": 4, "s32": 4, "u32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4,
    "b64": 8, "s64": 8, "u64": 8, "f64": 8, "f32x2": 8,
    "b128": 16, "pred": 1,
}  # fmt: skip


class Reg(NamedTuple):
    """A register of the function."""

    name: str


class Sreg(NamedTuple):
    """A special register such as ``%tid.x``, without the per cent sign; WARP_SZ too."""

    name: str


class Int(NamedTuple):
    """An integer literal."""

    value: int


class Float(NamedTuple):
    """A floating literal.  ``width`` is 32 or 64 for the exact 0f/0d forms, 0 for decimal text."""

    bits: int
    width: int
    value: float


class Sym(NamedTuple):
    """A variable, parameter, function or label, plus a byte offset."""

    name: str
    offset: int = 0


class Addr(NamedTuple):
    """``[base + offset]``."""

    base: Reg | Sym | Int
    offset: int


class Vec(NamedTuple):
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


class Pair(NamedTuple):
    """``d|p``: two destinations."""

    first: Operand
    second: Operand


class Not(NamedTuple):
    """``!p``."""

    reg: Reg


class Sink(NamedTuple):
    """``_``: a destination that is thrown away."""


class Args(NamedTuple):
    """``(a, b)``: the argument or return list of a call."""

    items: tuple[Operand, ...]


Operand = Reg | Sreg | Int | Float | Sym | Addr | Vec | Pair | Not | Sink | Args


class Guard(NamedTuple):
    """The ``@p`` or ``@!p`` before an instruction."""

    reg: str
    negated: bool


@dataclass(slots=True)
class Instr:
    """One instruction.  ``form`` is the opcode with all modifiers; ``offset`` is its place."""

    form: str
    ops: tuple[Operand, ...]
    guard: Guard | None
    offset: int

    @property
    def opcode(self) -> str:
        return self.form.split(".", 1)[0]


@dataclass(slots=True)
class Label:
    """A branch target."""

    name: str


Stmt = Instr | Label


class InitRef(NamedTuple):
    """An address in an initialiser: ``symbol + addend``."""

    symbol: str
    addend: int
    generic: bool


@dataclass(slots=True)
class Variable:
    """A variable, or a parameter.  ``count``: elements (0: dynamic shared memory)."""

    name: str
    space: str
    type: str
    align: int
    count: int
    offset: int = 0
    linkage: str = ""
    init: tuple[int | InitRef, ...] = ()
    init_bytes: int = 0
    unsized: bool = False
    broken: str = ""
    """Why its initial value cannot be made; only kernels that use the variable are refused."""

    @property
    def size(self) -> int:
        return TYPE_BYTES[self.type] * self.count


@dataclass(slots=True)
class Function:
    """An entry or a function with its body still as text (``body`` span) until it is parsed."""

    name: str
    entry: bool
    offset: int
    linkage: str = ""
    params: list[Variable] = field(default_factory=list)
    returns: list[Variable] = field(default_factory=list)
    body: tuple[int, int] | None = None
    max_ntid: tuple[int, int, int] = (0, 0, 0)
    max_registers: int = 255
    req_ntid: tuple[int, int, int] = (0, 0, 0)
    max_reg: int = 0
    regs: dict[str, str] = field(default_factory=dict)
    vars: dict[str, Variable] = field(default_factory=dict)
    stmts: list[Stmt] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    call_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Functions that calls through pointers may reach, where the text lists them."""
    prototypes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Sizes of the returned values and of the parameters of calls through pointers."""
    parsed: bool = False
    broken: str = ""
    """Why it cannot be compiled; only kernels that use it are refused."""


@dataclass(slots=True)
class Module:
    """A module: header, variables at module scope, functions."""

    text: str
    version: tuple[int, int] = (0, 0)
    target: str = ""
    address_size: int = 64
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    _line_ends: list[int] = field(default_factory=list)

    def line(self, offset: int) -> int:
        """The 1-based line of a place in the text."""
        if not self._line_ends:
            ends, pos = self._line_ends, self.text.find("\n")
            while pos >= 0:
                ends.append(pos)
                pos = self.text.find("\n", pos + 1)
            ends.append(len(self.text))
        return bisect.bisect_left(self._line_ends, offset) + 1


def registers_of(operand: Operand) -> list[str]:
    """Names of the registers that an operand reads or is, in order, repeats included."""
    if isinstance(operand, Reg):
        return [operand.name]
    if isinstance(operand, Not):
        return [operand.reg.name]
    if isinstance(operand, Addr):
        return registers_of(operand.base)
    if isinstance(operand, Pair):
        return registers_of(operand.first) + registers_of(operand.second)
    if isinstance(operand, (Vec, Args)):
        return [r for item in operand.items for r in registers_of(item)]
    return []
