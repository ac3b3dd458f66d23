"""wmma: fragments loaded, multiplied and stored, against NumPy's products."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file
from tests.unit.softgpu_ptx.test_memory_forms import ILLEGAL, run

LARGE = ("m16n16k16", "m32n8k16", "m8n32k16")
LAYOUTS = ("row", "col")
SPACES = (".global", "", ".shared", ".shared::cta")
BYTES = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "tf32": 4, "f32": 4, "s32": 4, "f64": 8}

#: (shape, type of A and B, type of C, type of D, last word)
PRODUCTS = [
    *((shape, "f16", c, d, sat) for shape in LARGE for c in ("f16", "f32") for d in ("f16", "f32")
      for sat in ("", ".satfinite")),
    *((shape, "bf16", "f32", "f32", "") for shape in LARGE),
    *((shape, kind, "s32", "s32", sat) for shape in LARGE for kind in ("s8", "u8")
      for sat in ("", ".satfinite")),
    ("m16n16k8", "tf32", "f32", "f32", ""),
    ("m8n8k4", "f64", "f64", "f64", ""),
]  # fmt: skip


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def product_form(
    shape: str, kind: str, c: str, d: str, sat: str, layouts: tuple[str, str] = ("row", "col")
) -> str:
    types = f"{d}.{c}" if kind == "f16" else f"{d}.{kind}.{kind}.{c}"
    return f"wmma.mma.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{types}{sat}"


def load_form(which: str, layout: str, shape: str, space: str, kind: str) -> str:
    return f"wmma.load.{which}.sync.aligned.{layout}.{shape}{space}.{kind}"


def covered_forms() -> Iterator[str]:
    for shape, kind, c, d, sat in PRODUCTS:
        yield product_form(shape, kind, c, d, sat)
        for layout, space in itertools.product(LAYOUTS, SPACES):
            yield load_form("a", layout, shape, space, kind)
            yield load_form("b", layout, shape, space, kind)
            yield load_form("c", layout, shape, space, c)
            yield f"wmma.store.d.sync.aligned.{layout}.{shape}{space}.{d}"


def registers(which: str, shape: str, kind: str) -> int:
    """How many the manual says."""
    m, n, k = sizes(shape)
    if which in "ab" and kind == "f16":
        return 8
    elements = {"a": m * k, "b": k * n, "c": m * n, "d": m * n}[which]
    return elements // 32 * BYTES[kind] // max(BYTES[kind], 4)


def stored(matrix: np.ndarray, kind: str, layout: str, stride: int) -> np.ndarray:
    """The matrix as it lies in memory, with gaps between rows or columns."""
    lines = matrix if layout == "row" else matrix.T
    padded = np.zeros((lines.shape[0], stride))
    padded[:, : lines.shape[1]] = lines
    if kind == "bf16":
        return np.ascontiguousarray((padded.astype("f4").view("u4") >> 16).astype("u2"))
    real = {
        "f16": "f2",
        "f32": "f4",
        "tf32": "f4",
        "f64": "f8",
        "s32": "i4",
        "s8": "i1",
        "u8": "u1",
    }
    return padded.astype(real[kind])


PAD = 8  # elements


@pytest.mark.parametrize(("shape", "kind", "c", "d", "sat"), PRODUCTS)
def test_products(shape: str, kind: str, c: str, d: str, sat: str) -> None:
    """All layouts and spaces; small whole numbers, whose products every type holds exactly."""
    m, n, k = sizes(shape)
    rng = np.random.default_rng(2)
    low = 0 if kind == "u8" else -4
    a, b = rng.integers(low, 5, (m, k)), rng.integers(low, 5, (k, n))
    start = rng.integers(-9, 10, (m, n))
    if c == "s32":
        start[0, :3] = [2**31 - 5, -(2**31), 2**31 - 1]
    letter = "%d" if kind == "f64" else "%r"
    wide = {"a": 0, "b": 1, "c": 2}
    names = {w: [f"{letter}{20 + 8 * wide[w] + q}" for q in range(
        registers(w, shape, c if w == "c" else kind))] for w in "abc"}  # fmt: skip
    result = [f"{letter}{44 + q}" for q in range(registers("d", shape, d))]
    parts, body = [], []
    combos = list(itertools.product(LAYOUTS, SPACES))
    block = 8192  # bytes for each matrix
    for number, (layout, space) in enumerate(combos):
        where = "shared" if "shared" in space else "global"
        for which, matrix, type_name in (("a", a, kind), ("b", b, kind), ("c", start, c)):
            _lines, line = matrix.shape if layout == "row" else matrix.shape[::-1]
            memory = stored(matrix, type_name, layout, line + PAD)
            raw = np.zeros(block, "u1")
            raw[: memory.nbytes] = memory.view("u1").ravel()
            parts.append(raw)
            body.append(f"add.u64 %d10, %d0, {block * (3 * number + wide[which])};")
            if where == "shared":
                body.append(copy_in(memory.nbytes, f"L{number}{which}"))
                body.append("mov.u64 %d10, words;")
            form = load_form(which, layout, shape, space, type_name)
            body.append(f"{form} {{{', '.join(names[which])}}}, [%d10], {line + PAD};")
            body.append("bar.warp.sync -1;")
        joined = ", ".join(f"{{{', '.join(x)}}}" for x in (result, *names.values()))
        layouts = (LAYOUTS[number % 2], LAYOUTS[number // 2 % 2])
        body.append(f"{product_form(shape, kind, c, d, sat, layouts)} {joined};")
        line = n if layout == "row" else m
        body.append(f"add.u64 %d11, %d1, {block * number};")
        target = "%d11" if where == "global" else "%d12"
        body.append("mov.u64 %d12, words;")
        form = f"wmma.store.d.sync.aligned.{layout}.{shape}{space}.{d}"
        body.append(f"{form} [{target}], {{{', '.join(result)}}}, {line};")
        if where == "shared":
            body.append(f"bar.warp.sync -1; {copy_out(m * n * BYTES[d], f'M{number}')}")
    out = np.zeros(block * len(combos), "u1")
    text = "\n".join(body)
    places = f".shared .align 32 .b8 words[{block}];"
    assert run(text, np.concatenate(parts), out, locals_=places) == 0
    exact = a.astype("i8") @ b.astype("i8") + start
    if d == "s32":
        exact = (
            np.clip(exact, -(2**31), 2**31 - 1)
            if sat
            else exact.astype("u8").astype("u4").view("i4")
        )
    real = {"f16": "f2", "f32": "f4", "f64": "f8", "s32": "i4"}[d]
    for number, (layout, _) in enumerate(combos):
        got = out[block * number :][: m * n * BYTES[d]].view(real)
        got = got.reshape(m, n) if layout == "row" else got.reshape(n, m).T
        assert np.array_equal(got.astype("f8"), exact.astype("f8")), combos[number]


def _loop(count: int, name: str, source: str, to: str, load: str, store: str) -> str:
    return f"""
    shl.b32 %r2, %r1, 2; cvt.u64.u32 %d2, %r2;
    {name}: add.u64 %d3, {source}, %d2; add.u64 %d4, {to}, %d2;
    {load}.u32 %r3, [%d3]; {store}.u32 [%d4], %r3; add.u64 %d2, %d2, 128;
    setp.lt.u64 %p1, %d2, {count}; @%p1 bra {name}; bar.warp.sync -1;"""


def copy_in(count: int, name: str) -> str:
    body = _loop(count, name, "%d10", "%d5", "ld.global", "st.shared")
    return f"mov.u64 %d5, words; {body}"


def copy_out(count: int, name: str) -> str:
    return _loop(count, name, "%d12", "%d11", "ld.shared", "st.global")


def test_saturation_of_halves_and_special_values() -> None:
    a, b = np.zeros((16, 16), "f2"), np.zeros((16, 16), "f2")
    c = np.zeros((16, 16), "f2")
    a[0, 0], b[0, 0] = 60000, 2
    a[1, 1], b[1, 1], a[2, 2] = np.nan, 1, np.inf
    for sat in ("", ".satfinite"):
        out = np.zeros((16, 16), "f2")
        regs = [", ".join(f"%r{20 + 8 * q + j}" for j in range(n)) for q, n in enumerate((8, 8, 4))]
        body = f"""
        wmma.load.a.sync.aligned.row.m16n16k16.f16 {{{regs[0]}}}, [%d0];
        wmma.load.b.sync.aligned.row.m16n16k16.f16 {{{regs[1]}}}, [%d1];
        wmma.load.c.sync.aligned.row.m16n16k16.f16 {{{regs[2]}}}, [%d2], 16;
        wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16{sat} {{{regs[2]}}}, {{{regs[0]}}},
          {{{regs[1]}}}, {{{regs[2]}}};
        wmma.store.d.sync.aligned.row.m16n16k16.f16 [%d3], {{{regs[2]}}};"""
        assert run(body, a, b, c, out) == 0
        assert out[0, 0] == (65504 if sat else np.inf)
        assert np.all(np.isnan(out[1]))
        assert np.all(np.isnan(out[2]))  # infinity times zero


def test_rows_outside_memory_are_a_fault() -> None:
    body = "wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}, [%d1], 16;"
    assert run(body, np.zeros(8, "u8"), 64) == ILLEGAL


@functools.cache
def programs() -> Module:
    return Module(compile_file("wmma.cu", 80), opt=1)


@pytest.mark.parametrize("kernel", ["halves", "brains", "integers", "doubles", "singles"])
def test_programs_with_nvcuda_wmma(kernel: str) -> None:
    """Tiled products of 48 x 64 x 32 by the C++ interface, one warp for each tile."""
    rng = np.random.default_rng(3)
    m, n, k = 48, 64, 32
    kinds = {"halves": "f2", "integers": "i1", "doubles": "f8", "singles": "f4", "brains": "f4"}
    a, b = (rng.integers(-6, 7, s).astype(kinds[kernel]) for s in ((m, k), (k, n)))
    c = np.zeros((m, n), {"integers": "i4", "doubles": "f8"}.get(kernel, "f4"))
    given = [a, b]
    if kernel == "brains":
        given = [(v.view("u4") >> 16).astype("u2") for v in given]
    tile = 8 if kernel == "doubles" else 16
    grid = (n // tile, m // tile)
    assert programs().launch(kernel, grid, (32,), [*given, c, m, n, k]).kind == 0
    assert np.array_equal(c.astype("f8"), 2 * (a.astype("f8") @ b.astype("f8")))
