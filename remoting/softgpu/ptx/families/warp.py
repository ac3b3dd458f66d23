"""Operations across the lanes of a warp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..model import Instr, Int, Operand, Pair

if TYPE_CHECKING:
    from ..generator import Generator


def _pair(op: Operand) -> tuple[Operand, Operand | None]:
    return (op.first, op.second) if isinstance(op, Pair) else (op, None)


@form("activemask.b32", operands=1)
def active_mask(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], "b32", g.b.splat(g.mask, "i32"))


@form("vote.sync.{mode:ballot}.b32", "vote.sync.{mode:all|any|uni}.pred", operands=3)
@form("vote.{mode:ballot}.sync.b32", "vote.{mode:all|any|uni}.sync.pred", operands=3)
@form("vote.{mode:ballot}.b32", "vote.{mode:all|any|uni}.pred", operands=2)
def vote(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    given = b.splat(b.raw(f"and i32 {b.to_mask(g.read(i.ops[1], 'pred'))}, {g.mask}"), "i32")
    members = g.read(i.ops[2], "b32") if len(i.ops) > 2 else b.const("i32", -1)
    given = b.bin("and", given, members)
    present = b.bin("and", b.splat(g.mask, "i32"), members)
    if f["mode"] == "ballot":
        g.write(i.ops[0], "b32", given)
        return
    some, every = b.icmpi("ne", given, 0), b.icmp("eq", given, present)
    result = {"any": some, "all": every, "uni": b.bin("or", every, b.invert(some))}[f["mode"]]
    g.write(i.ops[0], "pred", result)


@form("shfl.sync{mode:.up|.down|.bfly|.idx}.b32", operands=5)
@form("shfl{mode:.up|.down|.bfly|.idx}.b32", operands=4)
def shuffle(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    dest, valid = _pair(i.ops[0])
    value, distance, control = (g.read(op, "b32") for op in i.ops[1:4])
    if len(i.ops) > 4:
        g.read(i.ops[4], "b32")
    lane = Value("%lane", "i32")
    step = b.bini("and", distance, 31)
    segment = b.bini("and", b.bini("lshr", control, 8), 31)
    inner = b.bini("xor", segment, 31)
    lowest = b.bin("and", lane, segment)
    limit = b.bin("or", lowest, b.bin("and", b.bini("and", control, 31), inner))
    if f["mode"] == "up":
        source = b.bin("sub", lane, step)
        ok = b.icmp("sge", source, limit)
    else:
        if f["mode"] == "down":
            source = b.bin("add", lane, step)
        elif f["mode"] == "bfly":
            source = b.bin("xor", lane, step)
        else:
            source = b.bin("or", lowest, b.bin("and", step, inner))
        ok = b.icmp("sle", source, limit)
    if isinstance(i.ops[2], Int) and isinstance(i.ops[3], Int):
        order = _fixed_sources(f["mode"], i.ops[2].value & 31, i.ops[3].value)
        result = b.shuffle(value, None, order)
    else:
        index = b.bini("and", b.select(ok, source, lane), 31)
        pointer = g.spill(value)
        wide = b.cast("zext", index, "i64")
        places = b.raw(f"getelementptr i32, ptr {pointer}, {wide.typed}")
        name = "llvm.masked.gather.v32i32.v32p0"
        b.declare(f"<32 x i32> @{name}(<32 x ptr>, <32 x i1>, <32 x i32>)")
        result = Value(
            b.raw(
                f"call <32 x i32> @{name}(<32 x ptr> align 4 {places}, <32 x i1> splat (i1 true), "
                "<32 x i32> zeroinitializer)"
            ),
            "i32",
        )
    g.write(dest, "b32", result)
    if valid is not None:
        g.write(valid, "pred", ok)


def _fixed_sources(mode: str, step: int, control: int) -> list[int]:
    """Source lane of each lane when distance and control are constants."""
    order = []
    segment, bound = control >> 8 & 31, control & 31
    for lane in range(32):
        lowest = lane & segment
        limit = lowest | bound & ~segment & 31
        source = {
            "up": lane - step,
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": lowest | step & ~segment & 31,
        }[mode]
        ok = source >= limit if mode == "up" else source <= limit
        order.append(source & 31 if ok else lane)
    return order


@form("match.any.sync{type:.b32|.b64}", operands=3)
def match_any(g: Generator, i: Instr, f: Slots) -> None:
    value, members = g.read(i.ops[1], f["type"]), g.read(i.ops[2], "b32")
    out = g.temp("i32")
    g.helper(
        f"match_any_{f['type']}",
        f"i32 {g.mask}",
        f"ptr {g.spill(value)}",
        f"ptr {g.spill(members)}",
        f"ptr {out}",
    )
    g.write(i.ops[0], "b32", g.b.load("i32", out, align=64))


@form("match.all.sync{type:.b32|.b64}", operands=3)
def match_all(g: Generator, i: Instr, f: Slots) -> None:
    dest, valid = _pair(i.ops[0])
    value, members = g.read(i.ops[1], f["type"]), g.read(i.ops[2], "b32")
    out, same = g.temp("i32"), g.temp("i32")
    g.helper(
        f"match_all_{f['type']}",
        f"i32 {g.mask}",
        f"ptr {g.spill(value)}",
        f"ptr {g.spill(members)}",
        f"ptr {out}",
        f"ptr {same}",
    )
    g.write(dest, "b32", g.b.load("i32", out, align=64))
    if valid is not None:
        g.write(valid, "pred", g.b.icmpi("ne", g.b.load("i32", same, align=64), 0))


@form(
    "redux.sync.{op:add|min|max}{type:.u32|.s32}",
    "redux.sync.{op:and|or|xor}{type:.b32}",
    operands=3,
)
def redux(g: Generator, i: Instr, f: Slots) -> None:
    value, members = g.read(i.ops[1], f["type"]), g.read(i.ops[2], "b32")
    kind = "u32" if f["op"] == "add" else f["type"]
    out = g.temp("i32")
    g.helper(
        f"redux_{f['op']}_{kind}",
        f"i32 {g.mask}",
        f"ptr {g.spill(value)}",
        f"ptr {g.spill(members)}",
        f"ptr {out}",
    )
    g.write(i.ops[0], f["type"], g.b.load("i32", out, align=64))


@form("redux.sync.{op:min|max}{abs:.abs|}{nan:.NaN|}.f32", operands=3)
def redux_float(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    value, members = g.read(i.ops[1], "b32"), g.read(i.ops[2], "b32")
    if f["abs"]:
        value = b.bini("and", value, 0x7FFFFFFF)
    out = g.temp("i32")
    g.helper(
        f"redux_{f['op']}{'_nan' if f['nan'] else ''}_f32",
        f"i32 {g.mask}",
        f"ptr {g.spill(value)}",
        f"ptr {g.spill(members)}",
        f"ptr {out}",
    )
    g.write(i.ops[0], "b32", b.load("i32", out, align=64))


@form("elect.sync", operands=2)
def elect(g: Generator, i: Instr, f: Slots) -> None:
    """The lowest active member is the leader."""
    b = g.b
    dest, chosen = _pair(i.ops[0])
    members = g.read(i.ops[1], "b32")
    present = b.bin("and", b.splat(g.mask, "i32"), members)
    leader = b.call("llvm.cttz", "i32", present, extra="i1 false")
    g.write(dest, "b32", leader)
    if chosen is not None:
        g.write(chosen, "pred", b.icmp("eq", leader, Value("%lane", "i32")))
