"""Matrix instructions of a whole warp, and the asynchronous copies that feed them.

``mma``, ``ldmatrix`` and ``stmatrix`` need all 32 lanes: blocks wait for the whole warp
(``cfg.member_mask``), and a part of one, whose result PTX leaves undefined, ends the launch.
``cp.async`` copies at once, which is one of the moments at which the copy may happen; so there is
nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value
from ..forms import Slots, form
from ..model import Instr, Int, Operand, Reg, Vec
from .memory import address

if TYPE_CHECKING:
    from ..generator import Generator

_INT8 = "{a:.s8|.u8}{b:.s8|.u8}"


def items_of(op: Operand) -> tuple[Operand, ...]:
    """The registers of a fragment."""
    return op.items if isinstance(op, Vec) else (op,)


def fragment(g: Generator, op: Operand, type_name: str, count: int) -> list[Value]:
    """Their values, as integers."""
    items = items_of(op)
    if len(items) != count:
        raise g.invalid(f"needs {count} registers, not {len(items)}")
    elem = f"i{type_name[1:]}"
    return [g.b.bitcast(g.read(item, type_name), elem) for item in items]


class WholeWarp:
    """Code for a full warp: none of its lanes, and all of them, may be active; else a trap."""

    def __init__(self, g: Generator) -> None:
        self.g = g

    def __enter__(self) -> None:
        g, b = self.g, self.g.b
        some, whole, part, self.done = (b.new_label() for _ in range(4))
        b.branch(b.raw(f"icmp eq i32 {g.mask}, 0"), self.done, some)
        b.label(some)
        b.branch(b.raw(f"icmp eq i32 {g.mask}, -1"), whole, part)
        b.label(part)
        g.service("trap", f"i32 {abi.TRAP_ILLEGAL_INSTRUCTION}", "i64 0")
        b.emit("unreachable")
        b.label(whole)

    def __exit__(self, *error: object) -> None:
        self.g.b.jump(self.done)
        self.g.b.label(self.done)


@form(
    "mma.sync.aligned.m{m:16}n8k{k:8|16}.row.col.{d:f32}.{a:f16}.{b:f16}.f32",
    "mma.sync.aligned.m{m:16}n8k{k:8|16}.row.col.{d:f16}.{a:f16}.{b:f16}.f16",
    "mma.sync.aligned.m{m:16}n8k{k:8|16}.row.col.{d:f32}.{a:bf16}.{b:bf16}.f32",
    "mma.sync.aligned.m{m:16}n8k{k:4|8}.row.col.{d:f32}.{a:tf32}.{b:tf32}.f32",
    f"mma.sync.aligned.m{{m:8}}n8k{{k:16}}.row.col{{sat:.satfinite|}}.{{d:s32}}{_INT8}.s32",
    f"mma.sync.aligned.m{{m:16}}n8k{{k:16|32}}.row.col{{sat:.satfinite|}}.{{d:s32}}{_INT8}.s32",
    "mma.sync.aligned.m{m:8}n8k{k:4}.row.col.{d:f64}.{a:f64}.{b:f64}.f64",
    operands=4,
)
def multiply(g: Generator, i: Instr, f: Slots) -> None:
    m, k = int(f["m"]), int(f["k"])
    register = "b64" if f["d"] == "f64" else "b32"
    elements = {"f16": 2, "bf16": 2, "s8": 4, "u8": 4}.get(f["a"], 1)
    results = m * 8 // 32 // (2 if f["d"] == "f16" else 1)
    a = fragment(g, i.ops[1], register, m * k // 32 // elements)
    b = fragment(g, i.ops[2], register, k * 8 // 32 // elements)
    c = fragment(g, i.ops[3], register, results)
    items = items_of(i.ops[0])
    if len(items) != results:
        raise g.invalid(f"needs {results} registers, not {len(items)}")
    elem = f"i{register[1:]}"
    out = g.temp(elem, results)
    pointers = [f"ptr {g.spill(*values)}" for values in (a, b, c)]
    kind = "_".join(
        [f"m{m}n8k{k}", *(["satfinite"] if f.get("sat") else []), f["d"], f["a"], f["b"]]
    )
    with WholeWarp(g):
        g.helper(f"mma_{kind}", *pointers, f"ptr {out}")
    for n, item in enumerate(items):
        g.write(item, register, g.b.load(elem, g.part(out, c[0], n), align=64))


_MATRIX = ".sync.aligned.m8n8{count:.x1|.x2|.x4}{trans:.trans|}{space:.shared|.shared::cta|}.b16"


def _rows(g: Generator, where: Operand, f: Slots) -> tuple[list[str], int]:
    """The helper's arguments that say where the rows are, and the number of matrices."""
    window, lanes = address(g, where, f["space"])
    count = int(f["count"][1:])
    rows = g.spill(g.b.cast("zext", lanes, "i64"))
    head = ["ptr %env", f"i32 {abi.SPACES[window]}", f"i32 {count}", f"i32 {int(bool(f['trans']))}"]
    return [*head, f"ptr {rows}"], count


@form(f"ldmatrix{_MATRIX}", operands=2)
def load_matrix(g: Generator, i: Instr, f: Slots) -> None:
    arguments, count = _rows(g, i.ops[1], f)
    items = items_of(i.ops[0])
    if len(items) != count:
        raise g.invalid(f"needs {count} registers, not {len(items)}")
    out = g.temp("i32", count)
    with WholeWarp(g):
        g.helper("ldmatrix", *arguments, f"ptr {out}")
    shape = g.b.const("i32", 0)
    for n, item in enumerate(items):
        g.write(item, "b32", g.b.load("i32", g.part(out, shape, n), align=64))


@form(f"stmatrix{_MATRIX}", operands=2, writes=False)
def store_matrix(g: Generator, i: Instr, f: Slots) -> None:
    arguments, count = _rows(g, i.ops[0], f)
    values = g.spill(*fragment(g, i.ops[1], "b32", count))
    with WholeWarp(g):
        g.helper("stmatrix", *arguments, f"ptr {values}")


_COPY = ".{space:shared|shared::cta}.global{hint:.L2::cache_hint|}{.L2::64B|.L2::128B|.L2::256B|}"


@form(f"cp.async.{{cache:ca|cg}}{_COPY}", operands=(3, 5), writes=False)
def copy(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    to, source = address(g, i.ops[0], f["space"])[1], address(g, i.ops[1], "global")[1]
    size = i.ops[2]
    if not isinstance(size, Int) or size.value not in ((16,) if f["cache"] == "cg" else (4, 8, 16)):
        raise g.invalid("size must be 4, 8 or 16 (16 for .cg)")
    rest = list(i.ops[3:])
    if f["hint"]:
        if not rest:
            raise g.invalid("needs a cache policy")
        g.read(rest.pop(), "b64")
    if len(rest) > 1:
        raise g.invalid("wrong number of operands")
    given = b.const("i32", size.value)
    if rest and isinstance(rest[0], Reg) and g.reg_elem(rest[0].name) == "i1":
        given = b.select(g.read(rest[0], "pred"), b.const("i32", 0), given)
    elif rest:
        given = g.read(rest[0], "b32")
    places = [f"ptr {g.spill(b.cast('zext', v, 'i64'))}" for v in (to, source)]
    g.helper(
        "cp_async",
        "ptr %env",
        f"i32 {size.value}",
        *places,
        f"ptr {g.spill(given)}",
        f"i32 {g.mask}",
    )


@form("cp.async.commit_group", "cp.async.wait_all", operands=0, writes=False)
def copy_done(g: Generator, i: Instr, f: Slots) -> None:
    """The copies are complete already."""


@form("cp.async.wait_group", operands=1, writes=False)
def wait_for_copies(g: Generator, i: Instr, f: Slots) -> None:
    if not isinstance(i.ops[0], Int) or i.ops[0].value < 0:
        raise g.invalid("needs a number of groups")
