"""Every form of the operations across lanes, and of address conversion."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.softgpu_ptx import reference as ref
from tests.unit.softgpu_ptx.reference import F32
from tests.unit.softgpu_ptx.test_memory_forms import run
from tests.unit.softgpu_ptx.test_warp_forms import FULL, PRELUDE, lanes, shuffle_model

MODES = ("all", "any", "uni")
VOTES = [f"vote.sync.{m}.pred" for m in MODES] + [f"vote.{m}.sync.pred" for m in MODES]
BALLOTS = ["vote.sync.ballot.b32", "vote.ballot.sync.b32"]
OLD_VOTES = [*(f"vote.{m}.pred" for m in MODES), "vote.ballot.b32"]
SHUFFLES = [f"shfl{sync}.{m}.b32" for sync in (".sync", "") for m in ("up", "down", "bfly", "idx")]
MATCHES = [f"match.{kind}.sync.b{w}" for kind in ("any", "all") for w in (32, 64)]
REDUX = [f"redux.sync.{form}" for form in
         ["add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"]]  # fmt: skip
REDUX_FLOAT = [
    f"redux.sync.{op}{a}{n}.f32"
    for op in ("min", "max")
    for a in ("", ".abs")
    for n in ("", ".NaN")
]
SPACES = ("global", "const", "shared", "shared::cta", "local", "param", "param::entry")
CVTA = [f"cvta{to}.{space}.u64" for to in ("", ".to") for space in SPACES]
ISSPACEP = [f"isspacep.{space}" for space in SPACES]
OTHERS = ["activemask.b32", "elect.sync"]


def covered_forms() -> Iterator[str]:
    yield from (*VOTES, *BALLOTS, *OLD_VOTES, *SHUFFLES, *MATCHES, *REDUX, *REDUX_FLOAT)
    yield from (*CVTA, *ISSPACEP, *OTHERS)


#: Lanes that take part, and the mask they name.
PARTS = [(FULL, FULL), (0x0FF0FFFF, 0x0FF0FFFF), (0x80000001, 0x80000001), (FULL, 0x00FFFF00)]


def inside(body: str, active: int) -> str:
    """The body in a branch that only these lanes take."""
    return f"""{PRELUDE} mov.u32 %r20, {active}; shr.u32 %r20, %r20, %r1; and.b32 %r20, %r20, 1;
    setp.eq.u32 %p8, %r20, 0; @%p8 bra END; {body}
    END:"""


def members(active: int, mask: int) -> list[int]:
    return [k for k in range(32) if (active & mask) >> k & 1]


@pytest.mark.parametrize(("active", "mask"), PARTS)
@pytest.mark.parametrize("limit", [0, 3, 7])
def test_votes(active: int, mask: int, limit: int) -> None:
    value = (lanes(4) % 7).astype("u4")
    text = [f"setp.lt.u32 %p1, %r2, {limit};"]
    rows = [*VOTES, *BALLOTS, *OLD_VOTES]
    for k, form in enumerate(rows):
        last = f", {mask}" if "sync" in form else ""
        if "ballot" in form:
            text.append(f"{form} %r5, %p1{last};")
        else:
            text.append(f"{form} %p2, %p1{last}; selp.u32 %r5, 1, 0, %p2;")
        text.append(f"st.global.u32 [%d4+{128 * k}], %r5;")
    out = np.zeros((len(rows), 32), "u4")
    assert run(inside(" ".join(text), active), value, out) == 0
    for row, form in zip(out, rows, strict=True):
        present = members(active, mask if "sync" in form else FULL)
        yes = [k for k in present if value[k] < limit]
        want = {"all": yes == present, "any": bool(yes), "uni": yes in ([], present),
                "ballot": sum(1 << k for k in yes)}  # fmt: skip
        mode = next(w for w in form.split(".") if w in want)
        assert [int(row[k]) for k in present] == [int(want[mode])] * len(present), form


@pytest.mark.parametrize("form", SHUFFLES)
@pytest.mark.parametrize("constant", [True, False])
def test_shuffles(form: str, constant: bool) -> None:
    """Widths 2 to 32, source -1 to 40, in both halves of a 64-bit value, with the predicate."""
    mode = next(m for m in ("up", "down", "bfly", "idx") if m in form.split("."))
    value = lanes(2)
    distances = (*range(0, 41, 3), 1, 31, 32, FULL)
    bound = 0 if mode == "up" else 31
    cases = [(b, (32 - width) << 8 | bound) for width in (2, 4, 8, 16, 32) for b in distances]
    text, last = [], ", -1" if "sync" in form else ""
    for k, (b, c) in enumerate(cases):
        operands = f"{b}, {c}" if constant else "%r10, %r11"
        setup = "" if constant else f"mov.u32 %r10, {b}; mov.u32 %r11, {c};"
        text.append(
            f"{setup} {form} %r5|%p1, %r2, {operands}{last}; {form} %r7, %r3, {operands}{last};"
            f"selp.u32 %r6, 1, 0, %p1; st.global.u32 [%d4+{384 * k}], %r5;"
            f"st.global.u32 [%d4+{384 * k + 128}], %r6; st.global.u32 [%d4+{384 * k + 256}], %r7;"
        )
    out = np.zeros((len(cases), 3, 32), "u4")
    assert run(PRELUDE + "not.b32 %r3, %r2;" + "\n".join(text), value, out) == 0
    for k, (b, c) in enumerate(cases):
        for lane in range(32):
            want, ok = shuffle_model(mode, value, lane, b, c)
            assert out[k, :, lane].tolist() == [want, int(ok), ~want & FULL], (b, c, lane)


@pytest.mark.parametrize("form", SHUFFLES[:4])
@pytest.mark.parametrize("mask", [0x1F, 0, 1])
def test_a_wrong_mask_neither_hangs_nor_harms(form: str, mask: int) -> None:
    """A mask written as a number of lanes: the values are undefined, the launch ends well."""
    out = np.zeros(32, "u4")
    body = f"{PRELUDE} {form} %r5|%p1, %r2, 1, 31, {mask}; st.global.u32 [%d4], %r5;"
    assert run(body, lanes(3), out) == 0


@pytest.mark.parametrize(("active", "mask"), PARTS)
@pytest.mark.parametrize("modulus", [1, 5])
def test_matches(active: int, mask: int, modulus: int) -> None:
    value = (lanes(5) % modulus).astype("u4")
    text = ["cvt.u64.u32 %d20, %r2; shl.b64 %d20, %d20, 32;"]
    for k, form in enumerate(MATCHES):
        source = "%d20" if form.endswith("64") else "%r2"
        text.append("setp.ne.u32 %p1, 0, 0;")
        text.append(f"{form} %r5{'|%p1' if '.all.' in form else ''}, {source}, {mask};")
        text.append(f"selp.u32 %r6, 1, 0, %p1; st.global.u32 [%d4+{256 * k}], %r5;")
        text.append(f"st.global.u32 [%d4+{256 * k + 128}], %r6;")
    out = np.zeros((len(MATCHES), 2, 32), "u4")
    assert run(inside(" ".join(text), active), value, out) == 0
    present = members(active, mask)
    for row, form in zip(out, MATCHES, strict=True):
        for k in present:
            equal = [j for j in present if value[j] == value[k]]
            if ".all." in form:
                equal = present if len({int(value[j]) for j in present}) == 1 else []
                assert int(row[1, k]) == int(bool(equal))
            assert int(row[0, k]) == sum(1 << j for j in equal), form


@pytest.mark.parametrize(("active", "mask"), PARTS)
def test_reductions(active: int, mask: int) -> None:
    value = lanes(6)
    floats = lanes(7)
    floats[3], floats[9], floats[20] = F32.infinity | 1, 0x80000000, F32.infinity
    rows = [*REDUX, *REDUX_FLOAT]
    text = ["ld.global.u32 %r3, [%d3+128];"]
    for k, form in enumerate(rows):
        source = "%r3" if form.endswith("f32") else "%r2"
        text.append(f"{form} %r5, {source}, {mask}; st.global.u32 [%d4+{128 * k}], %r5;")
    out = np.zeros((len(rows), 32), "u4")
    assert run(inside(" ".join(text), active), np.concatenate([value, floats]), out) == 0
    present = members(active, mask)
    for row, form in zip(out, rows, strict=True):
        words = form.split(".")
        numbers = [int((floats if "f32" in words else value)[k]) for k in present]
        want = (reduce_floats if "f32" in words else reduce_integers)(words, numbers)
        for k in present:
            got = int(row[k])
            assert got == want or (F32.is_nan(got) and "f32" in words and F32.is_nan(want)), form


def reduce_integers(words: list[str], numbers: list[int]) -> int:
    if "s32" in words:
        numbers = [ref.signed(v, 32) for v in numbers]
    result = numbers[0]
    for v in numbers[1:]:
        result = {"add": result + v, "min": min(result, v), "max": max(result, v),
                  "and": result & v, "or": result | v, "xor": result ^ v}[words[2]]  # fmt: skip
    return result & FULL


def reduce_floats(words: list[str], numbers: list[int]) -> int:
    if "abs" in words:
        numbers = [v & 0x7FFFFFFF for v in numbers]
    real = [v for v in numbers if not F32.is_nan(v)]
    if not real or ("NaN" in words and len(real) < len(numbers)):
        return F32.encode("nan")

    def order(v: int) -> int:
        return -(v & 0x7FFFFFFF) - 1 if v >> 31 else v

    return (min if "min" in words else max)(real, key=order)


def test_leaders_and_active_lanes() -> None:
    for active, mask in PARTS:
        body = f"""activemask.b32 %r5; st.global.u32 [%d4], %r5; elect.sync %r6|%p1, {mask};
        selp.u32 %r7, 1, 0, %p1; st.global.u32 [%d4+128], %r6; st.global.u32 [%d4+256], %r7;"""
        out = np.zeros((3, 32), "u4")
        assert run(inside(body, active), lanes(8), out) == 0
        present = members(active, mask)
        for k in present:
            assert out[:, k].tolist() == [active, present[0], int(k == present[0])]


def test_address_conversion_and_questions() -> None:
    """There and back through every space; each question is asked about an address of each."""
    base = {"global": "%d0", "const": "table", "shared": "words", "local": "buffer", "param": "p0"}
    text = []
    for k, space in enumerate(SPACES):
        text.append(
            f"mov.b64 %d30, {base[space.split('::')[0]]}; add.u64 %d30, %d30, 4;"
            f"cvta.{space}.u64 %d31, %d30; cvta.to.{space}.u64 %d32, %d31; sub.u64 %d33, %d32, %d30;"
            f"st.global.u64 [%d5+{8 * k}], %d33;"
        )
        for n, question in enumerate(ISSPACEP):
            text.append(
                f"{question} %p1, %d31; selp.u32 %r5, 1, 0, %p1;"
                f"st.global.u8 [%d5+{64 + 8 * k + n}], %r5;"
            )
        # what is stored through one address is found through the other
        if space not in ("const", "param", "param::entry"):
            text.append(
                f"st.{space}.u32 [%d30], %r1; ld.u32 %r6, [%d31]; sub.u32 %r6, %r6, %r1;"
                f"st.global.u32 [%d5+{128 + 4 * k}], %r6;"
            )
    body = "mul.wide.u32 %d2, %r1, 192; add.u64 %d5, %d1, %d2; add.u64 %d0, %d0, %d2;" + " ".join(
        text
    )
    places = ".shared .align 4 .b32 words[4]; .local .align 4 .b32 buffer[4];"
    body += "st.shared.u32 [words], 1; st.local.u32 [buffer], 2; ld.const.u32 %r7, [table];"
    out = np.full(32 * 192, 255, "u1")
    module = ".const .align 4 .u32 table[3] = {5, 6, 7};"
    data = np.zeros(32 * 192, "u1")
    # one lane: shared memory is one place for all of them
    assert run(body, data, out, module=module, locals_=places, block=1) == 0
    kinds = [s.split("::")[0] for s in SPACES]
    lane = out[:192]
    assert lane[:56].view("u8").tolist() == [0] * 7
    for k, kind in enumerate(kinds):
        assert lane[64 + 8 * k :][:7].tolist() == [int(kind == other) for other in kinds], kind
    assert all(
        v == 0 for k, v in enumerate(lane[128:156].view("u4")) if kinds[k] not in ("const", "param")
    )
