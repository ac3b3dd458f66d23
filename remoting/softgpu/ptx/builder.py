"""Writes LLVM IR text for vectors.

A ``Value`` is one vector: an element type, a number of lanes, and the text that names it.  PTX
registers are 32 lanes; packed pairs are handled as 64 lanes of half the width.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .literals import f64_bits

LANES = 32

_INT_BITS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "i128": 128,
    "half": 16,
    "float": 32,
    "double": 64,
}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Value(NamedTuple):
    """A vector value."""

    ref: str
    elem: str
    lanes: int = LANES

    @property
    def type(self) -> str:
        return f"<{self.lanes} x {self.elem}>"

    @property
    def bits(self) -> int:
        return _INT_BITS[self.elem]

    @property
    def typed(self) -> str:
        return f"{self.type} {self.ref}"


def bits_of(elem: str) -> int:
    """Width of an element type."""
    return _INT_BITS[elem]


class Builder:
    """Collects the lines of one function and the declarations it needs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.helpers: dict[str, str] = {}
        self._count = 0

    # ------------------------------------------------------------------ text
    def emit(self, text: str) -> None:
        self.lines.append("  " + text)

    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def raw(self, text: str) -> str:
        """One instruction; returns the name of its result."""
        ref = self.name()
        self.lines.append(f"  {ref} = {text}")
        return ref

    def new_label(self) -> str:
        self._count += 1
        return f"L{self._count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def jump(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}")

    def declare(self, text: str) -> None:
        self.declarations.add("declare " + text)

    # ------------------------------------------------------------------ constants
    def const(self, elem: str, value: int, lanes: int = LANES) -> Value:
        """The same integer in every lane."""
        if elem == "i1":
            return Value(f"splat (i1 {'true' if value & 1 else 'false'})", elem, lanes)
        width = _INT_BITS[elem]
        value &= (1 << width) - 1
        if value >> (width - 1):
            value -= 1 << width
        return Value(f"splat ({elem} {value})", elem, lanes)

    def fconst(self, elem: str, value: float, lanes: int = LANES) -> Value:
        """The same number in every lane; it must be exact in the element type."""
        return Value(f"splat ({elem} 0x{f64_bits(value):016X})", elem, lanes)

    def table(self, elem: str, values: list[int]) -> Value:
        """A constant with a value for each lane."""
        return Value("<" + ", ".join(f"{elem} {v}" for v in values) + ">", elem, len(values))

    # ------------------------------------------------------------------ operations
    def bin(self, op: str, a: Value, b: Value) -> Value:
        assert a.type == b.type, (op, a, b)
        return Value(self.raw(f"{op} {a.type} {a.ref}, {b.ref}"), a.elem, a.lanes)

    def bini(self, op: str, a: Value, b: int) -> Value:
        """A binary operation with an integer constant."""
        return self.bin(op, a, self.const(a.elem, b, a.lanes))

    def fneg(self, a: Value) -> Value:
        return Value(self.raw(f"fneg {a.typed}"), a.elem, a.lanes)

    def invert(self, a: Value) -> Value:
        return self.bini("xor", a, -1)

    def icmp(self, op: str, a: Value, b: Value) -> Value:
        assert a.type == b.type, (op, a, b)
        return Value(self.raw(f"icmp {op} {a.type} {a.ref}, {b.ref}"), "i1", a.lanes)

    def icmpi(self, op: str, a: Value, b: int) -> Value:
        return self.icmp(op, a, self.const(a.elem, b, a.lanes))

    def fcmp(self, op: str, a: Value, b: Value) -> Value:
        assert a.type == b.type, (op, a, b)
        return Value(self.raw(f"fcmp {op} {a.type} {a.ref}, {b.ref}"), "i1", a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        assert a.type == b.type, (a, b)
        assert condition.lanes == a.lanes, (condition, a)
        return Value(self.raw(f"select {condition.typed}, {a.typed}, {b.typed}"), a.elem, a.lanes)

    def cast(self, op: str, a: Value, elem: str) -> Value:
        """Any conversion that keeps the number of lanes; none when the type is the same."""
        if a.elem == elem:
            return a
        return Value(self.raw(f"{op} {a.typed} to <{a.lanes} x {elem}>"), elem, a.lanes)

    def resize(self, a: Value, elem: str, signed: bool = False) -> Value:
        """An integer made wider or narrower."""
        if a.bits > _INT_BITS[elem]:
            return self.cast("trunc", a, elem)
        return self.cast("sext" if signed else "zext", a, elem)

    def bitcast(self, a: Value, elem: str) -> Value:
        """The same bits as another element type; the number of lanes follows."""
        if a.elem == elem:
            return a
        lanes = a.lanes * a.bits // _INT_BITS[elem]
        return Value(self.raw(f"bitcast {a.typed} to <{lanes} x {elem}>"), elem, lanes)

    def call(self, function: str, elem: str, *args: Value, extra: str = "") -> Value:
        """A vector intrinsic ``llvm.name``: the suffix comes from the first argument."""
        first = args[0]
        suffix = _SUFFIX.get(first.elem, first.elem)
        name = f"{function}.v{first.lanes}{suffix}"
        types = [a.type for a in args] + ([extra.split()[0]] if extra else [])
        given = [a.typed for a in args] + ([extra] if extra else [])
        result = f"<{first.lanes} x {elem}>"
        self.declare(f"{result} @{name}({', '.join(types)})")
        return Value(self.raw(f"call {result} @{name}({', '.join(given)})"), elem, first.lanes)

    def convert_call(self, function: str, elem: str, a: Value) -> Value:
        """An intrinsic whose name carries the result type and the argument type."""
        types = [_SUFFIX.get(t, t) for t in (elem, a.elem)]
        name = f"{function}.v{a.lanes}{types[0]}.v{a.lanes}{types[1]}"
        result = f"<{a.lanes} x {elem}>"
        self.declare(f"{result} @{name}({a.type})")
        return Value(self.raw(f"call {result} @{name}({a.typed})"), elem, a.lanes)

    def splat(self, ref: str, elem: str, lanes: int = LANES) -> Value:
        """A scalar in every lane."""
        one = self.raw(f"insertelement <{lanes} x {elem}> poison, {elem} {ref}, i32 0")
        vector = f"<{lanes} x {elem}>"
        zeros = f"<{lanes} x i32> zeroinitializer"
        text = f"shufflevector {vector} {one}, {vector} poison, {zeros}"
        return Value(self.raw(text), elem, lanes)

    def shuffle(self, a: Value, b: Value | None, order: list[int]) -> Value:
        second = b.typed if b is not None else f"{a.type} poison"
        picks = ", ".join(f"i32 {k}" for k in order)
        return Value(
            self.raw(f"shufflevector {a.typed}, {second}, <{len(order)} x i32> <{picks}>"),
            a.elem,
            len(order),
        )

    def parts(self, a: Value, lanes: int) -> list[Value]:
        """The vector cut into pieces."""
        return [self.shuffle(a, None, list(range(k, k + lanes))) for k in range(0, a.lanes, lanes)]

    def join(self, pieces: list[Value]) -> Value:
        """Pieces of equal length, a power of two of them, put together."""
        while len(pieces) > 1:
            width = 2 * pieces[0].lanes
            pieces = [
                self.shuffle(pieces[k], pieces[k + 1], list(range(width)))
                for k in range(0, len(pieces), 2)
            ]
        return pieces[0]

    def to_mask(self, a: Value) -> str:
        """32 booleans as a scalar i32, lane 0 in bit 0."""
        return self.raw(f"bitcast {a.typed} to i{a.lanes}")

    def from_mask(self, ref: str) -> Value:
        return Value(self.raw(f"bitcast i32 {ref} to <32 x i1>"), "i1")

    # ------------------------------------------------------------------ the function's own memory
    def load(self, elem: str, pointer: str, lanes: int = LANES, align: int | None = None) -> Value:
        suffix = f", align {align}" if align else ""
        return Value(self.raw(f"load <{lanes} x {elem}>, ptr {pointer}{suffix}"), elem, lanes)

    def store(self, value: Value, pointer: str, align: int | None = None) -> None:
        self.emit(f"store {value.typed}, ptr {pointer}" + (f", align {align}" if align else ""))


def safe_name(text: str) -> str:
    """A name that needs no quotes in IR."""
    return re.sub(r"[^\w.]", "_", text)
