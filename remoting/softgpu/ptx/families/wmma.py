"""wmma: matrix fragments of a warp, for the shapes of compute capability 7.0 to 8.0.

PTX leaves the layout of a fragment open; ours is in ``exec/device/wmma.c``.  Since it does not
depend on how a matrix lies in memory, the product need not know that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .. import abi
from ..forms import Slots, form
from ..model import Instr, Operand
from .matrix import WholeWarp, fragment, items_of
from .memory import address

if TYPE_CHECKING:
    from ..generator import Generator

_SPACE = "{space:.global|.shared|.shared::cta|}"
_LAYOUT = "{layout:.row|.col}"
_LARGE = "{shape:.m16n16k16|.m32n8k16|.m8n32k16}"
#: (shape, types) that the product takes, and with it loads and stores.
_INPUTS = (
    (_LARGE, "{type:.f16|.bf16|.s8|.u8}"),
    ("{shape:.m16n16k8}", "{type:.tf32}"),
    ("{shape:.m8n8k4}", "{type:.f64}"),
)
_RESULTS = (
    (_LARGE, "{type:.f16|.f32|.s32}"),
    ("{shape:.m16n16k8}", "{type:.f32}"),
    ("{shape:.m8n8k4}", "{type:.f64}"),
)
_BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}


class _Matrix(NamedTuple):
    rows: int
    columns: int
    slots: int
    """Elements that a lane holds."""
    bytes: int

    @property
    def registers(self) -> int:
        return self.slots * self.bytes // max(self.bytes, 4)

    @property
    def register(self) -> str:
        return "b64" if self.bytes == 8 else "b32"

    def shape(self, by_columns: bool) -> int:
        size = self.bytes.bit_length() - 1
        return self.rows | self.columns << 8 | self.slots << 16 | size << 24 | int(by_columns) << 28


def _sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def _matrix(which: str, shape: str, kind: str) -> _Matrix:
    m, n, k = _sizes(shape)
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[which]
    slots = rows * columns // 32
    if kind == "f16" and which in "ab":
        slots = 16  # whatever the shape: elements occur more than once
    return _Matrix(rows, columns, slots, _BYTES[kind])


def _where(g: Generator, i: Instr, op: Operand, f: Slots, matrix: _Matrix, last: int) -> list[str]:
    """The helper's arguments: space, shape, addresses, strides."""
    window, lanes = address(g, op, f["space"])
    by_columns = f["layout"] == "col"
    if len(i.ops) > last:
        stride = g.read(i.ops[last], "u32")
    else:
        stride = g.b.const("i32", matrix.rows if by_columns else matrix.columns)
    return [
        "ptr %env",
        f"i32 {abi.SPACES[window]}",
        f"i32 {matrix.shape(by_columns)}",
        f"ptr {g.spill(g.b.cast('zext', lanes, 'i64'))}",
        f"ptr {g.spill(stride)}",
    ]


@form(
    *(
        f"wmma.load.{{which:a|b}}.sync.aligned{_LAYOUT}{shape}{_SPACE}{kind}"
        for shape, kind in _INPUTS
    ),
    *(
        f"wmma.load.{{which:c}}.sync.aligned{_LAYOUT}{shape}{_SPACE}{kind}"
        for shape, kind in _RESULTS
    ),
    operands=(2, 3),
)
def load(g: Generator, i: Instr, f: Slots) -> None:
    matrix = _matrix(f["which"], f["shape"], f["type"])
    given = _where(g, i, i.ops[1], f, matrix, 2)
    items = items_of(i.ops[0])
    if len(items) != matrix.registers:
        raise g.invalid(f"needs {matrix.registers} registers, not {len(items)}")
    elem = f"i{matrix.register[1:]}"
    out = g.temp(elem, matrix.registers)
    with WholeWarp(g):
        g.helper("wmma_load", *given, f"ptr {out}")
    for n, item in enumerate(items):
        place = g.part(out, g.b.const(elem, 0), n)
        g.write(item, matrix.register, g.b.load(elem, place, align=64))


@form(
    *(f"wmma.store.d.sync.aligned{_LAYOUT}{shape}{_SPACE}{kind}" for shape, kind in _RESULTS),
    operands=(2, 3),
    writes=False,
)
def store(g: Generator, i: Instr, f: Slots) -> None:
    matrix = _matrix("d", f["shape"], f["type"])
    given = _where(g, i, i.ops[0], f, matrix, 2)
    values = fragment(g, i.ops[1], matrix.register, matrix.registers)
    source = g.spill(*values)
    with WholeWarp(g):
        g.helper("wmma_store", *given, f"ptr {source}")


_LAYOUTS = "{.row|.col}{.row|.col}"


@form(
    f"wmma.mma.sync.aligned{_LAYOUTS}{_LARGE}{{d:.f16|.f32}}{{c:.f16|.f32}}{{sat:.satfinite|}}",
    f"wmma.mma.sync.aligned{_LAYOUTS}{_LARGE}{{d:.f32}}{{a:.bf16}}.bf16{{c:.f32}}",
    f"wmma.mma.sync.aligned{_LAYOUTS}{_LARGE}{{d:.s32}}{{a:.s8}}.s8{{c:.s32}}{{sat:.satfinite|}}",
    f"wmma.mma.sync.aligned{_LAYOUTS}{_LARGE}{{d:.s32}}{{a:.u8}}.u8{{c:.s32}}{{sat:.satfinite|}}",
    f"wmma.mma.sync.aligned{_LAYOUTS}{{shape:.m16n16k8}}{{d:.f32}}{{a:.tf32}}.tf32{{c:.f32}}",
    f"wmma.mma.sync.aligned{_LAYOUTS}{{shape:.m8n8k4}}{{.rn|}}{{d:.f64}}{{a:.f64}}.f64{{c:.f64}}",
    # where compilers write the rounding mode
    f"wmma.mma.sync.aligned{_LAYOUTS}{{shape:.m8n8k4}}{{d:.f64}}{{a:.f64}}.f64{{c:.f64}}.rn",
    operands=4,
)
def multiply(g: Generator, i: Instr, f: Slots) -> None:
    kind = f.get("a") or "f16"
    m, n, k = _sizes(f["shape"])
    parts = {
        "a": _matrix("a", f["shape"], kind),
        "b": _matrix("b", f["shape"], kind),
        "c": _matrix("c", f["shape"], f["c"]),
    }
    pointers = [
        f"ptr {g.spill(*fragment(g, op, part.register, part.registers))}"
        for op, part in zip(i.ops[1:], parts.values(), strict=True)
    ]
    result = _matrix("d", f["shape"], f["d"])
    items = items_of(i.ops[0])
    if len(items) != result.registers:
        raise g.invalid(f"needs {result.registers} registers, not {len(items)}")
    elem = f"i{result.register[1:]}"
    out = g.temp(elem, result.registers)
    sizes = m | n << 8 | k << 16 | int(bool(f.get("sat"))) << 31
    with WholeWarp(g):
        g.helper(f"wmma_{f['d']}_{kind}_{kind}_{f['c']}", f"i32 {sizes}", *pointers, f"ptr {out}")
    for number, item in enumerate(items):
        place = g.part(out, g.b.const(elem, 0), number)
        g.write(item, result.register, g.b.load(elem, place, align=64))
