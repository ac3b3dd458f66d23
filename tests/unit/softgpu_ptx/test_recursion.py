"""Functions that call themselves or each other: each lane has frames of its own."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file

STACK_OVERFLOW = 6
X = np.arange(64, dtype="i4")


@functools.cache
def recursive(opt: int = 1) -> Module:
    return Module(compile_file("recursion.cu", 80), opt=opt)


def run(kernel: str, *inputs: np.ndarray | int, kind: str = "i4") -> np.ndarray:
    out = np.zeros(64, kind)
    assert recursive().launch(kernel, (1,), (64,), [*inputs, out]).kind == 0
    return out


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def test_each_lane_has_its_own_depth() -> None:
    n = X % 14
    assert run("fibonacci", n).tolist() == [fibonacci(int(k)) for k in n]


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1 if n == 0 else ackermann(m, n - 1))


def test_a_call_in_an_argument_of_a_call() -> None:
    out = run("ackermann", X % 3)
    assert out.tolist() == [ackermann(int(k) % 3, int(k) % 5) for k in X]


def test_functions_that_call_each_other() -> None:
    def even(n: int) -> int:
        return 1 if n == 0 else 3 * odd(n - 1) + n

    def odd(n: int) -> int:
        return 0 if n == 0 else 5 * even(n - 1) - n

    want = np.array([even(int(k) % 9) for k in X], "i8").astype("i4")
    assert run("mutual", X % 9).tolist() == want.tolist()


def test_local_arrays_lie_in_frames() -> None:
    """A sort that recurses over an array in local memory, and keeps an array in each frame."""
    data = np.random.default_rng(1).integers(-99, 99, (64, 24)).astype("i4")
    out = data.copy()
    assert recursive().launch("sort", (1,), (64,), [out]).kind == 0
    assert np.array_equal(out, np.sort(data, axis=1))


def test_structures_doubles_and_predicates_survive_calls() -> None:
    def walk(depth: int, x: float, flag: bool) -> tuple[float, int]:
        if depth == 0:
            return x, int(flag)
        left = walk(depth - 1, x * 0.5, not flag)
        right = walk(depth - 1, x + depth, flag)
        if flag:
            return left[0] - right[0], left[1] + 2 * right[1]
        return left[0] + right[0], left[1] - right[1] + 7

    out, count = np.zeros(64, "f8"), np.zeros(64, "i4")
    assert recursive().launch("walk", (1,), (64,), [out, count]).kind == 0
    for k in range(64):
        assert (out[k], int(count[k])) == walk(k % 6, k * 0.25, k % 3 == 0)


def test_virtual_functions_that_call_each_other_through_pointers() -> None:
    def value(n: int) -> int:
        return 1 if n <= 0 else (value(n - 1) + 2 if n & 1 else 3 * value(n - 2))

    assert run("tree", X % 12).tolist() == [value(int(k) % 12) for k in X]


@pytest.mark.parametrize("opt", [0, 2])
def test_too_deep_ends_the_launch(opt: int) -> None:
    out = np.zeros(64, "i4")
    depth = np.full(64, 3, "i4")
    module = recursive(opt)
    assert module.launch("deep", (1,), (64,), [depth, out]).kind == 0
    depth[37] = 1 << 20
    assert module.launch("deep", (1,), (64,), [depth, out]).kind == STACK_OVERFLOW


def test_barriers_inside_a_recursive_function() -> None:
    out = np.zeros(64, "i4")
    assert recursive().launch("levels", (1,), (64,), [out]).kind == 0
    assert out.tolist() == [sum(63 - k if d % 2 else k for d in range(1, 6)) for k in range(64)]


REGISTERS = """.version 8.0
.target sm_80
.address_size 64
.func (.reg .u32 %result) power(.reg .u32 %base, .reg .u32 %exponent)
{ .reg .pred %p; .reg .u32 %half, %rest;
  mov.u32 %result, 1; setp.eq.u32 %p, %exponent, 0; @%p ret;
  shr.u32 %rest, %exponent, 1; call (%half), power, (%base, %rest);
  mul.lo.u32 %result, %half, %half; and.b32 %rest, %exponent, 1; setp.eq.u32 %p, %rest, 0; @%p ret;
  mul.lo.u32 %result, %result, %base; ret; }
.func (.reg .u32 %a, .reg .u32 %b) swap(.reg .u32 %x, .reg .u32 %y)
{ mov.u32 %a, %y; mov.u32 %b, %x; ret; }
.func (.param .b32 r) twice(.param .b32 a)
{ .reg .b32 %v; ld.param.b32 %v, [a]; add.u32 %v, %v, %v; st.param.b32 [r], %v; ret; }
.func (.reg .u32 %d) gcd(.reg .u32 %x, .reg .u32 %y)
{ .reg .pred %p; .reg .u32 %r; mov.u32 %d, %x; setp.eq.u32 %p, %y, 0; @%p ret;
  rem.u32 %r, %x, %y; call (%d), gcd, (%y, %r); ret; }
.entry t(.param .u64 p) { .reg .b32 %r<9>; .reg .b64 %d<5>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 16; add.u64 %d0, %d0, %d1;
  call (%r1), power, (3, %r0); st.global.u32 [%d0], %r1;
  call (%r2, %r3), swap, (%r0, 77); sub.u32 %r2, %r2, %r3; st.global.u32 [%d0+4], %r2;
  call (%r4), twice, (%r0); call (%r5), twice, (21); add.u32 %r4, %r4, %r5;
  st.global.u32 [%d0+8], %r4;
  add.u32 %r0, %r0, 12; call (%r6), gcd, (%r0, 84); st.global.u32 [%d0+12], %r6; ret; }
"""


def test_registers_as_parameters() -> None:
    out = np.zeros((64, 4), "u4")
    assert Module(REGISTERS, opt=1).launch("t", (1,), (64,), [out]).kind == 0
    for k in range(64):
        want = [pow(3, k, 1 << 32), (77 - k) % (1 << 32), 2 * k + 42, int(np.gcd(k + 12, 84))]
        assert out[k].tolist() == want
