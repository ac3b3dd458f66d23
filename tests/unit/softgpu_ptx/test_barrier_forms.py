"""Every form of the barriers, and of the instructions that leave no trace in values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.softgpu_ptx.test_memory_forms import TRAP, run
from tests.unit.softgpu_ptx.test_warp_forms import PRELUDE

HEADS = [f"{head}{scope}" for head in ("bar", "barrier") for scope in ("", ".cta")]


def _aligned(head: str) -> list[str]:
    return ["", ".aligned"] if head.startswith("barrier") else [""]


SYNC = [f"{head}.sync{tail}" for head in HEADS for tail in _aligned(head)]
ARRIVE = [f"{head}.arrive{tail}" for head in HEADS for tail in _aligned(head)]
POPC = [f"{head}.red.popc{tail}.u32" for head in HEADS for tail in _aligned(head)]
LOGIC = [
    f"{head}.red.{op}{tail}.pred"
    for head in HEADS
    for tail in _aligned(head)
    for op in ("and", "or")
]

SCOPES = ("cta", "cluster", "gpu", "sys")
PRIORITIES = ("evict_last", "evict_normal", "evict_first", "evict_unchanged")
#: Instructions after which everything is as it was.
QUIET = [
    "membar.cta;", "membar.gl;", "membar.sys;", "membar.gpu;",
    *(f"fence{order}.{scope};" for order in (".sc", ".acq_rel", ".acquire", ".release", "")
      for scope in SCOPES),
    *(f"fence.proxy.{kind};" for kind in
      ("alias", "async", "async.global", "async.shared::cta", "async.shared::cluster")),
    "bar.warp.sync -1;", "nanosleep.u32 20;", "pmevent 1;", "pmevent.mask 1;",
    "griddepcontrol.launch_dependents;", "griddepcontrol.wait;",
    *(f"prefetch{space}.{level} [%d0];" for space in (".global", "") for level in ("L1", "L2")),
    *(f"prefetch.local.{level} [buffer];" for level in ("L1", "L2")),
    "prefetch.global.L2::evict_last [%d0];", "prefetch.global.L2::evict_normal [%d0];",
    "prefetch.const.tensormap [%d0];", "prefetch.param.tensormap [%d0];", "prefetch.tensormap [%d0];",
    "prefetchu.L1 [%d0];",
    "applypriority.global.L2::evict_normal [%d0], 128;", "applypriority.L2::evict_normal [%d0], 128;",
    "discard.global.L2 [%d0], 128;", "discard.L2 [%d0], 128;",
    *(f"createpolicy.fractional.L2::{p}{s}.b64 %d50, 0.5;" for p in PRIORITIES
      for s in ("", ".L2::evict_first", ".L2::evict_unchanged")),
    *(f"createpolicy.range{g}.L2::{p}{s}.b64 %d50, [%d0], 64, 128;" for p in PRIORITIES
      for g in ("", ".global") for s in ("", ".L2::evict_first", ".L2::evict_unchanged")),
    "createpolicy.cvt.L2.b64 %d50, 7;",
    "cp.async.commit_group;", "cp.async.wait_all;", "cp.async.wait_group 1;",
]  # fmt: skip
FATAL = ["trap;", "brkpt;"]


def covered_forms() -> Iterator[str]:
    yield from (*SYNC, *ARRIVE, *POPC, *LOGIC)
    yield from (text.split(";")[0].split()[0] for text in (*QUIET, *FATAL))


@pytest.mark.parametrize("form", SYNC)
def test_every_warp_waits(form: str) -> None:
    """Each thread hands its number to the next warp, twice through the same words."""
    body = (
        PRELUDE
        + f"""
    shl.b32 %r4, %r1, 2; mov.u32 %r5, words; add.u32 %r6, %r5, %r4; add.u32 %r7, %r1, 32;
    rem.u32 %r7, %r7, 96; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7;
    st.shared.u32 [%r6], %r2; {form} 0; ld.shared.u32 %r8, [%r7]; {form} 0;
    add.u32 %r9, %r8, 1000; st.shared.u32 [%r6], %r9; {form} 3; ld.shared.u32 %r8, [%r7];
    {form} 3, 96; st.global.u32 [%d4], %r8;
    """
    )
    data, out = np.arange(96, dtype="u4") * 7, np.zeros(96, "u4")
    assert run(body, data, out, block=96, locals_=".shared .align 4 .b32 words[96];") == 0
    assert out.tolist() == [(k + 64) % 96 * 7 + 1000 for k in range(96)]


@pytest.mark.parametrize("form", ARRIVE)
def test_arrivals_do_not_wait(form: str) -> None:
    body = (
        PRELUDE
        + f"""
    setp.ge.u32 %p1, %r1, 32; shl.b32 %r4, %r1, 2; mov.u32 %r5, words; add.u32 %r6, %r5, %r4;
    @%p1 bra CONSUMER;
    st.shared.u32 [%r6], %r2; {form} 4, 64; bra END;
    CONSUMER: barrier.sync 4, 64; ld.shared.u32 %r8, [%r6+-128]; st.global.u32 [%d4], %r8;
    END:
    """
    )
    data, out = np.arange(64, dtype="u4") + 5, np.zeros(64, "u4")
    assert run(body, data, out, block=64, locals_=".shared .align 4 .b32 words[64];") == 0
    assert out[32:].tolist() == [k + 5 for k in range(32)]


@pytest.mark.parametrize("form", [*POPC, *LOGIC])
@pytest.mark.parametrize("limit", [0, 1, 40, 96])
def test_reductions(form: str, limit: int) -> None:
    body = PRELUDE + f"setp.lt.u32 %p1, %r1, {limit};"
    if "popc" in form:
        body += f"{form} %r5, 0, %p1; st.global.u32 [%d4], %r5;"
        want = limit
    else:
        body += f"{form} %p2, 2, 96, %p1; selp.u32 %r5, 1, 0, %p2; st.global.u32 [%d4], %r5;"
        want = int(limit == 96 if ".and" in form else limit > 0)
    out = np.full(96, 77, "u4")
    assert run(body, np.zeros(96, "u4"), out, block=96) == 0
    assert out.tolist() == [want] * 96


def test_hints_and_fences_change_nothing() -> None:
    """All of them in one kernel, between a store and a load; registers and memory stay."""
    text = "\n".join(QUIET)
    body = f"""
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    st.local.u32 [buffer], %r1; st.shared.u32 [words], 9; xor.b32 %r2, %r1, 0x5555;
    setp.eq.u32 %p1, %r1, 3; st.global.u32 [%d3], %r2;
    {text}
    @%p1 {text.replace(chr(10), chr(10) + "@%p1 ")}
    ld.global.u32 %r3, [%d3]; ld.local.u32 %r4, [buffer]; ld.shared.u32 %r5, [words];
    add.u32 %r3, %r3, %r4; add.u32 %r3, %r3, %r5; add.u32 %r3, %r3, %r2; st.global.u32 [%d4], %r3;
    """
    places = ".local .align 4 .b32 buffer[4]; .shared .align 4 .b32 words[4];"
    data, out = np.arange(64, dtype="u4") + 500, np.zeros(64, "u4")
    assert run(body, data, out, locals_=places) == 0
    assert data[:32].tolist() == [k ^ 0x5555 for k in range(32)]
    assert data[32:].tolist() == [k + 500 for k in range(32, 64)]
    assert out[:32].tolist() == [2 * (k ^ 0x5555) + k + 9 for k in range(32)]


@pytest.mark.parametrize("text", FATAL)
def test_traps_end_the_launch(text: str) -> None:
    assert run(text) == TRAP
    assert run(f"setp.gt.u32 %p1, %r1, 50; @%p1 {text}") == 0
    assert run(f"setp.gt.u32 %p1, %r1, 30; @%p1 {text}") == TRAP
