"""Operations across lanes, barriers, special registers, control flow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.softgpu_ptx.test_memory_forms import kernel, run

FULL = 0xFFFFFFFF


def lanes(seed: int = 1, bits: int = 32) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, 1 << 63, 32, dtype="u8") * np.uint64(2)
    return (values & np.uint64((1 << bits) - 1)).astype(f"u{bits // 8}")


PRELUDE = """
mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2; ld.global.u32 %r2, [%d3];
"""


# ---------------------------------------------------------------------- shuffles
def shuffle_model(mode: str, value: np.ndarray, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The definition in the PTX manual."""
    b, mask, bound = b & 31, c >> 8 & 31, c & 31
    lowest = lane & mask
    limit = lowest | bound & ~mask & 31
    source = {"up": lane - b, "down": lane + b, "bfly": lane ^ b,
              "idx": lowest | b & ~mask & 31}[mode]  # fmt: skip
    ok = source >= limit if mode == "up" else source <= limit
    return int(value[source if ok else lane]), ok


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("constant", [True, False])
def test_shuffle(mode: str, constant: bool) -> None:
    value = lanes(2)
    distances = (0, 1, 3, 7, 15, 16, 31, 40, 0xFFFFFFFF)
    bound = 0 if mode == "up" else 31
    cases = [(b, (32 - width) << 8 | bound) for width in (2, 4, 8, 16, 32) for b in distances]
    text = []
    for k, (b, c) in enumerate(cases):
        operands = f"{b}, {c}" if constant else "%r10, %r11"
        setup = "" if constant else f"mov.u32 %r10, {b}; mov.u32 %r11, {c};"
        text.append(
            f"{setup} shfl.sync.{mode}.b32 %r5|%p1, %r2, {operands}, -1;"
            f"selp.u32 %r6, 1, 0, %p1; st.global.u32 [%d4+{256 * k}], %r5;"
            f"st.global.u32 [%d4+{256 * k + 128}], %r6;"
        )
    out = np.zeros((len(cases), 2, 32), "u4")
    assert run(PRELUDE + "\n".join(text), value, out) == 0
    for k, (b, c) in enumerate(cases):
        for lane in range(32):
            want = shuffle_model(mode, value, lane, b, c)
            assert (int(out[k, 0, lane]), bool(out[k, 1, lane])) == want, (b, c, lane)


def test_shuffle_with_a_distance_for_each_lane() -> None:
    value = lanes(3)
    body = (
        PRELUDE
        + """
    xor.b32 %r5, %r1, 21; shfl.sync.idx.b32 %r6, %r2, %r5, 31, -1; st.global.u32 [%d4], %r6;
    """
    )
    out = np.zeros(32, "u4")
    assert run(body, value, out) == 0
    assert out.tolist() == [int(value[k ^ 21]) for k in range(32)]


# ---------------------------------------------------------------------- votes, match, redux
def test_votes_with_part_of_the_warp() -> None:
    value = lanes(4) % 7
    body = (
        PRELUDE
        + """
    setp.lt.u32 %p1, %r2, 3; setp.ne.u32 %p2, %r1, 9; @!%p2 bra END;
    vote.sync.ballot.b32 %r5, %p1, 0xfffffdff; st.global.u32 [%d4], %r5;
    vote.sync.any.pred %p3, %p1, 0xfffffdff; selp.u32 %r6, 1, 0, %p3; st.global.u32 [%d4+128], %r6;
    vote.sync.all.pred %p3, !%p1, 0x0000fdff; selp.u32 %r6, 1, 0, %p3; st.global.u32 [%d4+256], %r6;
    vote.sync.uni.pred %p3, %p1, 0xfffffdff; selp.u32 %r6, 1, 0, %p3; st.global.u32 [%d4+384], %r6;
    activemask.b32 %r7; st.global.u32 [%d4+512], %r7;
    END:
    """
    )
    out = np.zeros((5, 32), "u4")
    assert run(body, value.astype("u4"), out) == 0
    active = [k for k in range(32) if k != 9]
    small = [k for k in active if value[k] < 3]
    want = [
        sum(1 << k for k in small),
        int(bool(small)),
        int(not any(k < 16 for k in small)),
        int(len(small) in (0, len(active))),
        sum(1 << k for k in active),
    ]
    for row, expected in zip(out, want, strict=True):
        assert [int(row[k]) for k in active] == [expected] * 31
        assert row[9] == 0


@pytest.mark.parametrize("width", [32, 64])
def test_match(width: int) -> None:
    value = (lanes(5, width) % 5).astype(f"u{width // 8}")
    r = {32: "%r20", 64: "%d20"}[width]
    body = f"""
    mul.wide.u32 %d2, %r1, {width // 8}; add.u64 %d3, %d0, %d2; ld.global.b{width} {r}, [%d3];
    mul.wide.u32 %d5, %r1, 4; add.u64 %d4, %d1, %d5;
    match.any.sync.b{width} %r5, {r}, -1; st.global.u32 [%d4], %r5;
    match.all.sync.b{width} %r6|%p1, {r}, -1; st.global.u32 [%d4+128], %r6;
    mov.b{width} {r}, 7; match.all.sync.b{width} %r6|%p1, {r}, -1;
    selp.u32 %r7, %r6, 0, %p1; st.global.u32 [%d4+256], %r7;
    """
    out = np.zeros((3, 32), "u4")
    assert run(body, value, out) == 0
    want = [sum(1 << j for j in range(32) if value[j] == value[k]) for k in range(32)]
    assert out[0].tolist() == want
    assert out[1].tolist() == [0] * 32
    assert out[2].tolist() == [FULL] * 32


REDUCTIONS = "add.u32 add.s32 min.u32 max.u32 min.s32 max.s32 and.b32 or.b32 xor.b32"


@pytest.mark.parametrize("form", REDUCTIONS.split())
def test_redux(form: str) -> None:
    value = lanes(6)
    body = (
        PRELUDE
        + f"""
    setp.lt.u32 %p1, %r1, 12; @%p1 bra LOW;
    redux.sync.{form} %r5, %r2, 0xfffff000; st.global.u32 [%d4], %r5; bra END;
    LOW: redux.sync.{form} %r5, %r2, 0x00000fff; st.global.u32 [%d4], %r5;
    END:
    """
    )
    out = np.zeros(32, "u4")
    assert run(body, value, out) == 0
    op, kind = form.split(".")
    for part in (range(12), range(12, 32)):
        numbers = [int(value[k]) for k in part]
        if kind == "s32":
            numbers = [v - (1 << 32) if v >> 31 else v for v in numbers]
        result = numbers[0]
        for v in numbers[1:]:
            result = {"add": result + v, "min": min(result, v), "max": max(result, v),
                      "and": result & v, "or": result | v, "xor": result ^ v}[op]  # fmt: skip
        assert [int(out[k]) for k in part] == [result & FULL] * len(part)


# ---------------------------------------------------------------------- barriers
def test_barrier_reductions() -> None:
    body = (
        PRELUDE
        + """
    and.b32 %r3, %r2, 1; setp.eq.u32 %p1, %r3, 1;
    bar.red.popc.u32 %r5, 0, %p1; bar.red.or.pred %p2, 0, %p1; barrier.red.and.pred %p3, 0, !%p1;
    selp.u32 %r6, 1, 0, %p2; selp.u32 %r7, 1, 0, %p3; st.global.u32 [%d4], %r5;
    st.global.u32 [%d4+512], %r6; st.global.u32 [%d4+1024], %r7;
    """
    )
    data = np.random.default_rng(8).integers(0, 2, 100).astype("u4")
    for values in (data, np.zeros(100, "u4")):
        padded = np.concatenate([values, np.zeros(28, "u4")])
        out = np.zeros((3, 128), "u4")
        assert run(body, padded, out, block=100) == 0
        count = int(values.sum())
        assert out[0, :100].tolist() == [count] * 100
        assert out[1, :100].tolist() == [int(count > 0)] * 100
        assert out[2, :100].tolist() == [int(count == 0)] * 100


def test_barriers_in_both_arms_of_a_branch() -> None:
    """Since Volta each thread waits for itself: the arms may use different barrier instructions."""
    body = (
        PRELUDE
        + """
    and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0; shl.b32 %r4, %r1, 2; mov.u32 %r5, words;
    add.u32 %r6, %r5, %r4; xor.b32 %r7, %r1, 1; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7;
    @%p1 bra EVEN;
    st.shared.u32 [%r6], %r2; barrier.sync 0; ld.shared.u32 %r8, [%r7];
    add.u32 %r8, %r8, 1000; bra END;
    EVEN: st.shared.u32 [%r6], %r2; barrier.sync 0; ld.shared.u32 %r8, [%r7];
    END: st.global.u32 [%d4], %r8;
    """
    )
    data, out = np.arange(64, dtype="u4"), np.zeros(64, "u4")
    assert run(body, data, out, block=64, locals_=".shared .align 4 .b32 words[64];") == 0
    assert out.tolist() == [(k ^ 1) + (1000 if k & 1 else 0) for k in range(64)]


def test_barrier_in_a_loop_with_different_counts() -> None:
    """Threads that have left the loop wait at the barrier behind it."""
    body = (
        PRELUDE
        + """
    mov.u32 %r5, 0; add.u32 %r6, %r1, 1;
    LOOP: bar.sync 0; add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r6; @%p1 bra LOOP;
    st.global.u32 [%d4], %r5;
    """
    )
    out = np.zeros(64, "u4")
    assert run(body, np.zeros(64, "u4"), out, block=64) == 0
    assert out.tolist() == [k + 1 for k in range(64)]


def test_named_barriers() -> None:
    """Producer warps arrive, consumer warps wait."""
    body = (
        PRELUDE
        + """
    setp.ge.u32 %p1, %r1, 32; shl.b32 %r4, %r1, 2; mov.u32 %r5, words; add.u32 %r6, %r5, %r4;
    @%p1 bra CONSUMER;
    st.shared.u32 [%r6], %r2; bar.arrive 1, 64; bra END;
    CONSUMER: mov.u32 %r9, 1; bar.sync %r9, 64; ld.shared.u32 %r8, [%r6+-128];
    st.global.u32 [%d4], %r8;
    END:
    """
    )
    out = np.zeros(64, "u4")
    data = np.arange(64, dtype="u4") + 5
    assert run(body, data, out, block=64, locals_=".shared .align 4 .b32 words[64];") == 0
    assert out[32:].tolist() == [k + 5 for k in range(32)]


def test_arrival_under_a_predicate_that_is_false() -> None:
    """Two of three warps arrive at the barrier that the third waits at."""
    body = (
        PRELUDE
        + """
    setp.lt.u32 %p1, %r1, 32; setp.ge.u32 %p2, %r1, 32; setp.lt.u32 %p3, %r1, 64;
    shl.b32 %r4, %r1, 2; mov.u32 %r5, words; add.u32 %r6, %r5, %r4; st.shared.u32 [%r6], %r2;
    @%p1 bar.arrive 2, 96;
    @%p1 bra END;
    @!%p3 bra WAIT;
    bar.arrive 2, 96; bra END;
    WAIT: @!%p2 bar.arrive 2, 96;
    bar.sync 2, 96; ld.shared.u32 %r8, [%r6+-256]; ld.shared.u32 %r9, [%r6+-128];
    add.u32 %r8, %r8, %r9; st.global.u32 [%d4], %r8;
    END:
    """
    )
    out, data = np.zeros(96, "u4"), np.arange(96, dtype="u4")
    assert run(body, data, out, block=96, locals_=".shared .align 4 .b32 words[96];") == 0
    assert out[64:].tolist() == [k + k + 32 for k in range(32)]


# ---------------------------------------------------------------------- special registers
def test_special_registers() -> None:
    names = ["tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y",
             "ctaid.z", "nctaid.x", "nctaid.y", "nctaid.z", "laneid", "warpid", "nwarpid",
             "lanemask_eq",
             "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge", "dynamic_smem_size",
             "total_smem_size"]  # fmt: skip
    text = "\n".join(
        f"mov.u32 %r9, %{n}; st.global.u32 [%d6+{4 * k}], %r9;" for k, n in enumerate(names)
    )
    body = f"""
    mov.u32 %r10, %ntid.x; mov.u32 %r11, %ntid.y; mov.u32 %r12, %tid.y; mov.u32 %r13, %tid.z;
    mad.lo.u32 %r14, %r13, %r11, %r12; mad.lo.u32 %r14, %r14, %r10, %r1;
    mov.u32 %r15, %ctaid.x; mov.u32 %r16, %ctaid.y; mov.u32 %r17, %ctaid.z; mov.u32 %r18, %nctaid.x;
    mov.u32 %r19, %nctaid.y; mad.lo.u32 %r20, %r17, %r19, %r16; mad.lo.u32 %r20, %r20, %r18, %r15;
    mad.lo.u32 %r21, %r20, {5 * 3 * 4}, %r14; mul.wide.u32 %d5, %r21, {4 * len(names)};
    add.u64 %d6, %d0, %d5; {text}
    """
    module = kernel(body, 1, locals_=".shared .align 4 .b32 some[3];"
                    ).text.replace("ret; }", "st.shared.u32 [some], 1; ret; }")  # fmt: skip
    from tests.unit.softgpu_ptx.harness import Module

    out = np.zeros((2, 3, 2, 4, 3, 5, len(names)), "u4")
    assert Module(module).launch("t", (2, 3, 2), (5, 3, 4), [out], shared=40).kind == 0
    for index in np.ndindex(*out.shape[:-1]):
        cz, cy, cx, tz, ty, tx = index
        thread = (tz * 3 + ty) * 5 + tx
        lane = thread % 32
        bit = 1 << lane
        want = [tx, ty, tz, 5, 3, 4, cx, cy, cz, 2, 3, 2, lane, thread // 32, 2, bit, bit - 1,
                2 * bit - 1, FULL ^ (2 * bit - 1), FULL ^ (bit - 1), 40, 56]  # fmt: skip
        assert out[index].tolist() == want


def test_clocks_go_forward() -> None:
    body = """
    mov.u64 %d4, %clock64; mov.u64 %d5, %globaltimer; mov.u32 %r4, %clock; nanosleep.u32 100;
    mov.u64 %d6, %clock64; mov.u64 %d7, %globaltimer; sub.u64 %d6, %d6, %d4; sub.u64 %d7, %d7, %d5;
    st.global.u64 [%d0], %d6; st.global.u64 [%d0+8], %d7; st.global.u64 [%d0+16], %d5;
    """
    out = np.zeros(3, "u8")
    assert run(body, out) == 0
    assert 0 < out[0] < 1 << 40
    assert out[1] < 1 << 40
    assert out[2] > 1 << 60


# ---------------------------------------------------------------------- control flow
def test_branch_table() -> None:
    body = (
        PRELUDE
        + """
    and.b32 %r3, %r2, 3;
    TABLE: .branchtargets A, B, C, A;
    brx.idx %r3, TABLE;
    A: mov.u32 %r5, 10; bra.uni END;
    B: mov.u32 %r5, 20; bra END;
    C: add.u32 %r5, %r1, 100;
    END: st.global.u32 [%d4], %r5;
    """
    )
    data, out = lanes(9), np.zeros(32, "u4")
    assert run(body, data, out) == 0
    choices = [10, 20, None, 10]
    assert out.tolist() == [
        100 + k if (c := choices[int(data[k]) & 3]) is None else c for k in range(32)
    ]


def test_calls_are_expanded_with_their_own_registers() -> None:
    module = """
    .func (.param .b32 result) twice(.param .b32 value) {
      .reg .b32 %r<4>; .reg .pred %p<2>;
      ld.param.u32 %r1, [value]; setp.gt.u32 %p1, %r1, 100; @%p1 bra BIG;
      shl.b32 %r2, %r1, 1; st.param.b32 [result+0], %r2; ret;
      BIG: mov.u32 %r2, 7; st.param.b32 [result+0], %r2; ret;
    }
    .func (.param .align 8 .b8 result[16]) pair(.param .b32 value, .param .b64 other) {
      .reg .b32 %r<4>; .reg .b64 %d<4>;
      ld.param.u32 %r1, [value]; ld.param.u64 %d1, [other];
      { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call.uni (out), twice, (in);
        ld.param.b32 %r2, [out]; }
      cvt.u64.u32 %d2, %r2; st.param.v2.b64 [result], {%d1, %d2}; ret;
    }
    """
    body = (
        PRELUDE
        + """
    setp.ne.u32 %p1, %r1, 3; mov.u64 %d20, 99;
    { .param .b32 a; .param .b64 b; .param .align 8 .b8 r[16];
      st.param.b32 [a], %r2; st.param.b64 [b], %d9;
      call (r), pair, (a, b);
      ld.param.v2.b64 {%d10, %d11}, [r]; }
    cvt.u32.u64 %r5, %d10; cvt.u32.u64 %r6, %d11; st.global.u32 [%d4], %r5;
    st.global.u32 [%d4+128], %r6;
    """
    )
    data, out = lanes(10) % 200, np.zeros((2, 32), "u4")
    assert run(body, data.astype("u4"), out, module=module) == 0
    assert out[0].tolist() == list(range(32))
    assert out[1].tolist() == [int(2 * v if v <= 100 else 7) for v in data]


def test_nested_divergent_loops() -> None:
    """A continue edge, a break and an inner loop: each lane as if it were alone."""
    body = (
        PRELUDE
        + """
    mov.u32 %r5, 0; mov.u32 %r6, 0; and.b32 %r7, %r2, 15;
    OUTER: add.u32 %r5, %r5, 1; setp.gt.u32 %p1, %r5, %r7; @%p1 bra END;
    rem.u32 %r8, %r5, 3; setp.eq.u32 %p2, %r8, 0; @%p2 bra OUTER;
    mov.u32 %r9, 0;
    INNER: add.u32 %r6, %r6, %r9; add.u32 %r9, %r9, 1; setp.ge.u32 %p3, %r6, 60; @%p3 bra END;
    setp.lt.u32 %p4, %r9, %r5; @%p4 bra INNER;
    bra OUTER;
    END: st.global.u32 [%d4], %r6; vote.sync.ballot.b32 %r10, %p3, -1;
    st.global.u32 [%d4+128], %r10;
    """
    )

    def model(v: int) -> int:
        total, i = 0, 0
        while True:
            i += 1
            if i > v & 15:
                return total
            if i % 3 == 0:
                continue
            for j in range(i):
                total += j
                if total >= 60:
                    return total

    data, out = lanes(11), np.zeros((2, 32), "u4")
    assert run(body, data, out) == 0
    want = [model(int(v)) for v in data]
    assert out[0].tolist() == want
    # all lanes have met again at END: the ballot sees the whole warp
    assert len(set(out[1].tolist())) == 1


def test_irreducible_flow() -> None:
    body = (
        PRELUDE
        + """
    and.b32 %r3, %r2, 1; mov.u32 %r5, 0; setp.eq.u32 %p1, %r3, 0; @%p1 bra SECOND;
    FIRST: add.u32 %r5, %r5, 3; setp.gt.u32 %p2, %r5, 40; @%p2 bra END;
    SECOND: add.u32 %r5, %r5, 5; setp.gt.u32 %p2, %r5, 40; @%p2 bra END; bra FIRST;
    END: st.global.u32 [%d4], %r5;
    """
    )

    def model(v: int) -> int:
        total, second = 0, v & 1 == 0
        while True:
            if not second:
                total += 3
                if total > 40:
                    return total
            second = False
            total += 5
            if total > 40:
                return total

    data, out = lanes(12), np.zeros(32, "u4")
    assert run(body, data, out) == 0
    assert out.tolist() == [model(int(v)) for v in data]


def test_lanes_waiting_for_lanes_of_their_warp() -> None:
    """A lock whose holder releases it behind the loop: the waiting lanes must let it pass."""
    body = """
    LOCK: atom.global.cas.b32 %r5, [%d0], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra LOCK;
    ld.volatile.global.u32 %r6, [%d0+4]; add.u32 %r6, %r6, 1; st.volatile.global.u32 [%d0+4], %r6;
    membar.gl; atom.global.exch.b32 %r7, [%d0], 0;
    """
    out = np.zeros(2, "u4")
    assert run(body, out, block=64) == 0
    assert out.tolist() == [0, 64]


def test_waiting_for_another_warp() -> None:
    body = """
    setp.ge.u32 %p1, %r1, 32; @%p1 bra PRODUCER;
    WAIT: ld.acquire.gpu.global.u32 %r5, [%d0]; setp.eq.u32 %p2, %r5, 0; @%p2 bra WAIT;
    st.global.u32 [%d0+4], %r5; bra END;
    PRODUCER: st.release.gpu.global.u32 [%d0], 17;
    END:
    """
    out = np.zeros(2, "u4")
    assert run(body, out, block=64) == 0
    assert out.tolist() == [17, 17]


# ---------------------------------------------------------------------- members that come later
def test_members_that_took_another_way_are_waited_for() -> None:
    """Half of the warp goes round the loop once more before it meets the others' shuffle."""
    body = (
        PRELUDE
        + """
    and.b32 %r3, %r1, 1; mov.u32 %r5, 0; setp.eq.u32 %p1, %r3, 0;
    LOOP: add.u32 %r5, %r5, 1; setp.eq.u32 %p2, %r5, 1; @!%p2 bra MEET;
    @%p1 bra LATCH;
    MEET: shfl.sync.bfly.b32 %r6, %r2, 1, 31, -1; bra END;
    LATCH: bra LOOP;
    END: st.global.u32 [%d4], %r6;
    """
    )
    data, out = lanes(20), np.zeros(32, "u4")
    assert run(body, data, out) == 0
    assert out.tolist() == [int(data[k ^ 1]) for k in range(32)]


def test_masks_of_groups_in_registers() -> None:
    """Two groups in one block, each with its own mask; lanes arrive through different branches."""
    body = (
        PRELUDE
        + """
    setp.lt.u32 %p1, %r1, 16; selp.b32 %r3, 0x0000ffff, 0xffff0000, %p1; mov.u32 %r5, 0;
    and.b32 %r4, %r1, 3; setp.eq.u32 %p2, %r4, 0; @%p2 bra SLOW;
    BACK: shfl.sync.idx.b32 %r6, %r2, 4, 0x101f, %r3; add.u32 %r6, %r6, %r5; bra END;
    SLOW: mov.u32 %r5, 1; bra BACK;
    END: st.global.u32 [%d4], %r6;
    """
    )
    data, out = lanes(21), np.zeros(32, "u4")
    assert run(body, data, out) == 0
    want = [(int(data[k & 16 | 4]) + (k % 4 == 0)) & FULL for k in range(32)]
    assert out.tolist() == want


def test_members_that_never_come_do_not_hang_the_warp() -> None:
    """A mask that names lanes of the other branch, and one that names lanes that have ended."""
    body = (
        PRELUDE
        + """
    setp.ge.u32 %p3, %r1, 24; @%p3 ret; setp.lt.u32 %p1, %r1, 8; @%p1 bra LOW;
    vote.sync.ballot.b32 %r6, %p1, -1; st.global.u32 [%d4], %r6; bra END;
    LOW: vote.sync.ballot.b32 %r6, %p1, -1; st.global.u32 [%d4], %r6; bra END;
    END: vote.sync.ballot.b32 %r6, %p1, -1; st.global.u32 [%d4+128], %r6;
    LOOP: vote.sync.any.pred %p2, %p1, -1; add.u32 %r1, %r1, 100; setp.lt.u32 %p1, %r1, 500;
    @%p1 bra LOOP;
    """
    )
    out = np.zeros((2, 32), "u4")
    assert run(body, lanes(22), out) == 0
    assert out[0].tolist() == [0xFF] * 8 + [0] * 24
    assert out[1].tolist() == [0xFF] * 24 + [0] * 8
