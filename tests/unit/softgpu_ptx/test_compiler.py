"""Optimisation levels and the stack that code may take."""

from __future__ import annotations

import numpy as np
import pytest

from remoting.softgpu.ptx import PtxError, TargetSpec, compile_kernel, compiler
from tests.unit.softgpu_ptx.harness import Module


def many_registers(count: int) -> str:
    """All values are live at the end."""
    loads = "\n".join(f"ld.global.f64 %g{k}, [%d1+{8 * k}];" for k in range(count))
    sums = "\n".join(f"fma.rn.f64 %g0, %g0, %g{k}, %g{k};" for k in range(1, count))
    return f""".version 8.0
    .target sm_80
    .address_size 64
    .visible .entry k(.param .u64 p, .param .u64 q) {{
    .reg .f64 %g<{count}>; .reg .b64 %d<9>; .reg .b32 %r<2>;
    ld.param.u64 %d0, [p]; ld.param.u64 %d2, [q]; mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 8; add.u64 %d1, %d0, %d3; add.u64 %d4, %d2, %d3;
    {loads}
    {sums}
    st.global.f64 [%d4], %g0; ret; }}
    """


def test_every_level_gives_the_same_bits() -> None:
    text, results = many_registers(20), []
    for opt in (0, 1, 2, 3, None):
        data, out = np.random.default_rng(1).standard_normal(64), np.zeros(32)
        assert Module(text, opt).launch("k", (1,), (32,), [data, out]).kind == 0
        results.append(out.tobytes())
    assert len(set(results)) == 1


def test_code_that_takes_too_much_stack_is_optimised_or_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = many_registers(40)
    quick, better = (compile_kernel(text, "k", TargetSpec.host(opt)) for opt in (0, 1))
    frames = [compiler.stack_bytes(code) for code in (quick, better)]
    assert frames[0] > 2 * frames[1] > 0
    monkeypatch.setattr(compiler, "STACK_LIMIT", frames[1] + 1000)
    assert compile_kernel(text, "k", TargetSpec.host(0)) == better
    monkeypatch.setattr(compiler, "STACK_LIMIT", 200)
    with pytest.raises(PtxError, match="KiB of stack") as caught:
        compile_kernel(text, "k", TargetSpec.host(2))
    assert caught.value.kind == "unsupported_form"
