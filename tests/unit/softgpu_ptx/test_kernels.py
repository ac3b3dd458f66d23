"""Whole kernels: CUDA sources through NVRTC, the translator and LLVM, compared with NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file

ARCHS = (75, 80, 90, 120)
N = 3001


@functools.cache
def basic(arch: int) -> Module:
    return Module(compile_file("basic.cu", arch))


@functools.cache
def maths(arch: int) -> Module:
    return Module(compile_file("maths.cu", arch))


@pytest.fixture(params=ARCHS)
def module(request: pytest.FixtureRequest) -> Module:
    return basic(request.param)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng().standard_normal(shape).astype("f4")


def test_vector_add_is_exact(module: Module) -> None:
    a, b, c = floats(N), floats(N)[::-1].copy(), np.zeros(N, "f4")
    assert module.launch("vector_add", (12,), (256,), [a, b, c, N]).kind == 0
    assert np.array_equal(c, a + b)


def test_grid_stride_loop_uses_one_rounding(module: Module) -> None:
    x, y = floats(N), floats(N)[::-1].copy()
    expected = (x.astype("f8") * 2.5 + y).astype("f4")
    assert module.launch("saxpy_strided", (3,), (96,), [np.float32(2.5), x, y, N]).kind == 0
    assert np.array_equal(y, expected)


def test_tiled_matmul_with_barriers(module: Module) -> None:
    a, b, c = floats(37, 53), floats(53, 41), np.zeros((37, 41), "f4")
    outcome = module.launch("matmul", (3, 3), (16, 16), [a, b, c, 37, 41, 53])
    assert outcome.kind == 0
    assert outcome.barriers > 0
    assert np.abs(c - a @ b).max() < 1e-4


def test_shuffle_reduction(module: Module) -> None:
    x, out = floats(N), np.zeros(1, "f4")
    assert module.launch("reduce", (5,), (256,), [x, out, N]).kind == 0
    assert abs(float(out[0]) - x.sum(dtype="f8")) < 1e-2


@pytest.mark.parametrize("kernel", ["histogram", "histogram_global"])
def test_histogram_atomics(module: Module, kernel: str) -> None:
    data, bins = rng().integers(0, 256, N).astype("u1"), np.zeros(256, "u4")
    assert module.launch(kernel, (24,), (128,), [data, bins, N]).kind == 0
    assert np.array_equal(bins, np.bincount(data, minlength=256))


def test_dynamic_shared_memory() -> None:
    data = np.arange(3 * 80, dtype="i4")
    assert basic(80).launch("dynamic_reverse", (3,), (80,), [data], shared=320).kind == 0
    assert np.array_equal(data, np.arange(240).reshape(3, 80)[:, ::-1].ravel())


def test_dynamic_shared_memory_that_is_too_small_faults() -> None:
    outcome = basic(80).launch("dynamic_reverse", (1,), (80,), [np.zeros(80, "i4")], shared=160)
    assert outcome.kind == 1


def test_module_variables_with_addresses() -> None:
    out = np.zeros(32, "f4")
    assert basic(80).launch("module_data", (1,), (32,), [out]).kind == 0
    weights, counters = [0.5, 0.25, 0.125], [1, 2, 3, 4]
    expected = [weights[i % 3] * (2 if i % 2 == 0 else 4) + counters[i & 3] for i in range(32)]
    assert out.tolist() == expected


def _collatz(start: int) -> int:
    v, steps = start, 0
    while v != 1:
        if v & 1:
            v = 3 * v + 1
            if v > 100000:
                continue
        else:
            v //= 2
        steps += 1
        if steps > 200:
            break
    kind = start % 5
    return {0: steps + 10, 1: steps * 2, 2: steps - 7, 3: steps ^ 21, 4: -steps}[kind]


def test_divergent_control_flow(module: Module) -> None:
    x = rng().integers(1, 9999, N).astype("i4")
    y = np.zeros(N, "i4")
    assert module.launch("divergent", (13,), (256,), [x, y, N]).kind == 0
    assert y.tolist() == [_collatz(int(v)) for v in x]


def test_spin_lock_between_lanes_and_warps() -> None:
    x = np.zeros(1, "i4")
    outcome = basic(80).launch("locked_increment", (2,), (64,), [x])
    assert outcome.kind == 0
    assert outcome.yields > 0
    assert x[0] == 128


def test_local_memory() -> None:
    x, y, order = floats(100), np.zeros(100, "f4"), rng().permutation(8).astype("i4")
    assert basic(80).launch("local_array", (1,), (128,), [x, y, order, 100]).kind == 0
    for i in range(100):
        keep, total = [x[(i + k) % 100] for k in range(8)], np.float32(0)
        for k in range(8):
            total = np.float32(total * 2 + keep[order[(i + k) % 8]])
        assert y[i] == total


def test_struct_parameter() -> None:
    kind = np.dtype({"names": ["c", "d", "a"], "formats": ["i1", "f8", ("f4", 5)],
                     "offsets": [0, 8, 16], "itemsize": 40})  # fmt: skip
    value = np.zeros((), kind)
    value["c"], value["d"], value["a"] = -3, 0.125, [1, 2, 3, 4, 5]
    out = np.zeros(32, "f8")
    assert basic(80).launch("struct_parameter", (1,), (32,), [value.tobytes(), out]).kind == 0
    assert out.tolist() == [0.125 + i % 5 + 1 - 3 for i in range(32)]


def test_threads_that_have_exited_do_not_hold_up_a_barrier() -> None:
    out = np.zeros(96, "i4")
    assert basic(80).launch("early_exit", (1,), (96,), [out]).kind == 0
    assert out.tolist() == [0 if i % 3 == 0 else 64 for i in range(96)]


@pytest.mark.parametrize("name", ["vector_add", "histogram_global"])
def test_access_outside_device_memory_is_a_fault(name: str) -> None:
    args = [16, np.zeros(64, "f4"), np.zeros(64, "f4"), 64]
    outcome = basic(80).launch(
        name, (1,), (64,), args if name == "vector_add" else [16, args[1], 64]
    )
    assert outcome.kind == 1
    assert outcome.address == 16


def _ulps(value: np.ndarray, exact: np.ndarray) -> float:
    scale = np.spacing(np.abs(exact).astype(value.dtype)).astype("f8")
    return float(np.max(np.abs(value.astype("f8") - exact) / scale))


@pytest.mark.parametrize("arch", [80, 120])
def test_single_precision_functions(arch: int) -> None:
    x = (floats(700) * 3).astype("f4")
    y = np.zeros((700, 10), "f4")
    assert maths(arch).launch("single", (6,), (128,), [x, y, 700]).kind == 0
    v = x.astype("f8")
    size = np.abs(v)
    expected = [
        np.exp(v), np.log((np.abs(x) + np.float32(0.1)).astype("f8")), np.sin(v), np.cos(v),
        size**1.7000000476837158,
        np.vectorize(math.erf)(v), np.tanh(v), np.arctan2(v, 2), None, 1 / np.sqrt(size + 1),
    ]  # fmt: skip
    for k, exact in enumerate(expected):
        if exact is not None:
            error = np.max(np.abs(y[:, k] - exact) / np.maximum(np.abs(exact), 1e-2))
            assert error < 1e-6, k
    assert np.array_equal(y[:, 8], np.fmod(x, np.float32(0.3)))


@pytest.mark.parametrize("arch", [80, 120])
def test_double_precision_functions(arch: int) -> None:
    x = rng().standard_normal(500) * 3
    y = np.zeros((500, 9))
    assert maths(arch).launch("twice", (4,), (128,), [x, y, 500]).kind == 0
    size = np.abs(x)
    expected = [
        np.exp(x), np.log(size + 0.1), np.sin(x), np.cos(x), size**3.1, np.vectorize(math.erf)(x),
        np.vectorize(math.gamma)(size + 1), np.cbrt(x), 1 / x + np.sqrt(size),
    ]  # fmt: skip
    for k, exact in enumerate(expected):
        assert np.max(np.abs(y[:, k] - exact) / np.maximum(np.abs(exact), 1e-3)) < 4e-15, k


def test_sines_of_large_arguments() -> None:
    """1,000 numbers up to the greatest: the reduction needs exact high products and carries."""
    import mpmath

    sizes = np.exp(np.random.default_rng(2).uniform(np.log(1e4), np.log(3.4e38), 992)).astype("f4")
    sizes[::2] *= -1
    x = np.concatenate(
        [np.array([1e5, 1e10, 3e38, 105615, 12345678.0, 2.0**100, 6.2831855, -3e38], "f4"), sizes]
    )
    results = [np.zeros(1000, "f4") for _ in range(3)]
    assert maths(80).launch("large_angles", (8,), (128,), [x, *results, 1000]).kind == 0
    with mpmath.workprec(300):
        for y, function, ulps in zip(
            results, (mpmath.sin, mpmath.cos, mpmath.tan), (2, 2, 4), strict=True
        ):
            exact = np.array([float(function(mpmath.mpf(float(v)))) for v in x])
            assert _ulps(y, exact) <= ulps


@pytest.mark.parametrize("arch", ARCHS)
def test_half_kernels(arch: int) -> None:
    x, y = floats(N).astype("f2"), floats(N)[::-1].astype("f2")
    expected = (x.astype("f8") * 2.5 + y).astype("f2")
    assert maths(arch).launch("half_axpy", (12,), (256,), [x, y, N]).kind == 0
    assert np.array_equal(y, expected)
    pairs = floats(N, 2).astype("f2")
    out = np.zeros_like(pairs)
    assert maths(arch).launch("half_pairs", (12,), (256,), [pairs, out, N]).kind == 0
    wide = pairs.astype("f4")
    doubled = (wide + np.abs(wide)).astype("f2")
    assert np.array_equal(out, np.maximum((wide * wide).astype("f2"), doubled))


@pytest.mark.parametrize("arch", ARCHS)
def test_bfloat_kernel(arch: int) -> None:
    x = (floats(N).view("u4") >> 16).astype("u2")
    y = np.zeros(N, "u2")
    assert maths(arch).launch("bfloat_scale", (12,), (256,), [x, y, N]).kind == 0
    exact = ((x.astype("u4") << 16).view("f4") * np.float32(1.5)).view("u4")
    assert np.array_equal(y, ((exact + 0x7FFF + ((exact >> 16) & 1)) >> 16).astype("u2"))
