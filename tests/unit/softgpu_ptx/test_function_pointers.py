"""Calls through pointers, and parts of a module that cannot be compiled."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from remoting.softgpu.ptx import PtxError, inspect_module, kernel_ir
from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file

ILLEGAL_INSTRUCTION = 5
X = np.arange(64)
OPERATIONS = [2 * X, X * X, -X]


@functools.cache
def pointers() -> Module:
    return Module(compile_file("pointers.cu", 80), opt=1)


def which() -> np.ndarray:
    return (np.arange(64) * 7 % 3).astype("i4")


def expected(choice: np.ndarray) -> np.ndarray:
    return np.choose(choice, OPERATIONS)


def test_each_lane_calls_its_own_function() -> None:
    out = np.zeros(64, "i4")
    assert pointers().launch("by_table", (1,), (64,), [which(), out]).kind == 0
    assert np.array_equal(out, expected(which()))


def test_pointers_go_through_other_functions() -> None:
    choice, out = which(), np.full(64, 5, "i4")
    choice[10:20] = 3
    assert pointers().launch("nested", (1,), (64,), [choice, out]).kind == 0
    want = expected(np.minimum(choice, 2)) + 1
    want[10:20] = 5
    assert np.array_equal(out, want)


def test_a_pointer_means_the_same_in_every_kernel() -> None:
    module, out = pointers(), np.zeros(64, "i4")
    for choice in (0, 1):
        assert module.launch("choose", (1,), (1,), [choice]).kind == 0
        assert module.launch("use_chosen", (1,), (64,), [out], keep=True).kind == 0
        assert np.array_equal(out, OPERATIONS[1 if choice else 2])
    address = np.zeros(1, "u8")
    assert module.launch("get", (1,), (1,), [address]).kind == 0
    assert module.launch("given", (1,), (64,), [int(address[0]), out]).kind == 0
    assert np.array_equal(out, OPERATIONS[0])


def test_functions_of_another_signature_are_not_meant() -> None:
    out = np.zeros(64, "f4")
    assert pointers().launch("single", (1,), (64,), [out]).kind == 0
    assert np.array_equal(out, X.astype("f4") / 2)


@pytest.mark.parametrize("address", [0, 0x1234, 0x7F << 56])
def test_other_pointers_end_the_launch(address: int) -> None:
    out = np.zeros(64, "i4")
    assert pointers().launch("given", (1,), (64,), [address, out]).kind == ILLEGAL_INSTRUCTION


def test_virtual_functions() -> None:
    choice, out = which(), np.zeros(64, "i4")
    assert pointers().launch("virtual_call", (1,), (64,), [choice, out]).kind == 0
    assert np.array_equal(out, np.where(choice & 1, np.where(X < 2, 1, 4 * X - 4), 7 * X))


LISTED = """.version 8.0
.target sm_80
.address_size 64
.func (.param .b32 r) one(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r0, [a];
  add.u32 %r1, %r0, 1; st.param.b32 [r], %r1; ret; }
.func (.param .b32 r) two(.param .b32 a) { .reg .b32 %r<3>; ld.param.b32 %r0, [a];
  add.u32 %r1, %r0, 2; st.param.b32 [r], %r1; ret; }
.entry t(.param .u64 p) { .reg .b32 %r<5>; .reg .b64 %d<5>; .reg .pred %p<3>;
  ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1;
  setp.lt.u32 %p0, %r0, 5; setp.lt.u32 %p1, %r0, 9; mov.u64 %d2, one; @%p0 mov.u64 %d2, two;
  mov.u32 %r2, 77;
  targets: .calltargets one, two;
  { .param .b32 x; .param .b32 y; st.param.b32 [x], %r0;
    @%p1 call (y), %d2, (x), targets; @%p1 ld.param.b32 %r2, [y]; }
  st.global.b32 [%d0], %r2; ret; }
"""


def test_listed_targets_and_a_guard() -> None:
    out = np.zeros(32, "u4")
    assert Module(LISTED).launch("t", (1,), (32,), [out]).kind == 0
    assert out.tolist() == [k + 2 if k < 5 else k + 1 if k < 9 else 77 for k in range(32)]


def test_identity_covers_functions_that_a_pointer_may_mean() -> None:
    text = compile_file("pointers.cu", 80)
    before = {k.name: k.code for k in inspect_module(text).kernels}
    start = text.index("neg.s32")
    changed = text[:start] + "not.b32" + text[start + 7 :]
    after = {k.name: k.code for k in inspect_module(changed).kernels}
    assert before["use_chosen"] != after["use_chosen"]
    assert before["virtual_call"] != after["virtual_call"]
    assert before["get"] == after["get"]


# ---------------------------------------------------------------------- what cannot be compiled
BROKEN = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 good = 5;
.global .align 4 .u32 half_address = good;
.global .align 8 .u64 chain[2] = {good, half_address};
.global .align 1 .b8 cut[4] = {0xFF(good), 0xFF00(good), 3, 4};
.entry fine() { .reg .b32 %r<2>; ld.global.u32 %r0, [good]; ret; }
.entry first() { .reg .b32 %r<2>; ld.global.u32 %r0, [half_address]; ret; }
.entry second() { .reg .b64 %d<2>; ld.global.u64 %d0, [chain]; ret; }
.entry third() { .reg .b16 %r<2>; ld.global.u8 %r0, [cut]; ret; }
.entry fourth() .reqnctapercluster 2 { ret; }
"""


def test_what_cannot_be_compiled_spoils_only_its_users() -> None:
    info = inspect_module(BROKEN)
    assert not {"half_address", "cut"} & {g.name for g in info.globals}
    assert info.unresolved == ["chain", "cut", "half_address"]
    assert kernel_ir(BROKEN, "fine")
    for name, reason in {
        "first": r"variable half_address: address of good in a \.u32 initialiser",
        "second": "variable chain",
        "third": "variable cut: part of an address",
        "fourth": r"function fourth: directive \.reqnctapercluster is not supported",
    }.items():
        with pytest.raises(PtxError, match=reason) as caught:
            kernel_ir(BROKEN, name)
        assert caught.value.kind == "unsupported_form"


def test_a_call_needs_a_prototype() -> None:
    text = LISTED.replace(", targets;", ";")
    with pytest.raises(PtxError, match="needs a prototype"):
        kernel_ir(text, "t")
