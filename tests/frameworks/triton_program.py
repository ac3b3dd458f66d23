"""Kernels in Triton, without PyTorch: their memory is CuPy's, their results are compared with
NumPy's. The kernels are in the manner of Triton's own tutorials.

A software GPU gets PTX from Triton through TRITON_PTXAS_PATH, and computes them all.
"""

from __future__ import annotations

import sys
from typing import Any

import cupy
import numpy
import triton
import triton.language as tl
from steps import main, step

RANDOM = numpy.random.default_rng(7)


class OnDevice:
    """What Triton asks of an argument that is memory of the GPU."""

    def __init__(self, values: Any) -> None:
        self.array = cupy.asarray(values)
        self.dtype = self.array.dtype

    def data_ptr(self) -> int:
        return int(self.array.data.ptr)

    def numpy(self) -> Any:
        return cupy.asnumpy(self.array)


def near(found: Any, expected: Any, tolerance: float, what: str) -> float:
    """The largest difference, which must be within the tolerance."""
    difference = float(numpy.abs(found.astype(float) - expected.astype(float)).max())
    if not difference <= tolerance:
        raise AssertionError(f"{what}: off by {difference}, more than {tolerance}")
    return difference


def same(found: Any, expected: Any, what: str) -> None:
    if not numpy.array_equal(found, expected):
        raise AssertionError(f"{what}: {(found != expected).sum()} of {found.size} differ")


# ---------------------------------------------------------------- element by element


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)


@step
def add() -> object:
    for kind in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        x, y = (OnDevice(RANDOM.integers(0, 100, 10_007).astype(kind)) for _ in range(2))
        out = OnDevice(numpy.zeros(10_007, kind))
        add_kernel[(triton.cdiv(10_007, 256),)](x, y, out, 10_007, BLOCK=256)
        same(out.numpy(), x.numpy() + y.numpy(), kind)
    return {"triton": triton.__version__, "device": _device_name()}


def _device_name() -> str:
    return str(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, at < n)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, values / (1 - p), 0.0), at < n)


def philox(seed: int, offsets: Any) -> Any:
    """The numbers of tl.rand: the first word of Philox 4x32 with ten rounds, as [0, 1)."""
    c = [offsets.astype(numpy.uint64), *(numpy.zeros(offsets.shape, numpy.uint64) for _ in "123")]
    low = numpy.uint64(0xFFFFFFFF)
    key = [numpy.uint64(seed & 0xFFFFFFFF), numpy.uint64(seed >> 32)]
    for _ in range(10):
        a, b = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        c = [
            (b >> numpy.uint64(32)) ^ c[1] ^ key[0],
            b & low,
            (a >> numpy.uint64(32)) ^ c[3] ^ key[1],
            a & low,
        ]
        key = [
            (key[0] + numpy.uint64(0x9E3779B9)) & low,
            (key[1] + numpy.uint64(0xBB67AE85)) & low,
        ]
    signed = c[0].astype(numpy.uint32).view(numpy.int32).astype(numpy.int64)
    return numpy.where(signed < 0, -signed - 1, signed).astype("float32") * numpy.float32(
        4.6566127342e-10
    )


@step
def dropout() -> object:
    n = 4_099
    x = OnDevice(RANDOM.standard_normal(n).astype("float32"))
    out = OnDevice(numpy.zeros(n, "float32"))
    dropout_kernel[(triton.cdiv(n, 512),)](x, out, n, 0.3, 1234, BLOCK=512)
    keep = philox(1234, numpy.arange(n)) > numpy.float32(0.3)
    same(out.numpy() != 0, keep, "the mask")
    near(out.numpy()[keep], (x.numpy() / numpy.float32(0.7))[keep], 1e-6, "kept values")
    return {"kept": round(float(keep.mean()), 3)}


# ---------------------------------------------------------------- rows


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, axis=0), at < columns)


@step
def softmax() -> object:
    values = RANDOM.standard_normal((67, 781)).astype("float32")
    x, out = OnDevice(values), OnDevice(numpy.zeros_like(values))
    softmax_kernel[(67,)](x, out, 781, BLOCK=1024)
    powers = numpy.exp(values - values.max(1, keepdims=True))
    return near(out.numpy(), powers / powers.sum(1, keepdims=True), 1e-6, "softmax")


@triton.jit
def layer_norm_kernel(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, inside, other=0.0).to(tl.float32)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w, b = tl.load(weight + at, inside), tl.load(bias + at, inside)
    tl.store(out + row * columns + at, centred * scale * w + b, inside)


@step
def layer_norm() -> object:
    values = RANDOM.standard_normal((33, 500)).astype("float16")
    w, b = (RANDOM.standard_normal(500).astype("float32") for _ in range(2))
    out = OnDevice(numpy.zeros((33, 500), "float32"))
    layer_norm_kernel[(33,)](OnDevice(values), OnDevice(w), OnDevice(b), out, 500, 1e-5, BLOCK=512)
    wide = values.astype(float)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / numpy.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b
    return near(out.numpy(), expected, 1e-5, "layer norm")


@triton.jit
def rows_kernel(x, sums, sorted_, places, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    at = row * COLUMNS + tl.arange(0, COLUMNS)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, axis=0))
    tl.store(sorted_ + at, tl.sort(values))
    tl.store(places + row, tl.argmax(values, axis=0))


@step
def scan_and_sort() -> None:
    values = RANDOM.permutation(16 * 256).astype("int32").reshape(16, 256)
    sums, ordered = (OnDevice(numpy.zeros_like(values)) for _ in range(2))
    places = OnDevice(numpy.zeros(16, "int32"))
    rows_kernel[(16,)](OnDevice(values), sums, ordered, places, COLUMNS=256)
    same(sums.numpy(), values.cumsum(1), "cumsum")
    same(ordered.numpy(), numpy.sort(values, 1), "sort")
    same(places.numpy(), values.argmax(1), "argmax")


@triton.jit
def histogram_kernel(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + at, at < n, other=BINS - 1), BINS)
    tl.atomic_add(out + tl.arange(0, BINS), counts)


@step
def histogram() -> None:
    values = RANDOM.integers(0, 64, 8_192).astype("int32")
    out = OnDevice(numpy.zeros(64, "int32"))
    histogram_kernel[(8,)](OnDevice(values), out, 8_192, BINS=64, BLOCK=1024)
    same(out.numpy(), numpy.bincount(values, minlength=64), "histogram")


# ---------------------------------------------------------------- tensor cores


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, P: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(
            a + rows[:, None] * K + inner[None, :],
            (rows[:, None] < M) & (inner[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + inner[:, None] * N + columns[None, :],
            (inner[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total, input_precision=P)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total, inside)


@step
def matmul() -> object:
    found = {}
    for kind, precision, tolerance in (
        ("float16", "ieee", 1e-3),
        ("float32", "tf32", 5e-2),
        ("float32", "ieee", 1e-4),
    ):
        m, n, k = 70, 50, 90
        a, b = (RANDOM.standard_normal(shape).astype(kind) for shape in ((m, k), (k, n)))
        c = OnDevice(numpy.zeros((m, n), "float32"))
        matmul_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
            OnDevice(a), OnDevice(b), c, m, n, k, BM=32, BN=32, BK=32, P=precision
        )
        name = f"{kind} {precision}"
        found[name] = near(c.numpy(), a.astype(float) @ b.astype(float), tolerance, name)
    return found


@triton.jit
def attention_kernel(
    q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1) * length * WIDTH
    inner = tl.arange(0, WIDTH)
    query = tl.load(q + head + rows[:, None] * WIDTH + inner[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        columns = start + tl.arange(0, BN)
        key = tl.load(k + head + columns[None, :] * WIDTH + inner[:, None])
        scores = tl.dot(query, key) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        highest = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - highest[:, None])
        shrink = tl.exp2(largest - highest)
        weight = weight * shrink + tl.sum(powers, 1)
        value = tl.load(v + head + columns[:, None] * WIDTH + inner[None, :])
        total = tl.dot(powers.to(value.dtype), value, total * shrink[:, None])
        largest = highest
    tl.store(out + head + rows[:, None] * WIDTH + inner[None, :], total / weight[:, None])


@step
def attention() -> object:
    """Causal, in one pass over the keys, as flash attention does it."""
    heads, length, width = 2, 64, 32
    q, k, v = (RANDOM.standard_normal((heads, length, width)).astype("float16") for _ in range(3))
    out = OnDevice(numpy.zeros((heads, length, width), "float32"))
    scale = float(numpy.log2(numpy.e) / numpy.sqrt(width))
    attention_kernel[(length // 32, heads)](
        OnDevice(q), OnDevice(k), OnDevice(v), out, length, scale, BM=32, BN=32, WIDTH=width
    )
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1) / numpy.sqrt(width)
    scores[:, ~numpy.tri(length, dtype=bool)] = -numpy.inf
    powers = numpy.exp(scores - scores.max(2, keepdims=True))
    expected = powers / powers.sum(2, keepdims=True) @ v.astype(float)
    return near(out.numpy(), expected, 5e-3, "attention")


if __name__ == "__main__":
    sys.exit(main())
