"""Triton kernels whose results are compared: their PTX is computed, whatever else is skipped."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from steps import expect


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + tl.load(y + at, mask), mask)


@triton.jit
def softmax_kernel(x, out, columns, block: tl.constexpr):
    at = tl.arange(0, block)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + at, at < columns, -float("inf"))
    weights = tl.exp(values - tl.max(values, 0))
    tl.store(out + row + at, weights / tl.sum(weights, 0), at < columns)


@triton.jit
def matmul_kernel(a, b, out, n, k, block: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inner = tl.arange(0, block)
    total = tl.zeros((block, block), tl.float32)
    for start in range(0, k, block):
        left = tl.load(a + rows[:, None] * k + start + inner[None, :])
        right = tl.load(b + (start + inner)[:, None] * n + columns[None, :])
        total += tl.dot(left, right)
    tl.store(out + rows[:, None] * n + columns[None, :], total)


def check():
    """Run each and compare with the CPU."""
    x, y = torch.rand(5000), torch.rand(5000)
    out = torch.empty(5000, device="cuda")
    add_kernel[(5,)](x.cuda(), y.cuda(), out, 5000, block=1024)
    expect(torch.equal(out.cpu(), x + y), "sums differ")

    x = torch.randn(20, 700)
    out = torch.empty(20, 700, device="cuda")
    softmax_kernel[(20,)](x.cuda(), out, 700, block=1024)
    expect(torch.allclose(out.cpu(), torch.softmax(x, 1), atol=1e-6), "softmax differs")

    a, b = torch.rand(64, 96).half(), torch.rand(96, 128).half()
    out = torch.empty(64, 128, device="cuda")
    matmul_kernel[(2, 4)](a.cuda(), b.cuda(), out, 128, 96, block=32)
    expect(torch.allclose(out.cpu(), a.float() @ b.float(), atol=1e-2), "products differ")
