"""The whitelist itself, and the offsets shared with the runtime."""

from __future__ import annotations

import ast
import subprocess

from remoting.softgpu.ptx import abi, forms
from remoting.softgpu.ptx.families import load_all
from tests.unit.softgpu_ptx import coverage, ptx_report
from tests.unit.softgpu_ptx.harness import ROOT, Env, workspace

load_all()


def test_each_form_has_one_generator() -> None:
    """Two patterns that both cover a form would make its meaning depend on their order."""
    owner: dict[str, forms.Pattern] = {}
    for pattern in forms.all_patterns():
        every = list(pattern.expand())
        # loads and stores have hundreds of thousands of forms: every n-th, n prime
        for form in every[:: 1 if len(every) < 3000 else 997]:
            assert owner.setdefault(form, pattern) is pattern, form
            assert forms.find(form) is not None
    assert len(owner) > 5000


def test_whole_names_only() -> None:
    for name in ("add", "add.u32.x", "add.u8", "xadd.u32", "add.rn.u32", "sub.rn.f32.f16x",
                 "cvt.u32.f32", "ld.global", "min.ftz.f64", "bar.sync.0"):  # fmt: skip
        assert forms.find(name) is None, name


def test_offsets_are_those_of_the_header() -> None:
    header = (ROOT / "remoting/softgpu/exec/kernel_abi.h").read_text()
    source = ['#include "softgpu/exec/kernel_abi.h"', "#define CHECK(x) _Static_assert(x, #x)"]
    source += [f"CHECK(offsetof(sg_warp_env, {n}) == {o});" for n, o in abi.ENV.items()]
    source += [f"CHECK(offsetof(sg_services, {n}) == {o});" for n, o in abi.SERVICES.items()]
    source.append(f"CHECK(sizeof(sg_warp_env) == {abi.ENV_SIZE});")
    source.append(f"CHECK(SG_ABI_VERSION == {abi.ABI_VERSION});")
    names = {"KERNEL_NEEDS_FIBERS", "KERNEL_DYNAMIC_SHARED", "KERNEL_COOPERATIVE",
             "KERNEL_USES_HEAP", "KERNEL_USES_STACK", "TRAP_TRAP", "TRAP_STACK_OVERFLOW",
             "TRAP_ILLEGAL_ADDRESS", "TRAP_MISALIGNED", "TRAP_ASSERT", "TRAP_ILLEGAL_INSTRUCTION"}  # fmt: skip
    source += [f"CHECK(SG_{name} == {getattr(abi, name)});" for name in sorted(names)]
    source += [f"CHECK(SG_REDUCE_{op.upper()} == {value});" for op, value in abi.REDUCE.items()]
    path = workspace() / "offsets.c"
    path.write_text("\n".join(source) + "\n")
    subprocess.run(["gcc", "-fsyntax-only", "-I", str(ROOT / "remoting"), str(path)], check=True)
    assert f'#define SG_KERNEL_DESC_SYMBOL "{abi.DESC_SYMBOL}"' in header
    for name in abi.ENV:
        assert getattr(Env, name).offset == abi.ENV[name]


def test_every_form_is_tested() -> None:
    """What is accepted and what the tables of tests run are the same."""
    missing = coverage.untested()
    assert not missing, f"{len(missing)} accepted, not tested:\n" + "\n".join(
        map(str, missing[:40])
    )
    assert not [m for m in coverage.tested() if m not in coverage.accepted()]


def test_generators_are_not_told_more_than_their_choices() -> None:
    """Forms with equal choices get equal code: nobody reads the rest of the name.

    The name may go into messages; barriers are looked up by it in the whitelist.
    """
    allowed = {"sync.py": 3, "system_calls.py": 1}
    for path in sorted((ROOT / "remoting/softgpu/ptx/families").glob("*.py")):
        names = [node for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.Attribute) and node.attr == "form"]  # fmt: skip
        assert len(names) == allowed.get(path.name, 0), (path.name, [n.lineno for n in names])


def test_the_reference_page_is_up_to_date() -> None:
    """`make ptx-report` writes it."""
    page = ROOT / "docs/reference/ptx-forms.md"
    assert page.read_text() == ptx_report.page(), f"{page} is old: run make ptx-report"
