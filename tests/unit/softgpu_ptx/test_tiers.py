"""Quickly made code and optimised code compute the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file

N = 1000
TIERS = (0, None)


def numbers(kind: str, count: int = N) -> np.ndarray:
    """Ordinary values and the special ones: zeros, infinities, NaN with a payload, subnormals."""
    values = np.random.default_rng(3).standard_normal(count).astype(kind) * 20
    unsigned = f"u{values.itemsize}"
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(kind).tiny / 4, np.finfo(kind).max, 0.5]
    values[: len(special)] = special
    payload = np.array([np.nan], kind).view(unsigned) | np.array([1], unsigned)
    values[len(special)] = payload.view(kind)[0]
    return values


def equal_in_both(
    source: str, kernel: str, out: np.ndarray, before: list[object], after: list[object]
) -> None:
    text, results = compile_file(source, 80), []
    for opt in TIERS:
        result = out.copy()
        outcome = Module(text, opt=opt).launch(kernel, (9,), (128,), [*before, result, *after])
        assert outcome.kind == 0
        results.append(result.tobytes())
    assert results[0] == results[1]
    assert results[0] != out.tobytes()


@pytest.mark.parametrize(
    ("kernel", "kind", "outputs"),
    [("single", "f4", 10), ("twice", "f8", 9), ("large_sine", "f4", 1), ("half_axpy", "f2", 1)],
)
def test_floating_point(kernel: str, kind: str, outputs: int) -> None:
    out = numbers(kind, N * outputs)[::-1].copy()
    equal_in_both("maths.cu", kernel, out, [numbers(kind)], [N])


def test_divergence_and_local_memory() -> None:
    data = np.random.default_rng(5).integers(0, 256, N).astype("u1")
    equal_in_both("basic.cu", "histogram", np.zeros(256, "u4"), [data], [N])


def test_matrix_product_with_barriers() -> None:
    text, results = compile_file("basic.cu", 80), []
    a, b = numbers("f4", 37 * 53), numbers("f4", 53 * 41)
    for opt in TIERS:
        c = np.zeros((37, 41), "f4")
        launch = Module(text, opt=opt).launch
        assert launch("matmul", (3, 3), (16, 16), [a, b, c, 37, 41, 53]).kind == 0
        results.append(c.tobytes())
    assert results[0] == results[1]
