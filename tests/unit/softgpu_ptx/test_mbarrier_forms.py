"""mbarrier against a model that counts arrivals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file
from tests.unit.softgpu_ptx.test_memory_forms import ILLEGAL, MISALIGNED, run

SPACES = ("", ".shared", ".shared::cta")
ARRIVE_SCOPES = ("", ".release.cta", ".release.cluster", ".relaxed.cta", ".relaxed.cluster")
WAIT_SCOPES = ("", ".acquire.cta", ".acquire.cluster", ".relaxed.cta", ".relaxed.cluster")
ARRIVALS = [
    f"mbarrier.{op}{kind}{scope}{space}.b64"
    for op in ("arrive", "arrive_drop")
    for kind in ("", ".noComplete")
    for scope in ARRIVE_SCOPES
    for space in SPACES
]
WAITS = [
    f"mbarrier.{op}{parity}{scope}{space}.b64"
    for op in ("test_wait", "try_wait")
    for parity in ("", ".parity")
    for scope in WAIT_SCOPES
    for space in SPACES
]
COPIES = [f"cp.async.mbarrier.arrive{n}{space}.b64" for n in ("", ".noinc") for space in SPACES]
PLACES = ".shared .align 8 .b64 bar; .shared .align 8 .b64 second;"


def covered_forms() -> Iterator[str]:
    yield from (*ARRIVALS, *WAITS, *COPIES, "mbarrier.pending_count.b64")
    for space, op in itertools.product(SPACES, ("init", "inval")):
        yield f"mbarrier.{op}{space}.b64"


def pointer(form: str) -> str:
    return "[%d20]" if ".shared" in form else "[%d21]"


START = "mov.u64 %d20, bar; cvta.shared.u64 %d21, %d20; mad.lo.u64 %d30, %d9, 8, %d0;"


@pytest.mark.parametrize("form", ARRIVALS)
def test_arrivals_and_phases(form: str) -> None:
    """12 arrivals a phase; lanes come one after the other, each with 1 or 2."""
    drop, partly = ".arrive_drop" in form, ".noComplete" in form
    total = 100 if partly else 12
    body = f"""{START} setp.eq.u32 %p1, %r1, 0; and.b32 %r2, %r1, 1; add.u32 %r2, %r2, 1;
    @%p1 mbarrier.init.b64 [%d21], {total}; bar.warp.sync -1;
    {form} %d22, {pointer(form)}, %r2; mbarrier.pending_count.b64 %r3, %d22;
    mbarrier.test_wait.shared.b64 %p2, [%d20], %d22; selp.u32 %r4, 1, 0, %p2;
    st.global.u32 [%d30], %r3; st.global.u32 [%d30+4], %r4;
    """
    out = np.zeros((32, 2), "u4")
    assert run(body, out, locals_=PLACES) == 0
    pending = expected = total
    phase, phases = 0, []
    for lane in range(32):
        count = 1 + (lane & 1)
        if pending < count or (drop and expected <= count):
            return  # what the program must not do
        assert out[lane, 0] == pending, lane
        phases.append(phase)
        expected -= count if drop else 0
        pending -= count
        if pending == 0:
            phase, pending = phase + 1, expected
    # asked when all had arrived: parities tell phases apart
    assert [int(v) for v in out[: len(phases), 1]] == [(phase - p) & 1 for p in phases]


@pytest.mark.parametrize("form", WAITS)
def test_waiting_in_a_loop(form: str) -> None:
    """Two warps hand words over, three times through one barrier."""
    parity = ".parity" in form
    last = "%r5" if parity else "%d22"
    hint = ", 100" if "try_wait" in form else ""
    body = f"""{START} setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%d20], 64; bar.sync 0;
    mov.u32 %r4, words; shl.b32 %r3, %r1, 2; add.u32 %r3, %r4, %r3; xor.b32 %r6, %r1, 32;
    shl.b32 %r6, %r6, 2; add.u32 %r6, %r4, %r6; mov.u32 %r5, 0; mov.u32 %r7, %r1; mov.u32 %r9, 0;
    NEXT: st.volatile.shared.u32 [%r3], %r7;
    mbarrier.arrive.shared.b64 %d22, [%d20];
    WAIT: {form} %p2, {pointer(form)}, {last}{hint}; @!%p2 bra WAIT;
    ld.volatile.shared.u32 %r8, [%r6]; xor.b32 %r5, %r5, 1;
    mbarrier.arrive.shared.b64 %d22, [%d20];
    AGAIN: {form} %p2, {pointer(form)}, {last}{hint}; @!%p2 bra AGAIN; xor.b32 %r5, %r5, 1;
    mad.lo.u32 %r7, %r8, 3, 1; add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 3; @%p3 bra NEXT;
    mad.lo.u64 %d30, %d9, 4, %d0; st.global.u32 [%d30], %r7;"""
    out = np.zeros(64, "u4")
    places = PLACES + ".shared .align 4 .b32 words[64];"
    assert run(body, out, block=64, locals_=places) == 0
    values = list(range(64))
    for _ in range(3):
        values = [3 * values[k ^ 32] + 1 for k in range(64)]
    assert out.tolist() == values


@pytest.mark.parametrize("form", COPIES)
def test_arrival_of_copies(form: str) -> None:
    body = f"""{START} mbarrier.init.b64 [%d21], 40; {form} {pointer(form)};
    mbarrier.arrive.shared.b64 %d22, [%d20], 3; mbarrier.pending_count.b64 %r3, %d22;
    st.global.u32 [%d0], %r3;"""
    out = np.zeros(1, "u4")
    assert run(body, out, block=1, locals_=PLACES) == 0
    assert out[0] == (39 if ".noinc" in form else 40)


@pytest.mark.parametrize("space", SPACES)
def test_a_barrier_is_made_and_ended(space: str) -> None:
    form = f"mbarrier.init{space}.b64"
    body = f"""{START} {form} {pointer(form)}, 7; ld.shared.u64 %d22, [%d20];
    mbarrier.pending_count.b64 %r3, %d22; mbarrier.inval{space}.b64 {pointer(form)};
    ld.shared.u64 %d23, [%d20]; st.global.u32 [%d0], %r3; st.global.u64 [%d0+8], %d23;"""
    out = np.full(2, 77, "u8")
    assert run(body, out, block=1, locals_=PLACES) == 0
    assert (int(out[0]) & 0xFFFFFFFF, int(out[1])) == (7, 0)


def test_addresses_are_checked() -> None:
    assert run("mbarrier.init.shared.b64 [4096], 1;", locals_=PLACES) == ILLEGAL
    assert run("mbarrier.init.shared.b64 [bar+4], 1;", locals_=PLACES) == MISALIGNED


def test_barrier_and_pipeline_of_the_toolkit() -> None:
    data = np.arange(256, dtype="i4") * 3
    for kernel in ("by_barrier", "by_pipeline"):
        out = np.zeros(256, "i4")
        module = Module(compile_file("barriers.cu", 80), opt=1)
        assert module.launch(kernel, (2,), (128,), [data, out]).kind == 0
        want = data.reshape(2, 128)[:, ::-1].ravel() + 1
        assert np.array_equal(out, want), kernel
