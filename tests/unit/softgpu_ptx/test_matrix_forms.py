"""mma, ldmatrix, stmatrix, cp.async, against matrices put together as the PTX manual says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from remoting.softgpu.ptx import UnsupportedForm
from tests.unit.softgpu_ptx.harness import HERE, Module
from tests.unit.softgpu_ptx.reference import F16, F64
from tests.unit.softgpu_ptx.reference import fma as exact_fma
from tests.unit.softgpu_ptx.test_memory_forms import ILLEGAL, MISALIGNED, kernel, run

ILLEGAL_INSTRUCTION = 5


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------- fragments
# Where element i of lane l lies, as the manual's tables say: (row, column).
def place_a(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane & 3
    if kind in ("f16", "bf16"):
        row = group if i in (0, 1, 4, 5) else group + 8
        return row, t * 2 + (i & 1) + (8 if i >= 4 else 0)
    if kind == "tf32":
        return (group if i in (0, 2) else group + 8), (t if i < 2 else t + 4)
    if kind == "f64":
        return group, t
    if shape == "m8n8k16":
        return group, t * 4 + i
    if shape == "m16n8k16":
        return (group if i < 4 else group + 8), t * 4 + (i & 3)
    row = group if 0 <= i < 4 or 8 <= i < 12 else group + 8
    return row, t * 4 + (i & 3) + (0 if i < 8 else 16)


def place_b(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane & 3
    if kind in ("f16", "bf16"):
        return t * 2 + (i & 1) + (8 if i >= 2 else 0), group
    if kind == "tf32":
        return t + 4 * i, group
    if kind == "f64":
        return t, group
    return t * 4 + (i & 3) + (0 if i < 4 else 16), group


def place_c(lane: int, i: int) -> tuple[int, int]:
    group, t = lane >> 2, lane & 3
    return (group if i < 2 else group + 8), t * 2 + (i & 1)


def gather(matrix: np.ndarray, place: object, count: int) -> np.ndarray:
    """The lanes' elements: [lane][i]."""
    assert callable(place)
    return np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)])


def scatter(fragment: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    matrix = np.zeros(shape, fragment.dtype)
    for lane in range(32):
        for i in range(fragment.shape[1]):
            matrix[place_c(lane, i)] = fragment[lane, i]
    return matrix


def multiply(form: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: str) -> np.ndarray:
    """Run one mma; a and b hold bits, c and the result numbers of the accumulator's type."""
    shape = form.split(".")[3]
    m, k = a.shape
    fragments = [
        gather(a, lambda lane, i: place_a(shape, kind, lane, i), m * k // 32),
        gather(b, lambda lane, i: place_b(shape, kind, lane, i), k * 8 // 32),
        gather(c, place_c, m * 8 // 32),
    ]
    wide = kind == "f64"
    words = [np.ascontiguousarray(f).view("u8" if wide else "u4") for f in fragments]
    out = np.zeros_like(words[2])
    size, letter = (8, "d") if wide else (4, "r")
    lines, names, number = [], [], 20
    for which, word in enumerate(words):
        count = word.shape[1]
        lines.append(f"mad.lo.u64 %d10, %d9, {size * count}, %d{which};")
        regs = [f"%{letter}{number + n}" for n in range(count)]
        number += count
        lines += [f"ld.global.b{8 * size} {reg}, [%d10+{size * n}];" for n, reg in enumerate(regs)]
        names.append(regs)
    results = [f"%{letter}{number + n}" for n in range(len(names[2]))]
    joined = [f"{{{', '.join(n)}}}" for n in (results, *names)]
    lines.append(f"{form} {', '.join(joined)};")
    lines.append(f"mad.lo.u64 %d10, %d9, {size * len(results)}, %d3;")
    lines += [f"st.global.b{8 * size} [%d10+{size * n}], {r};" for n, r in enumerate(results)]
    assert run("\n".join(lines), *words, out) == 0
    return scatter(out.view(c.dtype), c.shape)


def bits_of(kind: str, values: np.ndarray) -> np.ndarray:
    if kind == "f16":
        return values.astype("f2").view("u2")
    wide = values.astype("f4").view("u4")
    return (wide >> 16).astype("u2") if kind == "bf16" else wide


FLOAT_FORMS = [
    (f"m16n8k{k}", kind, accumulator)
    for kind, sizes, accumulators in (
        ("f16", (8, 16), ("f32", "f16")),
        ("bf16", (8, 16), ("f32",)),
        ("tf32", (4, 8), ("f32",)),
    )
    for k in sizes
    for accumulator in accumulators
]


@pytest.mark.parametrize(("shape", "kind", "accumulator"), FLOAT_FORMS)
def test_product_of_small_numbers_is_exact(shape: str, kind: str, accumulator: str) -> None:
    k = int(shape.split("k")[1])
    a, b, c = (rng(3).integers(-8, 9, s) for s in ((16, k), (k, 8), (16, 8)))
    form = f"mma.sync.aligned.{shape}.row.col.{accumulator}.{kind}.{kind}.{accumulator}"
    start = c.astype("f4" if accumulator == "f32" else "f2")
    got = multiply(form, bits_of(kind, a), bits_of(kind, b), start, kind)
    assert np.array_equal(got.astype("f8"), (a @ b + c).astype("f8"))


@pytest.mark.parametrize(("shape", "kind", "accumulator"), FLOAT_FORMS)
def test_product_of_any_numbers(shape: str, kind: str, accumulator: str) -> None:
    k = int(shape.split("k")[1])
    a, b, c = (rng(4).standard_normal(s).astype("f4") for s in ((16, k), (k, 8), (16, 8)))
    if kind == "tf32":  # the low bits count for nothing
        a, b = ((v.view("u4") | 0x1FFF).view("f4") for v in (a, b))
        exact = [(v.view("u4") & 0xFFFFE000).view("f4").astype("f8") for v in (a, b)]
    elif kind == "bf16":
        exact = [(v.view("u4") & 0xFFFF0000).view("f4").astype("f8") for v in (a, b)]
    else:
        exact = [v.astype("f2").astype("f8") for v in (a, b)]
    form = f"mma.sync.aligned.{shape}.row.col.{accumulator}.{kind}.{kind}.{accumulator}"
    start = c.astype("f4" if accumulator == "f32" else "f2")
    got = multiply(form, bits_of(kind, a), bits_of(kind, b), start, kind)
    want = exact[0] @ exact[1] + start
    unit = 2.0**-22 if accumulator == "f32" else 2.0**-10
    size = np.abs(exact[0]) @ np.abs(exact[1]) + np.abs(start)
    assert np.all(np.abs(got - want) <= unit * size)


def test_special_values() -> None:
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8), "f4")
    a[0, 0], b[0, 0], a[1, 3] = np.inf, 0.0, np.inf  # inf * 0, inf * 1
    b[3, :] = 1
    a[2, 0], a[2, 1], b[0, 5], b[1, 5] = 65504.0, 2.0**-24, 65504.0, 2.0**-24
    form = "mma.sync.aligned.m16n8k16.row.col.{0}.f16.f16.{0}"
    given = bits_of("f16", a), bits_of("f16", b)
    single = multiply(form.format("f32"), *given, c, "f16")
    half = multiply(form.format("f16"), *given, c.astype("f2"), "f16")
    for got in (single, half):
        assert np.all(np.isnan(got[0, :5]))
        assert np.all(np.isposinf(got[1, 1:5]))
    assert single[2, 5] == 65504.0**2
    assert np.isposinf(half[2, 5])
    assert int(half.view("u2")[0, 0]) == F16.infinity | 0x3FF  # the canonical NaN


@pytest.mark.parametrize("shape", ["m8n8k16", "m16n8k16", "m16n8k32"])
@pytest.mark.parametrize("types", ["s8.s8", "s8.u8", "u8.s8", "u8.u8"])
@pytest.mark.parametrize("saturate", ["", ".satfinite"])
def test_integer_product(shape: str, types: str, saturate: str) -> None:
    m, k = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    a, b = (
        rng(5).integers(0, 256, s).astype("u1").view("i1" if t == "s8" else "u1")
        for s, t in zip(((m, k), (k, 8)), types.split("."), strict=True)
    )
    a[0], b[:, 0] = a.dtype.type(127), b.dtype.type(-128 if b.dtype == "i1" else 255)
    c = rng(6).integers(-(1 << 31), 1 << 31, (m, 8)).astype("i4")
    c[0, 0], c[0, 1], c[1, 1], c[2, 2] = -(1 << 31), (1 << 31) - 1, (1 << 31) - 1, -(1 << 31)
    exact = a.astype("i8") @ b.astype("i8") + c.astype("i8")
    want = np.clip(exact, -(1 << 31), (1 << 31) - 1) if saturate else exact
    form = f"mma.sync.aligned.{shape}.row.col{saturate}.s32.{types}.s32"
    got = multiply(form, a.view("u1"), b.view("u1"), c, "int8")
    assert np.array_equal(got, want.astype("u8").astype("u4").view("i4"))


def test_double_product_is_a_chain_of_fused_operations() -> None:
    a, b, c = (rng(7).standard_normal(s) for s in ((8, 4), (4, 8), (8, 8)))
    form = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    got = multiply(form, a.view("u8"), b.view("u8"), c, "f64")
    for i in range(8):
        for j in range(8):
            total = Fraction(c[i, j])
            for k in range(4):
                bits = F64.encode(exact_fma(Fraction(a[i, k]), Fraction(b[k, j]), total))
                total = F64.decode(bits)  # type: ignore[assignment]
            assert got[i, j] == float(total)


# ---------------------------------------------------------------------- divergence
MMA = """
mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r2, %r3}, {%r4},
 {%f5, %f6, %f7, %f8};
"""


def test_lanes_that_went_apart_meet_again() -> None:
    body = f"""
    setp.lt.u32 %p1, %r1, 5; mov.b32 %r2, 0x3c003c00; mov.b32 %r3, 0x3c003c00;
    mov.b32 %r4, 0x3c003c00; mov.f32 %f5, 0f00000000; mov.f32 %f6, %f5; mov.f32 %f7, %f5;
    mov.f32 %f8, %f5;
    @%p1 bra LATER;
    add.f32 %f5, %f5, 0f3f800000; bra JOIN;
    LATER: add.f32 %f5, %f5, 0f40000000;
    JOIN: {MMA}
    mad.lo.u64 %d10, %d9, 4, %d0; st.global.f32 [%d10], %f1;
    """
    out = np.zeros(32, "f4")
    assert run(body, out) == 0
    assert out.tolist() == [10.0] * 5 + [9.0] * 27


def test_a_part_of_a_warp_is_a_fault() -> None:
    guard = "setp.lt.u32 %p1, %r1, 5; @%p1 "
    assert run(guard + MMA.strip()) == ILLEGAL_INSTRUCTION
    assert run(MMA, block=24) == ILLEGAL_INSTRUCTION
    assert run("setp.gt.u32 %p1, %r1, 50; @%p1 " + MMA.strip()) == 0


# ---------------------------------------------------------------------- ldmatrix, stmatrix
SPACES = (".shared", ".shared::cta", "")
SHARED = ".shared .align 16 .b8 s[2048];"
FILL = """
shl.b32 %r2, %r1, 6; mov.u64 %d10, s; cvt.u64.u32 %d11, %r2; add.u64 %d10, %d10, %d11;
add.u64 %d12, %d0, %d11;
"""
FILL += " ".join(
    f"ld.global.b64 %d13, [%d12+{k}]; st.shared.b64 [%d10+{k}], %d13;" for k in range(0, 64, 8)
)
FILL += "bar.warp.sync -1;"


def scattered_rows(count: int) -> np.ndarray:
    """Rows of 16 bytes in any order; lanes whose address does not count have a bad one."""
    order = rng(8).permutation(128)[:32].astype("u4") * 16
    order[8 * count :] = 12345
    return order


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("space", SPACES)
def test_load_matrix(count: int, trans: str, space: str) -> None:
    data = rng(9).integers(0, 1 << 16, 1024).astype("u2")
    rows = scattered_rows(count)
    out = np.zeros((32, 4), "u4")
    regs = ", ".join(f"%r{20 + k}" for k in range(count))
    stores = " ".join(f"st.global.b32 [%d15+{4 * k}], %r{20 + k};" for k in range(count))
    if space:
        where = "mov.u32 %r4, s; add.u32 %r4, %r4, %r3;"
        pointer = "%r4"
    else:
        where = "cvta.shared.u64 %d16, %d17; cvt.u64.u32 %d18, %r3; add.u64 %d16, %d16, %d18;"
        where = "mov.u64 %d17, s;" + where
        pointer = "%d16"
    body = f"""{FILL} mad.lo.u64 %d14, %d9, 4, %d1; ld.global.u32 %r3, [%d14]; {where}
    ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 {{{regs}}}, [{pointer}];
    mad.lo.u64 %d15, %d9, 16, %d2; {stores}"""
    assert run(body, data, rows, out, locals_=SHARED) == 0
    for q in range(count):
        matrix = np.array([data[int(r) // 2 : int(r) // 2 + 8] for r in rows[8 * q : 8 * q + 8]])
        if trans:
            matrix = matrix.T
        for lane in range(32):
            low, high = matrix[lane // 4, 2 * (lane % 4)], matrix[lane // 4, 2 * (lane % 4) + 1]
            assert int(out[lane, q]) == int(low) | int(high) << 16


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("space", SPACES)
def test_store_matrix(count: int, trans: str, space: str) -> None:
    values = rng(10).integers(0, 1 << 32, (32, 4)).astype("u4")
    rows = scattered_rows(count)
    out = np.zeros(1024, "u2")
    regs = ", ".join(f"%r{20 + k}" for k in range(count))
    loads = " ".join(f"ld.global.b32 %r{20 + k}, [%d15+{4 * k}];" for k in range(count))
    copies = " ".join(
        f"ld.shared.b64 %d13, [%d10+{k}]; st.global.b64 [%d12+{k}], %d13;" for k in range(0, 64, 8)
    )
    body = f"""
    shl.b32 %r2, %r1, 6; mov.u64 %d10, s; cvt.u64.u32 %d11, %r2; add.u64 %d10, %d10, %d11;
    add.u64 %d12, %d2, %d11; mov.b64 %d13, 0;
    {" ".join(f"st.shared.b64 [%d10+{k}], %d13;" for k in range(0, 64, 8))}
    bar.warp.sync -1;
    mad.lo.u64 %d14, %d9, 4, %d1; ld.global.u32 %r3, [%d14]; mad.lo.u64 %d15, %d9, 16, %d0;
    {loads} mov.u64 %d17, s; cvt.u64.u32 %d18, %r3; add.u64 %d17, %d17, %d18;
    {"" if space else "cvta.shared.u64 %d17, %d17;"}
    stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16 [%d17], {{{regs}}};
    bar.warp.sync -1; {copies}"""
    assert run(body, values, rows, out, locals_=SHARED) == 0
    want = np.zeros(1024, "u2")
    for q in range(count):
        matrix = np.zeros((8, 8), "u2")
        for lane in range(32):
            word = int(values[lane, q])
            matrix[lane // 4, 2 * (lane % 4)] = word & 0xFFFF
            matrix[lane // 4, 2 * (lane % 4) + 1] = word >> 16
        for row, line in zip(rows[8 * q : 8 * q + 8], matrix.T if trans else matrix, strict=True):
            want[int(row) // 2 : int(row) // 2 + 8] = line
    assert np.array_equal(out, want)


@pytest.mark.parametrize(
    ("row", "fault"), [(2048 - 8, MISALIGNED), (2048, ILLEGAL), (0xFFFFFFF0, ILLEGAL), (8, 2)]
)
def test_rows_outside_shared_memory(row: int, fault: int) -> None:
    for form, operands in (("ldmatrix", "{%r20}, [%r4]"), ("stmatrix", "[%r4], {%r20}")):
        body = f"""mov.u32 %r4, s; mov.u32 %r5, {row}; mov.b32 %r20, 0;
        setp.eq.u32 %p1, %r1, 3; @%p1 add.u32 %r4, %r4, %r5;
        {form}.sync.aligned.m8n8.x1.shared.b16 {operands};"""
        assert run(body, locals_=SHARED) == fault
    outside = "mov.u64 %d10, %d0; ldmatrix.sync.aligned.m8n8.x1.b16 {%r20}, [%d10];"
    assert run(outside, np.zeros(64, "u8"), locals_=SHARED) == ILLEGAL


# ---------------------------------------------------------------------- cp.async
WAITS = "cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; bar.warp.sync -1;"


@pytest.mark.parametrize(
    ("form", "size"),
    [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16), ("cg.L2", 16), ("ca.hint", 8), ("cg.hint", 16)],
)
@pytest.mark.parametrize("space", SPACES[:2])
@pytest.mark.parametrize("rest", ["", "0", "3", "register", "ignore"])
def test_copy_to_shared_memory(form: str, size: int, space: str, rest: str) -> None:
    data = rng(11).integers(0, 256, 32 * size).astype("u1")
    out = np.zeros_like(data)
    name = f"cp.async.{form.split('.')[0]}{space}.global"
    name += {"L2": ".L2::128B", "hint": ".L2::cache_hint"}.get(form.partition(".")[2], "")
    more = {"": "", "register": ", %r3", "ignore": ", %p1"}.get(rest, f", {rest}")
    more += ", %d12" if "hint" in form else ""
    body = f"""
    mad.lo.u64 %d10, %d9, {size}, %d0; mad.lo.u64 %d11, %d9, {size}, %d1;
    mul.lo.u32 %r2, %r1, {size}; mov.u32 %r4, s; add.u32 %r2, %r2, %r4;
    and.b32 %r3, %r1, 3; setp.lt.u32 %p1, %r1, 7; mov.b64 %d12, 0;
    {name} [%r2], [%d10], {size}{more}; {WAITS}
    {
        " ".join(
            f"ld.shared.b32 %r5, [%r2+{k}]; st.global.b32 [%d11+{k}], %r5;"
            for k in range(0, size, 4)
        )
    }"""
    assert run(body, data, out, locals_=SHARED) == 0
    for lane in range(32):
        given = {"": size, "register": lane & 3, "ignore": 0 if lane < 7 else size}.get(rest)
        given = int(rest) if given is None else given
        line = out[size * lane : size * lane + size]
        assert np.array_equal(line[:given], data[size * lane : size * lane + given])
        assert not line[given:].any()


def test_only_active_lanes_copy_and_nothing_is_read_for_no_bytes() -> None:
    data, out = np.arange(1, 33, dtype="u4"), np.zeros(32, "u4")
    body = f"""
    mul.lo.u32 %r2, %r1, 4; mov.u32 %r4, s; add.u32 %r2, %r2, %r4; st.shared.u32 [%r2], %r1;
    mad.lo.u64 %d10, %d9, 4, %d0; mad.lo.u64 %d11, %d9, 4, %d1; mov.u64 %d12, 64;
    setp.lt.u32 %p1, %r1, 9; setp.gt.u32 %p2, %r1, 20;
    @%p1 cp.async.ca.shared.global [%r2], [%d10], 4;
    @%p2 cp.async.ca.shared.global [%r2], [%d12], 4, 0;
    {WAITS} ld.shared.u32 %r5, [%r2]; st.global.u32 [%d11], %r5;"""
    assert run(body, data, out, locals_=SHARED) == 0
    assert out.tolist() == [k + 1 if k < 9 else 0 if k > 20 else k for k in range(32)]


@pytest.mark.parametrize(
    ("to", "source", "fault"),
    [("2048", "%d0", ILLEGAL), ("0", "64", ILLEGAL), ("4", "%d0", MISALIGNED), ("0", "%d8", 2)],
)
def test_copies_are_checked(to: str, source: str, fault: int) -> None:
    body = f"""mov.u32 %r2, s; add.u32 %r2, %r2, {to}; mov.u64 %d11, {source};
    cp.async.cg.shared.global [%r2], [%d11], 16;"""
    body = "add.u64 %d8, %d0, 8;" + body
    assert run(body, np.zeros(64, "u8"), locals_=SHARED) == fault


@pytest.mark.parametrize(
    "form",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m16n8k8.row.col.f16.bf16.bf16.f16",
    ],
)
def test_other_products_are_refused_by_name(form: str) -> None:
    with pytest.raises(UnsupportedForm, match=form.replace(".", r"\.")):
        kernel(f"{form} {{%f1}}, {{%r1}}, {{%r1}}, {{%f1}};", 0).load("t")


def test_matrix_product_made_by_triton() -> None:
    """All of it together: pipelined copies, matrix loads and products, 4 warps a block."""
    rows, columns, depth = 160, 192, 96
    a = rng(12).standard_normal((rows, depth)).astype("f2")
    b = rng(13).standard_normal((depth, columns)).astype("f2")
    c = np.zeros((rows, columns), "f2")
    module = Module((HERE / "kernels/triton_matmul.ptx").read_text(), opt=0)
    sizes = [rows, columns, depth, depth, columns, columns]
    outcome = module.launch("matmul", (3, 3), (128,), [a, b, c, *sizes, 0, 0], shared=32768)
    assert outcome.kind == 0
    exact = a.astype("f8") @ b.astype("f8")
    assert np.all(np.abs(c - exact) <= 2.0**-11 * np.abs(exact) + 2.0**-16)


def covered_forms() -> Iterator[str]:
    """What the tests above run."""
    for shape, kind, accumulator in FLOAT_FORMS:
        yield f"mma.sync.aligned.{shape}.row.col.{accumulator}.{kind}.{kind}.{accumulator}"
    for shape, a, b, saturate in itertools.product(
        ("m8n8k16", "m16n8k16", "m16n8k32"), ("s8", "u8"), ("s8", "u8"), ("", ".satfinite")
    ):
        yield f"mma.sync.aligned.{shape}.row.col{saturate}.s32.{a}.{b}.s32"
    yield "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    for count, trans in itertools.product((1, 2, 4), ("", ".trans")):
        for space in SPACES:
            yield f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16"
            yield f"stmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16"
    for form, space, hint in itertools.product(("ca", "cg"), SPACES[:2], ("", ".L2::cache_hint")):
        yield f"cp.async.{form}{space}.global{hint}"
