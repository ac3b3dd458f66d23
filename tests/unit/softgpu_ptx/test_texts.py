"""PTX as the world writes it: debug sections, odd line ends, one long line, cut in the middle."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from remoting.softgpu.ptx import PtxError, inspect_module, kernel_ir
from tests.unit.softgpu_ptx.harness import HERE, Module
from tests.unit.softgpu_ptx.nvrtc import compile_source

SOURCE = """
__device__ __noinline__ float twice(float x) { return 2 * x; }
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * twice(x[i]) + y[i];
}
"""
#: The same for LLVM, with what a front end adds for a debugger.
LLVM_SOURCE = """
target triple = "nvptx64-nvidia-cuda"
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
define ptx_kernel void @axpy(float %a, ptr %x, ptr %y, i32 %n) !dbg !4 {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !7
  %c = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !7
  %d = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x(), !dbg !7
  %b = mul i32 %c, %d, !dbg !7
  %i = add i32 %b, %t, !dbg !7
  %inside = icmp slt i32 %i, %n, !dbg !7
  br i1 %inside, label %work, label %done, !dbg !7
work:
  %px = getelementptr float, ptr %x, i32 %i, !dbg !8
  %py = getelementptr float, ptr %y, i32 %i, !dbg !8
  %vx = load float, ptr %px, !dbg !8
  %vy = load float, ptr %py, !dbg !8
  %two = fmul float %vx, 2.0, !dbg !8
  %p = fmul float %two, %a, !dbg !8
  %s = fadd float %p, %vy, !dbg !8
  store float %s, ptr %py, !dbg !8
  br label %done, !dbg !8
done:
  ret void, !dbg !8
}
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "test", emissionKind: FullDebug)
!1 = !DIFile(filename: "axpy.c", directory: "/tmp")
!2 = !{i32 2, !"Dwarf Version", i32 2}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = distinct !DISubprogram(name: "axpy", file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 3, column: 1, scope: !4)
!8 = !DILocation(line: 4, column: 9, scope: !4)
"""


@functools.cache
def by_llvm() -> str:
    """PTX of LLVM's own back end, which clang and numba use."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(cpu="sm_80")
    return str(machine.emit_assembly(llvm.parse_assembly(LLVM_SOURCE)))


@functools.cache
def text_of(origin: str) -> str:
    if origin == "llvm":
        return by_llvm()
    options = {"plain": (), "lines": ("-lineinfo",), "debug": ("-G",), "both": ("-G", "-lineinfo")}
    return compile_source(SOURCE, 80, *options[origin])


ORIGINS = ["plain", "lines", "debug", "both", "llvm"]


def on_one_line(text: str) -> str:
    """Comments and line ends gone, and blanks up to a megabyte."""
    flat = " ".join(re.sub(r"//[^\n]*", "", text).split())
    return flat.replace(";", "; " + " " * ((1 << 20) // max(flat.count(";"), 1)))


VARIANTS: dict[str, Callable[[str], str]] = {
    "as it is": lambda t: t,
    "CRLF": lambda t: t.replace("\n", "\r\n"),
    "a zero at the end": lambda t: t + "\0",
    "several zeros": lambda t: t + "\0\n\0\0",
    "no final line end": lambda t: t.rstrip(),
    "comments between tokens": lambda t: re.sub(
        r"(?m)^(\s*[a-z][\w.]*)[ \t]+(?=[%\[{])", r"\1 /* a; { } */ ", t
    ),
    "tabs": lambda t: t.replace(" ", "\t"),
    "one line": on_one_line,
}


def runs_well(text: str) -> None:
    x, y = np.arange(100, dtype="f4"), np.arange(100, dtype="f4")[::-1].copy()
    want = 3 * 2 * x + y
    assert Module(text, opt=1).launch("axpy", (2,), (64,), [np.float32(3), x, y, 100]).kind == 0
    assert np.array_equal(y, want)


@pytest.mark.parametrize("origin", ORIGINS)
def test_debug_content_is_skipped(origin: str) -> None:
    text = text_of(origin)
    if origin != "plain":
        assert ".loc" in text
    if origin in ("debug", "both", "llvm"):
        assert ".section" in text
    runs_well(text)


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("origin", ["both", "llvm"])
def test_layout_of_the_text_does_not_matter(origin: str, variant: str) -> None:
    if variant == "one line" and origin != "llvm":
        text = text_of("plain")  # a .file and a .loc end with their line
    else:
        text = text_of(origin)
        if variant == "one line":
            text = re.sub(r"(?m)^\s*\.(?:loc|file)\b[^\n]*$", "", text)
    runs_well(VARIANTS[variant](text))


@functools.cache
def by_numba(debug: bool) -> str:
    from numba import cuda, float32, int32, void

    def axpy(a, x, y, n):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        if i < n:
            y[i] = a * (x[i] * float32(2)) + y[i]

    signature = void(float32, float32[::1], float32[::1], int32)
    how = {"debug": True, "opt": False} if debug else {"lineinfo": True}
    return str(cuda.compile_ptx(axpy, signature, cc=(8, 0), **how)[0])


def entry_of(text: str) -> str:
    found = re.search(r"\.entry\s+(\S+?)\s*\(", text)
    assert found is not None
    return found.group(1)


@pytest.mark.parametrize("debug", [True, False])
@pytest.mark.parametrize("variant", ["as it is", "CRLF", "a zero at the end"])
def test_kernels_of_numba(debug: bool, variant: str) -> None:
    text = VARIANTS[variant](by_numba(debug))
    x, y = np.arange(100, dtype="f4"), np.arange(100, dtype="f4")[::-1].copy()
    want = 3 * 2 * x + y
    # an array is its owners, numbers of items and bytes, data, shape and strides
    arrays = [[0, 0, 100, 4, v, 100, 4] for v in (x, y)]
    arguments = [np.float32(3), *arrays[0], *arrays[1], 100]
    assert Module(text, opt=1).launch(entry_of(text), (2,), (64,), arguments).kind == 0
    assert np.array_equal(y, want)


@pytest.mark.parametrize("origin", [*ORIGINS, "triton", "numba"])
def test_a_cut_text_is_an_error_with_a_line(origin: str) -> None:
    if origin == "triton":
        text, kernel = (HERE / "kernels/triton_matmul.ptx").read_text(), "matmul"
    elif origin == "numba":
        text, kernel = by_numba(True), entry_of(by_numba(True))
    else:
        text, kernel = text_of(origin), "axpy"
    rng = np.random.default_rng(9)
    found = [
        error_of(text[:offset], kernel)
        for offset in sorted(rng.integers(1, len(text), 200 if origin in ORIGINS else 60))
    ]
    errors = [(cut, error) for cut, error in found if error is not None]
    assert len(errors) > 20
    for cut, error in errors:
        assert error.kind in ("invalid_ptx", "unsupported_version"), str(error)
        assert 1 <= error.line <= cut.count("\n") + 1, str(error)


def error_of(cut: str, kernel: str) -> tuple[str, PtxError | None]:
    """What is wrong with the text, if anything: it may end between two functions."""
    try:
        info = inspect_module(cut)
        if kernel in [k.name for k in info.kernels]:
            kernel_ir(cut, kernel)
    except PtxError as error:
        return cut, error
    return cut, None
