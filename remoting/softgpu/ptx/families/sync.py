"""Barriers, fences, waiting, and instructions that only hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..forms import Slots, find, form
from ..model import Instr, Int, Operand, Reg

if TYPE_CHECKING:
    from ..generator import Generator

_ALL = (
    "bar{.cta|}.sync",
    "barrier{.cta|}.sync{.aligned|}",
)
_REDUCE = (
    "bar{.cta|}.red.{op:popc}.u32",
    "barrier{.cta|}.red.{op:popc}{.aligned|}.u32",
    "bar{.cta|}.red.{op:and|or}.pred",
    "barrier{.cta|}.red.{op:and|or}{.aligned|}.pred",
)


def is_plain(instr: Instr) -> bool:
    """A barrier number 0 of the whole block, without a reduction."""
    return ".red." not in instr.form and instr.ops == (Int(0),)


def _uniform(g: Generator, op: Operand) -> str:
    """A barrier's number or thread count; the value of the first active lane counts."""
    if isinstance(op, Int):
        return str(op.value)
    if not isinstance(op, Reg):
        raise g.invalid("barrier operand")
    pointer = g.spill(g.read(op, "u32"))
    b = g.b
    b.declare("i32 @llvm.cttz.i32(i32, i1)")
    lane = b.raw(f"call i32 @llvm.cttz.i32(i32 {g.mask}, i1 false)")
    slot = b.raw(f"getelementptr i32, ptr {pointer}, i32 {b.raw(f'and i32 {lane}, 31')}")
    return b.raw(f"load i32, ptr {slot}")


def barrier(g: Generator, instr: Instr) -> None:
    """The waiting itself; ``emit`` has made sure that all live lanes take part."""
    found = find(instr.form)
    if found is None:
        raise g.unsupported(instr.form)
    slots, ops = found.slots, instr.ops
    least, most = found.pattern.operands
    if not least <= len(ops) <= most:
        raise g.invalid("wrong number of operands")
    if "op" not in slots:
        if is_plain(instr):
            g.service("barrier")
            return
        number = _uniform(g, ops[0])
        count = _uniform(g, ops[1]) if len(ops) > 1 else "0"
        g.service("barrier_n", f"i32 {number}", f"i32 {count}")
        return
    number = _uniform(g, ops[1])
    count = _uniform(g, ops[2]) if len(ops) > 3 else "0"
    b = g.b
    given = b.raw(f"and i32 {b.to_mask(g.read(ops[-1], 'pred'))}, {g.mask}")
    kind = slots["op"]
    result = g.service(
        "barrier_reduce",
        f"i32 {number}",
        f"i32 {count}",
        f"i32 {abi.REDUCE[kind]}",
        f"i32 {given}",
        f"i32 {g.mask}",
        result="i32",
    )
    value = b.splat(result, "i32")
    if kind == "popc":
        g.write(ops[0], "u32", value)
    else:
        g.write(ops[0], "pred", b.icmpi("ne", value, 0))


def _ends_block(g: Generator, i: Instr, f: Slots) -> None:
    raise g.invalid("barrier in the middle of a block")


form(*_ALL, operands=(1, 2), writes=False)(_ends_block)
form(*_REDUCE, operands=(3, 4))(_ends_block)


@form("bar{.cta|}.arrive", "barrier{.cta|}.arrive{.aligned|}", operands=2, writes=False)
def arrive(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    g.flags |= abi.KERNEL_NEEDS_FIBERS
    yes, no = b.new_label(), b.new_label()
    b.branch(b.raw(f"icmp ne i32 {g.mask}, 0"), yes, no)
    b.label(yes)
    g.service("arrive", f"i32 {_uniform(g, i.ops[0])}", f"i32 {_uniform(g, i.ops[1])}")
    b.jump(no)
    b.label(no)


@form("bar.warp.sync", operands=1, writes=False)
def warp_barrier(g: Generator, i: Instr, f: Slots) -> None:
    """Lanes run in lockstep and have met again where they can; the operand must be well formed."""
    g.read(i.ops[0], "b32")


_SCOPE = "{.cta|.cluster|.gpu|.sys}"


@form(
    "membar{.cta|.gl|.sys|.gpu}",
    f"fence{{.sc|.acq_rel|.acquire|.release|}}{_SCOPE}",
    "fence.proxy{.alias|.async|.async.global|.async.shared::cta|.async.shared::cluster}",
    operands=0,
    writes=False,
)
def fence(g: Generator, i: Instr, f: Slots) -> None:
    g.b.emit("fence seq_cst")


@form("nanosleep.u32", operands=1, writes=False)
def nanosleep(g: Generator, i: Instr, f: Slots) -> None:
    g.read(i.ops[0], "u32")
    g.flags |= abi.KERNEL_NEEDS_FIBERS
    g.service("yield")


@form("griddepcontrol{.launch_dependents|.wait}", operands=0, writes=False)
@form("pmevent{.mask|}", operands=1, writes=False)
def nothing(g: Generator, i: Instr, f: Slots) -> None:
    """Nothing to do: grids of one stream run one after another, and there are no counters."""


@form(
    "prefetch{.global|.local|}{.L1|.L2}",
    "prefetch.global.L2{::evict_last|::evict_normal}",
    "prefetchu.L1",
    "prefetch{.const|.param|}.tensormap",
    "applypriority{.global|}.L2::evict_normal",
    "discard{.global|}.L2",
    operands=(1, 2),
    writes=False,
)
def prefetch(g: Generator, i: Instr, f: Slots) -> None:
    """A hint."""


_PRIORITY = ".L2::evict_last|.L2::evict_normal|.L2::evict_first|.L2::evict_unchanged"


@form(
    f"createpolicy.fractional{{{_PRIORITY}}}{{.L2::evict_first|.L2::evict_unchanged|}}.b64",
    f"createpolicy.range{{.global|}}{{{_PRIORITY}}}{{.L2::evict_first|.L2::evict_unchanged|}}.b64",
    "createpolicy.cvt.L2.b64",
    operands=(1, 4),
)
def policy(g: Generator, i: Instr, f: Slots) -> None:
    """Policies are opaque and there are no caches to steer: any value does."""
    g.write(i.ops[0], "b64", g.b.const("i64", 0))


@form("trap", "brkpt", operands=0, writes=False)
def trap(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    if g.guarded:
        yes, no = b.new_label(), b.new_label()
        b.branch(b.raw(f"icmp ne i32 {g.mask}, 0"), yes, no)
        b.label(yes)
        g.service("trap", f"i32 {abi.TRAP_TRAP}", "i64 0")
        b.emit("unreachable")
        b.label(no)
    else:
        g.trap(abi.TRAP_TRAP)


@form("%badpointer", operands=0, writes=False)
def bad_pointer(g: Generator, i: Instr, f: Slots) -> None:
    """A call through a pointer to no known function; a block of its own, never guarded."""
    g.trap(abi.TRAP_ILLEGAL_INSTRUCTION)


@form("%stackbase", operands=1)
def stack_base(g: Generator, i: Instr, f: Slots) -> None:
    """Where a lane's stack begins: above the local variables."""
    g.flags |= abi.KERNEL_USES_STACK
    g.write(i.ops[0], "u64", g.b.const("i64", g.memory.local_bytes))


@form("%stackcheck", operands=2, writes=False)
def stack_check(g: Generator, i: Instr, f: Slots) -> None:
    """A frame of so many bytes from the address must fit into the lane's local memory."""
    b, size = g.b, i.ops[1]
    assert isinstance(size, Int)
    end = b.bini("add", g.read(i.ops[0], "u64"), size.value)
    limit = b.splat(b.raw("zext i32 %local_bytes to i64"), "i64")
    beyond = b.raw(f"and i32 {b.to_mask(b.icmp('ugt', end, limit))}, {g.mask}")
    bad, fine = b.new_label(), b.new_label()
    b.branch(b.raw(f"icmp ne i32 {beyond}, 0"), bad, fine)
    b.label(bad)
    g.service("trap", f"i32 {abi.TRAP_STACK_OVERFLOW}", "i64 0")
    b.emit("unreachable")
    b.label(fine)
