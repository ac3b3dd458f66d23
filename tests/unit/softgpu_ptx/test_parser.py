"""Reading PTX: layout of the text, debug content, initialisers, errors with lines."""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest

from remoting.softgpu.ptx import PtxError, UnsupportedForm, inspect_module, kernel_ir
from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.nvrtc import compile_file, compile_source

PLAIN = """.version 8.0
.target sm_80
.address_size 64

.visible .entry k(.param .u64 out, .param .u32 value)
{
    .reg .b64 %d<3>;
    .reg .b32 %r<4>;
    ld.param.u64 %d0, [out];
    ld.param.u32 %r0, [value];
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r2, %r1, %r0, 7;
    mul.wide.u32 %d1, %r1, 4;
    add.u64 %d2, %d0, %d1;
    st.global.u32 [%d2], %r2;
    ret;
}
"""


def works(text: str) -> None:
    out = np.zeros(32, "u4")
    assert Module(text, opt=0).launch("k", (1,), (32,), [out, 3]).kind == 0
    assert out.tolist() == [3 * k + 7 for k in range(32)]


def test_text_as_tools_write_it() -> None:
    works(PLAIN)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t + "\0",
        lambda t: t + "\0 this is behind the end {",
        lambda t: t.rstrip("\n"),
        lambda t: " ".join(t.split()),
        lambda t: "// first line\n/* two\nlines */" + t,
        lambda t: re.sub(r"([,;({])", r"/* a { b */ \1 // } c\n", t),
        lambda t: t.replace("    ", "\t\t").replace("mov", "\nmov"),
        lambda t: t.replace("%r", "%longer_name_$").replace("%d", "_d"),
        lambda t: " ".join(t.split()) + " " * (1 << 20),
        lambda t: t.replace(".target sm_80", ".target sm_80, debug\n"),
        lambda t: t.replace("{\n", '{\n.pragma "nounroll";\n', 1),
    ],
)
def test_layout_of_the_text_does_not_matter(change: object) -> None:
    works(change(PLAIN))  # type: ignore[operator]


def test_debug_content_is_skipped() -> None:
    text = PLAIN.replace(
        "    mov.u32",
        "$L__tmp0:\n    .loc 1 5 3\n    .loc 1 6 1, function_name $L__info_string0, inlined_at 1 9 4\n"
        "    .loc 2 7 1, function_name $L__info_string0+12, inlined_at 1 9 4\n    mov.u32",
    )
    text += """
    .file 1 "/tmp/a dir/x; {.cu"
    .file 2 "b.h", 1700000000, 55
    .section .debug_abbrev
    {
    .b8 1 // {
    .b8 17,1,37,8
    }
    .section .debug_info { .b32 .debug_abbrev .b64 $L__tmp0 }
    .section .debug_loc { }
    """
    works(text)
    works(text.replace("    .loc", "    /* x */ .loc"))


def test_nvrtc_output_with_debug_and_line_information() -> None:
    source = """extern "C" __global__ void k(int* out, int v) {
      out[threadIdx.x] = threadIdx.x * v + 7;
    }"""
    for options in (("-lineinfo",), ("-G",), ("-G", "-lineinfo")):
        works(compile_source(source, 80, *options))


# ---------------------------------------------------------------------- errors
def error(text: str, name: str = "k") -> PtxError:
    with pytest.raises(PtxError) as caught:
        read(text, name)
    return caught.value


def read(text: str, name: str) -> None:
    """As the driver does: the module first, then one kernel."""
    inspect_module(text)
    kernel_ir(text, name)


def test_text_cut_anywhere_is_an_error_with_a_line() -> None:
    text = compile_file("basic.cu", 80)
    lines = text.count("\n") + 1
    rng = np.random.default_rng(1)
    name = "locked_increment"
    complete = text.index("}", text.index(f".entry {name}("))
    for cut in [*(int(c) for c in rng.integers(0, len(text), 120)), len(text) - 3]:
        part = text[:cut]
        if cut > complete:  # what follows may be cut where nothing is missing
            with contextlib.suppress(PtxError):
                read(part, name)
            continue
        caught = error(part, name)
        assert caught.kind == "invalid_ptx"
        assert caught.line <= lines
        assert caught.line >= 1 or caught.message.startswith("no kernel")


@pytest.mark.parametrize(
    ("old", "new", "kind", "line", "part"),
    [
        ("mad.lo.u32", "mad.lo.u31", "unsupported_form", 12, "mad.lo.u31"),
        ("mov.u32 %r1", "mov.wide.u32 %r1", "unsupported_form", 11, "mov.wide.u32"),
        ("%tid.x;", "%tid.q;", "invalid_ptx", 11, "%tid.q"),
        ("%tid.x;", "%pm0;", "unsupported_form", 11, "%pm0"),
        ("%r2, %r1, %r0, 7", "%r2, %r9, %r0, 7", "invalid_ptx", 12, "%r9"),
        ("%r2, %r1, %r0, 7", "%r2, %d1, %r0, 7", "invalid_ptx", 12, "%d1"),
        ("%r2, %r1, %r0, 7", "%r2, %r1, %r0", "invalid_ptx", 12, "operands"),
        ("%r2, %r1, %r0, 7", "%r2, %r1, %r0, 0f00000000", "invalid_ptx", 12, "floating"),
        ("st.global.u32 [%d2]", "st.global.u32 [%r2]", "invalid_ptx", 15, "%r2"),
        ("st.global.u32 [%d2]", "st.const.u32 [%d2]", "unsupported_form", 15, "st.const.u32"),
        ("st.global.u32 [%d2]", "st.global.u32 [nowhere]", "invalid_ptx", 15, "nowhere"),
        ("    ret;", "    bra nowhere;", "invalid_ptx", 16, "label"),
        ("    ret;", "    .strange 5;", "invalid_ptx", 16, ".strange"),
        ("    ret;", "    call nowhere;", "invalid_ptx", 16, "nowhere"),
        ("    ret;", "    @%r1 ret;", "invalid_ptx", 16, "%r1"),
        (".b32 %r<4>", ".b32 %r<4>, %r1", "invalid_ptx", 8, "twice"),
        (".visible .entry", ".peculiar .entry", "invalid_ptx", 5, ".peculiar"),
        ("u32 value)", "u32 value) .frobnicate 3", "invalid_ptx", 5, ".frobnicate"),
        (".version 8.0", ".version 19.4", "unsupported_version", 1, "19.4"),
        (".version 8.0", ".version 1.4", "unsupported_version", 1, "1.4"),
        (".address_size 64", ".address_size 32", "unsupported_form", 3, "32"),
        (".version 8.0", "ELF", "invalid_ptx", 1, "PTX"),
    ],
)
def test_error_names_what_and_where(old: str, new: str, kind: str, line: int, part: str) -> None:
    assert old in PLAIN
    caught = error(PLAIN.replace(old, new))
    assert (caught.kind, caught.line) == (kind, line), caught
    assert part in caught.message


def test_unknown_kernel() -> None:
    assert "no kernel x" in error(PLAIN, "x").message


def test_unsupported_kernel_does_not_spoil_the_module() -> None:
    other = PLAIN[PLAIN.index(".visible") :].replace("entry k", "entry bad")
    other = other.replace("mad.lo.u32", "tcgen05.alloc.b32")
    works(PLAIN + other)
    with pytest.raises(UnsupportedForm, match=re.escape("tcgen05.alloc.b32")) as caught:
        kernel_ir(PLAIN + other, "bad")
    assert caught.value.line == 25


def test_inspection_names_forms_that_will_be_refused() -> None:
    """Also those of functions that a kernel calls; comments and names do not count."""
    text = """.version 8.0
    .target sm_80
    .address_size 64
    .func f(.param .b32 x) { // tex.bad.one
      frobnicate.u32 %r1, %r2; ret; }
    .entry fine() { .reg .b32 %r<4>; /* wgmma.x */ add.u32 %r1, %r2, 3; @!%p bra.uni L; L: ret; }
    .entry first() { .reg .b32 %r<4>; .reg .pred %p; @!%p tex.2d.v4.f32.s32 {%r1}, [t, {%r2}]; ret; }
    .entry second() { { .param .b32 z; call.uni f, (z); } ret; }
    """
    refused = {k.name: k.refused for k in inspect_module(text).kernels}
    assert refused == {
        "fine": "",
        "first": "line 7: instruction form not supported: tex.2d.v4.f32.s32",
        "second": "line 5: instruction form not supported: frobnicate.u32",
    }
    assert not inspect_module(text + "//" + " " * (1 << 20)).kernels[1].refused


# ---------------------------------------------------------------------- modules
def test_inspection() -> None:
    text = """.version 8.0
    .target sm_90a
    .address_size 64
    .extern .shared .align 16 .b8 dynamic[];
    .visible .const .align 4 .f32 c[2][3] = {{1.5, 0f40000000}, {3, 4, 5}};
    .global .align 8 .u64 table[3] = {generic(c), after, generic(c)+8};
    .global .v2 .u16 after = {7, 0xFFFF};
    .weak .global .align 16 .b8 text[5] = {104, 105};
    .global .align 8 .b8 raw[16] = {0xFF(generic(text)), 0xFF00(generic(text)),
      0xFF0000(generic(text)), 0xFF000000(generic(text)), 0xFF00000000(generic(text)),
      0xFF0000000000(generic(text)), 0xFF000000000000(generic(text)),
      0xFF00000000000000(generic(text)), 1, 2};
    .global .f64 d = 0d3FF8000000000000;
    .global .s32 negative[] = {-1, -2};
    .visible .entry e(.param .u8 a, .param .align 8 .b8 s[12], .param .u32 b, .param .f64 c1)
    .maxntid 8, 4 .reqntid 32, 1, 1 .minnctapersm 2
    { .shared .align 4 .b8 st[100]; .local .align 8 .b8 depot[20]; ret; }
    .entry f() { ret; }
    """
    info = inspect_module(text)
    assert (info.version, info.target) == ("8.0", "sm_90a")
    e, f = info.kernels
    assert (e.name, e.params, e.param_bytes) == ("e", [(0, 1), (8, 12), (20, 4), (24, 8)], 32)
    assert (e.max_threads, e.req_ntid, e.static_shared) == (32, (32, 1, 1), 100)
    assert (f.name, f.params, f.param_bytes, f.max_threads) == ("f", [], 0, 0)
    at = {g.name: g for g in info.globals}
    assert at["c"].constant
    assert not at["table"].constant
    assert all(g.offset % g.align == 0 for g in info.globals)
    image = info.image.ljust(info.globals_bytes, b"\0")

    def part(name: str) -> bytes:
        return image[at[name].offset : at[name].offset + at[name].size]

    assert np.frombuffer(part("c"), "f4").tolist() == [1.5, 2, 0, 3, 4, 5]
    assert np.frombuffer(part("after"), "u2").tolist() == [7, 0xFFFF]
    assert part("text") == b"hi\0\0\0"
    assert part("raw")[8:10] == b"\1\2"
    assert np.frombuffer(part("d"), "f8").tolist() == [1.5]
    assert np.frombuffer(part("negative"), "i4").tolist() == [-1, -2]
    placed = {(r.offset - at["table"].offset, r.target, r.addend) for r in info.relocations}
    assert {(0, "c", 0), (8, "after", 0), (16, "c", 8)} <= placed
    assert (at["raw"].offset - at["table"].offset, "text", 0) in placed


def test_names_of_inner_scopes_are_their_own() -> None:
    text = PLAIN.replace(
        "    mad.lo.u32 %r2, %r1, %r0, 7;",
        """    { .reg .b32 %r1; .reg .pred p; mov.u32 %r1, 5; setp.eq.u32 p, %r1, 5; @p bra SKIP;
        mov.u32 %r0, 0;
        SKIP: { .reg .b32 %r0; mov.u32 %r0, 77; } }
    { .reg .pred p; setp.ne.u32 p, %r0, 3; @p bra SKIP; bra OUT; SKIP: mov.u32 %r0, 0; OUT: }
    mad.lo.u32 %r2, %r1, %r0, 7;""",
    )
    works(text)
