"""Runs single instruction forms over tables of operands.

A row is one instruction.  Rows with the same operand types share kernels: each thread takes one
line of the operand table, executes every row, and stores each result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.reference import FORMATS

ROWS_IN_A_KERNEL = 24
WIDTH = {
    "pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64,
}  # fmt: skip

Reference = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """``form`` over operands of ``inputs`` gives ``output``; ``expect`` computes it from raw bits.

    ``text`` replaces the whole instruction where it is not "form d, a, b, c": {d}, {e} are
    destinations, {a} {b} {c} {x} operands.  NaN results of a float ``output`` need only be NaN.
    """

    form: str
    inputs: tuple[str, ...]
    output: str
    expect: Reference
    text: str = ""
    tolerance: Callable[[int, Any], bool] | None = None

    def instruction(self) -> str:
        names = ["{a}", "{b}", "{c}", "{x}"][: len(self.inputs)]
        return self.text or f"{self.form} {', '.join(['{d}', *names])};"


def _register(width: int, name: str) -> str:
    return f"%{'p' if width == 1 else 'r'}{width}_{name}"


def kernel_text(rows: Sequence[Row]) -> str:
    """PTX of one kernel that runs all rows."""
    inputs = rows[0].inputs
    lines = [
        ".version 8.7\n.target sm_120\n.address_size 64",
        ".visible .entry t(.param .u64 p0, .param .u64 p1, .param .u32 p2) {",
        ".reg .pred %p<4>; .reg .b64 %rd<20>; .reg .b32 %r<20>; .reg .b16 %h<4>;",
    ]
    for width in (1, 16, 32, 64):
        kind = "pred" if width == 1 else f"b{width}"
        names = ", ".join(_register(width, n) for n in "abcxde")
        lines.append(f".reg .{kind} {names};")
    lines += [
        "ld.param.u64 %rd0, [p0]; ld.param.u64 %rd1, [p1]; ld.param.u32 %r0, [p2];",
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;",
        "mad.lo.u32 %r4, %r1, %r2, %r3; setp.ge.u32 %p0, %r4, %r0; @%p0 bra DONE;",
        "mul.wide.u32 %rd2, %r4, 8; add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;",
        "mul.wide.u32 %rd5, %r0, 8;",
    ]
    operands = {}
    for name, type_name in zip("abcx", inputs, strict=False):
        width = WIDTH[type_name]
        register = _register(max(width, 16) if width > 1 else 1, name)
        operands[name] = register
        if width == 1:
            lines.append(f"ld.global.u32 %r5, [%rd3]; setp.ne.u32 {register}, %r5, 0;")
        else:
            lines.append(f"ld.global.b{width} {register}, [%rd3];")
        lines.append("add.u64 %rd3, %rd3, %rd5;")
    for row in rows:
        width = WIDTH[row.output]
        dest = _register(max(width, 16) if width > 1 else 1, "d")
        second = _register(1, "e")
        text = row.instruction().format(d=dest, e=second, **operands)
        lines.append(text)
        if width == 1:
            lines.append(f"selp.u32 %r6, 1, 0, {dest}; st.global.u32 [%rd4], %r6;")
        else:
            lines.append(f"st.global.b{max(width, 16)} [%rd4], {dest};")
        lines.append("add.u64 %rd4, %rd4, %rd5;")
    lines.append("DONE: ret; }")
    return "\n".join(lines)


def run_rows(rows: Sequence[Row], table: Sequence[Sequence[int]], opt: int = 1) -> list[list[int]]:
    """Raw result bits of each row for each line of the table."""
    n = len(table)
    columns = np.array(table, dtype=np.uint64).T.copy()
    out = np.zeros((len(rows), n), np.uint64)
    outcome = Module(kernel_text(rows), opt=opt).launch(
        "t", ((n + 127) // 128,), (128,), [columns, out, n]
    )
    assert outcome.kind == 0, outcome.kind
    results = []
    for row, line in zip(rows, out, strict=True):
        width = max(WIDTH[row.output], 1)
        mask = np.uint64((1 << width) - 1)
        results.append([int(v) for v in line & mask])
    return results


def _same(row: Row, got: int, want: Any) -> bool:
    if row.tolerance is not None:
        return row.tolerance(got, want)
    if row.output in FORMATS:
        format_ = FORMATS[row.output]
        if format_.is_nan(want):
            return format_.is_nan(got)
    elif row.output in ("f16x2", "bf16x2"):
        format_ = FORMATS[row.output[:-2]]
        halves = [((got >> s) & 0xFFFF, (want >> s) & 0xFFFF) for s in (0, 16)]
        return all(g == w or (format_.is_nan(w) and format_.is_nan(g)) for g, w in halves)
    return bool(got == want)


def check(
    rows: Iterable[Row], tables: dict[tuple[str, ...], Sequence[Sequence[int]]], opt: int = 1
) -> int:
    """Run all rows against their references; returns the number of comparisons."""
    ordered = sorted(rows, key=lambda r: r.inputs)
    compared = 0
    failures: list[str] = []
    for inputs, group in itertools.groupby(ordered, key=lambda r: r.inputs):
        same = list(group)
        table = tables[inputs]
        for start in range(0, len(same), ROWS_IN_A_KERNEL):
            part = same[start : start + ROWS_IN_A_KERNEL]
            for row, results in zip(part, run_rows(part, table, opt), strict=True):
                for line, got in zip(table, results, strict=True):
                    want = row.expect(*line[: len(inputs)])
                    compared += 1
                    if not _same(row, got, want):
                        shown = ", ".join(hex(v) for v in line[: len(inputs)])
                        failures.append(
                            f"{row.text or row.form}({shown}) = {got:#x}, expected "
                            f"{want if not isinstance(want, int) else hex(want)}"
                        )
    assert not failures, f"{len(failures)} wrong:\n" + "\n".join(failures[:20])
    return compared


INTEGER_EDGES = {
    16: [0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x100, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF],
    32: [0, 1, 2, 3, 31, 32, 33, 0x7F, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFE, 0x7FFFFFFF, 0x80000000,
         0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x12345678, 0x00FFFFFF, 0xFF000000],
    64: [0, 1, 2, 31, 63, 64, 65, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFE, 0x7FFFFFFFFFFFFFFF,
         0x8000000000000000, 0x8000000000000001, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF,
         0x123456789ABCDEF0, 0xFFFFFFFF00000000],
}  # fmt: skip


def edges(type_name: str) -> list[int]:
    """Interesting bit patterns of a type."""
    if type_name == "pred":
        return [0, 1]
    if type_name in FORMATS:
        f = FORMATS[type_name]
        one = f.bias << f.fraction
        sizes = [
            0, 1, 2, (1 << f.fraction) - 1, 1 << f.fraction, (1 << f.fraction) + 1, one, one + 1,
            one - 1, one + (1 << f.fraction), f.infinity - 1, f.infinity - 2, f.infinity,
            f.infinity | 1 << (f.fraction - 1), one + (1 << (f.fraction - 1)),
            one - (3 << f.fraction),
            one + (f.fraction << f.fraction), one + ((f.fraction + 1) << f.fraction) + 1,
            one - ((f.fraction + 1) << f.fraction), (1 << f.fraction) * (f.bias // 2) + 5,
        ]  # fmt: skip
        return [s | sign for s in sizes for sign in (0, f.sign)]
    width = WIDTH[type_name]
    if width == 8:
        return [0, 1, 0x7F, 0x80, 0xFF, 0x55]
    if type_name.endswith("x2"):
        half = edges({"f16x2": "f16", "bf16x2": "bf16"}.get(type_name, "u16"))
        return [low | high << 16 for low, high in zip(half, half[7:] + half[:7], strict=True)]
    return INTEGER_EDGES[width]


def table(types: Sequence[str], count: int, seed: int = 1) -> list[tuple[int, ...]]:
    """All pairs of edge values where that is few enough, plus random lines."""
    rng = np.random.default_rng(seed)
    lists = [edges(t) for t in types]
    lines: list[tuple[int, ...]] = []
    combinations = 1
    for each in lists:
        combinations *= len(each)
    if combinations <= count:
        lines = list(itertools.product(*lists))
    else:
        lines = [
            tuple(int(each[int(rng.integers(len(each)))]) for each in lists) for _ in range(count)
        ]
    for _ in range(count // 3):
        line = []
        for t in types:
            bits = int(rng.integers(0, 1 << 63)) * 2 + int(rng.integers(2))
            width = max(WIDTH[t], 1)
            if t in FORMATS and rng.integers(3):
                f = FORMATS[t]  # near one, so that operands interact
                exponent = f.bias + int(rng.integers(-f.fraction, f.fraction))
                bits = bits & (f.sign | ((1 << f.fraction) - 1)) | max(exponent, 0) << f.fraction
            line.append(bits & ((1 << width) - 1))
        lines.append(tuple(line))
    return lines
