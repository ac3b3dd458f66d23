"""A kernel's identity changes with everything its code is made from, and with nothing else."""

from __future__ import annotations

import pytest

from remoting.softgpu.ptx import inspect_module, kernel_ir
from tests.unit.softgpu_ptx.nvrtc import compile_file

TEXT = """.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 first = 5;
.const .align 4 .u32 limit = 7;
.global .align 4 .u32 last;
.shared .align 4 .b8 tile[64];
.func (.param .b32 r) inner() { .reg .b32 %r<2>;
  mov.u32 %r0, 3; // three
  st.param.b32 [r], %r0; ret; }
.func (.param .b32 r) outer() { .reg .b32 %r<2>;
  { .param .b32 x; call.uni (x), inner, (); ld.param.b32 %r0, [x]; }
  st.param.b32 [r], %r0; ret; }
.entry calls() { .reg .b32 %r<2>;
  .loc 1 5 3
  { .param .b32 x; call.uni (x), outer, (); ld.param.b32 %r0, [x]; }
  st.global.b32 [last], %r0; ret; }
.entry alone() { .reg .b32 %r<2>;
  ld.global.u32 %r0, [first]; st.shared.u32 [tile], %r0; ret; }
"""


def identities(text: str) -> dict[str, str]:
    return {kernel.name: kernel.code for kernel in inspect_module(text).kernels}


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("// three", "// 3", ""),
        (".loc 1 5 3", ".loc 1 99 3", ""),
        ("first = 5", "first = 6", ""),
        ("limit = 7", "limit = 8", ""),
        ("mov.u32 %r0, 3", "mov.u32 %r0, 4", "calls"),
        ("[x]; }\n  st.param", "[x]; }\n  add.u32 %r0, %r0, 1; st.param", "calls"),
        ("[last]", "[first]", "calls"),
        ("[first]", "[limit]", "alone"),
        ("tile[64]", "tile[128]", "alone"),
        ("tile[64]", "tile[32]", "alone"),
        (".const .align 4 .u32 limit", ".const .align 4 .b8 limit[8]", "calls alone"),
        (".global .align 4 .u32 first", ".global .align 16 .b8 x[16];\n.global .u32 first", "both"),
        (".version 8.0", ".version 8.1", "both"),
        (".target sm_80", ".target sm_90", "both"),
        (".entry alone()", ".entry more() { ret; }\n.entry alone()", ""),
        (".entry alone() {", ".entry alone() .maxntid 64 {", "alone"),
    ],
)
def test_changes(old: str, new: str, changed: str) -> None:
    assert old in TEXT
    before, text = identities(TEXT), TEXT.replace(old, new)
    after = identities(text)
    names = before.keys() if changed == "both" else set(changed.split())
    assert {name for name in before if before[name] != after[name]} == set(names)
    for name in before.keys() - set(names):
        assert kernel_ir(TEXT, name) == kernel_ir(text, name)


def test_an_alias_is_what_it_stands_for() -> None:
    text = TEXT.replace("outer, ()", "other, ()") + ".alias other, outer;\n"
    assert identities(text)["calls"] != identities(TEXT)["calls"]
    edited = text.replace("mov.u32 %r0, 3", "mov.u32 %r0, 4")
    assert identities(text)["calls"] != identities(edited)["calls"]
    assert identities(text)["alone"] == identities(edited)["alone"]


def test_line_information_of_the_compiler_does_not_matter() -> None:
    plain = identities(compile_file("basic.cu", 80, "-lineinfo"))
    moved = "\n\n" + compile_file("basic.cu", 80, "-lineinfo")
    assert identities(moved) == plain


def test_size_counts_what_is_called() -> None:
    sizes = {kernel.name: kernel.text_bytes for kernel in inspect_module(TEXT).kernels}
    assert sizes["calls"] > sizes["alone"] + 100
