"""f16 and bf16 arithmetic, single and packed.

Sums, and products of f16, are rounded correctly when f32 is rounded once more; products of bf16
(subnormals) and all fused operations go through f64 and rounding to odd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr
from . import numbers
from .floating import extreme

if TYPE_CHECKING:
    from ..generator import Generator

_F16 = "{type:.f16|.f16x2}"
_BF16 = "{type:.bf16|.bf16x2}"
_OPCODES = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


def _inputs(g: Generator, i: Instr, f: Slots) -> list[Value]:
    return [
        numbers.widened(g, g.read(op, f["type"]), f["type"], bool(f.get("ftz"))) for op in i.ops[1:]
    ]


def _write_bits(g: Generator, i: Instr, f: Slots, bits: Value) -> None:
    """Flush what .ftz asks for and put pairs together."""
    if f.get("ftz") and not f["type"].startswith("bf"):
        bits = numbers.flush16(g, bits)
    g.write(i.ops[0], f["type"], g.b.bitcast(bits, "i32" if f["type"].endswith("x2") else "i16"))


def _finish(g: Generator, i: Instr, f: Slots, value: Value) -> None:
    if f.get("sat"):
        value = numbers.saturate(g, value)
    if f.get("relu"):
        value = numbers.relu(g, value)
    _write_bits(g, i, f, numbers.narrowed(g, value, f["type"]))


@form(
    *(f"{op}{{.rn|}}{{ftz:.ftz|}}{{sat:.sat|}}{_F16}" for op in ("add", "sub", "mul")),
    *(f"{op}{{.rn|}}{_BF16}" for op in ("add", "sub", "mul")),
    operands=3,
)
def arithmetic(g: Generator, i: Instr, f: Slots) -> None:
    x, y = _inputs(g, i, f)
    if i.opcode == "mul" and f["type"].startswith("bf"):
        x, y = (g.b.cast("fpext", v, "double") for v in (x, y))
    _finish(g, i, f, g.b.bin(_OPCODES[i.opcode], x, y))


@form(
    f"fma.rn{{ftz:.ftz|}}{{sat:.sat|}}{_F16}",
    f"fma.rn{{ftz:.ftz|}}{{relu:.relu}}{_F16}",
    f"fma.rn{{relu:.relu|}}{_BF16}",
    operands=4,
)
def fused(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    x, y, z = (b.cast("fpext", v, "double") for v in _inputs(g, i, f))
    _finish(g, i, f, numbers.odd_f32(g, numbers.odd_sum(g, b.bin("fmul", x, y), z)))


@form(
    f"abs{{ftz:.ftz|}}{_F16}", f"neg{{ftz:.ftz|}}{_F16}", f"abs{_BF16}", f"neg{_BF16}", operands=2
)
def sign_change(g: Generator, i: Instr, f: Slots) -> None:
    bits = numbers.lanes16(g, g.read(i.ops[1], f["type"]))
    op, mask = ("and", 0x7FFF) if i.opcode == "abs" else ("xor", 0x8000)
    bits = g.b.bini(op, bits, mask)
    _write_bits(g, i, f, bits)


@form(
    *(f"{op}{{ftz:.ftz|}}{{nan:.NaN|}}{{xorsign:.xorsign.abs|}}{_F16}" for op in ("min", "max")),
    *(f"{op}{{nan:.NaN|}}{{xorsign:.xorsign.abs|}}{_BF16}" for op in ("min", "max")),
    operands=3,
)
def min_max(g: Generator, i: Instr, f: Slots) -> None:
    result = extreme(g, i.opcode, bool(f["nan"]), bool(f["xorsign"]), _inputs(g, i, f))
    _finish(g, i, f, result)
