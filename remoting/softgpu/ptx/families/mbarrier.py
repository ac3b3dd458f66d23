"""mbarrier: barriers in shared memory that count arrivals (compute capability 8.0).

What waits is a loop of the program around test_wait or try_wait; such loops let other warps run
(``analysis.is_strong``).  Copies are complete at once, so there are no bytes to be expected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value
from ..forms import Slots, form
from ..model import Instr, Operand
from .memory import address

if TYPE_CHECKING:
    from ..generator import Generator

_SPACE = ("", "{space:.shared}{::cta|}")
_SCOPE = ("", "{.release}{.cta|.cluster}", "{.relaxed}{.cta|.cluster}")
_WAIT_SCOPE = ("", "{.acquire}{.cta|.cluster}", "{.relaxed}{.cta|.cluster}")


def _places(g: Generator, where: Operand, space: str) -> str:
    """Host addresses of the lanes' words."""
    window, lanes = address(g, where, space)
    resolved = g.temp("i64")
    spilled = g.spill(g.b.cast("zext", lanes, "i64"))
    arguments = ("ptr %env", f"i32 {abi.SPACES[window]}", "i32 8", f"ptr {spilled}")
    g.helper("resolve", *arguments, f"i32 {g.mask}", f"ptr {resolved}")
    return resolved


def _count(g: Generator, i: Instr, place: int) -> Value:
    return g.read(i.ops[place], "u32") if len(i.ops) > place else g.b.const("i32", 1)


@form(*(f"mbarrier.init{space}.b64" for space in _SPACE), operands=2, writes=False)
def init(g: Generator, i: Instr, f: Slots) -> None:
    places = _places(g, i.ops[0], f.get("space", ""))
    count = g.spill(g.read(i.ops[1], "u32"))
    g.helper("mbarrier_init", f"i32 {g.mask}", f"ptr {places}", f"ptr {count}")


@form(*(f"mbarrier.inval{space}.b64" for space in _SPACE), operands=1, writes=False)
def invalidate(g: Generator, i: Instr, f: Slots) -> None:
    places = _places(g, i.ops[0], f.get("space", ""))
    g.helper("mbarrier_inval", f"i32 {g.mask}", f"ptr {places}")


@form(
    *(
        f"mbarrier.{{op:arrive|arrive_drop}}{kind}{scope}{space}.b64"
        for kind in ("{.noComplete|}",)
        for scope in _SCOPE
        for space in _SPACE
    ),
    operands=(2, 3),
)
def arrive(g: Generator, i: Instr, f: Slots) -> None:
    places = _places(g, i.ops[1], f.get("space", ""))
    count, state = g.spill(_count(g, i, 2)), g.temp("i64")
    g.helper(
        f"mbarrier_{f['op']}", f"i32 {g.mask}", f"ptr {places}", f"ptr {count}", f"ptr {state}"
    )
    g.write(i.ops[0], "b64", g.b.load("i64", state, align=64))


@form(
    *(
        f"mbarrier.{{op:test_wait|try_wait}}{{parity:.parity|}}{scope}{space}.b64"
        for scope in _WAIT_SCOPE
        for space in _SPACE
    ),
    operands=(3, 4),
)
def wait(g: Generator, i: Instr, f: Slots) -> None:
    """A wait may end early, so try_wait is a test, too; how long it may take is only a hint."""
    b = g.b
    if len(i.ops) > 3:
        if f["op"] == "test_wait":
            raise g.invalid("wrong number of operands")
        g.read(i.ops[3], "u32")
    places = _places(g, i.ops[1], f.get("space", ""))
    if f["parity"]:
        state = b.bini("shl", b.cast("zext", g.read(i.ops[2], "u32"), "i64"), 63)
    else:
        state = g.read(i.ops[2], "b64")
    complete = g.temp("i32")
    spilled = g.spill(state)
    g.helper(
        "mbarrier_test_wait", f"i32 {g.mask}", f"ptr {places}", f"ptr {spilled}", f"ptr {complete}"
    )
    g.write(i.ops[0], "pred", b.icmpi("ne", b.load("i32", complete, align=64), 0))


@form("mbarrier.pending_count.b64", operands=2)
def pending_count(g: Generator, i: Instr, f: Slots) -> None:
    """Of the phase when the state was made."""
    state = g.read(i.ops[1], "b64")
    g.write(i.ops[0], "u32", g.b.bini("and", g.b.cast("trunc", state, "i32"), 0xFFFFF))


@form(
    *(f"cp.async.mbarrier.arrive{{noinc:.noinc|}}{space}.b64" for space in _SPACE),
    operands=1,
    writes=False,
)
def arrive_after_copies(g: Generator, i: Instr, f: Slots) -> None:
    """The copies are complete: an arrival, which without .noinc the barrier was not told to await."""
    places = _places(g, i.ops[0], f.get("space", ""))
    if f["noinc"]:
        count, state = g.spill(g.b.const("i32", 1)), g.temp("i64")
        g.helper(
            "mbarrier_arrive", f"i32 {g.mask}", f"ptr {places}", f"ptr {count}", f"ptr {state}"
        )
