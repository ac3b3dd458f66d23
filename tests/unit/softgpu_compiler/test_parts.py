"""Small promises of the helper's parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remoting.softgpu.compiler import library, wire
from remoting.softgpu.compiler.cache import Cache
from remoting.softgpu.compiler.children import Limits
from remoting.softgpu.compiler.library import Library, LibrarySettings
from remoting.softgpu.compiler.target import cpu_fingerprint
from remoting.softgpu.compiler.translator import DEFAULT_TRANSLATOR, Translator
from tests.unit.softgpu_compiler.harness import HERE, ROOT


def test_the_abi_version_is_that_of_the_header() -> None:
    header = (ROOT / "remoting/softgpu/exec/kernel_abi.h").read_text()
    found = re.search(r"#define SG_ABI_VERSION (\d+)", header)
    assert found
    assert int(found[1]) == library.ABI_VERSION


def test_the_protocol_version_is_that_of_the_client() -> None:
    client = (ROOT / "remoting/softgpu/compiler/client.cc").read_text()
    found = re.search(r"kProtocol = (\d+);", client)
    assert found
    assert int(found[1]) == wire.PROTOCOL


def test_another_translator_has_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_translator"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text("one = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = Translator("some_translator").fingerprint()
    assert Translator("some_translator").fingerprint() == before
    (package / "rules.py").write_text("one = 2")
    assert Translator("some_translator").fingerprint() != before
    with pytest.raises(ModuleNotFoundError):
        Translator("remoting.nowhere").fingerprint()


def test_another_processor_has_another_fingerprint(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("vendor_id : A\nflags : avx2 fma\ncpu MHz : 1\n\nvendor_id : A\n")
    before = cpu_fingerprint(cpuinfo)
    cpuinfo.write_text("vendor_id : A\nflags : fma avx2\ncpu MHz : 2\n\nvendor_id : A\n")
    assert cpu_fingerprint(cpuinfo) == before
    cpuinfo.write_text("vendor_id : A\nflags : avx2 fma avx512f\ncpu MHz : 1\n")
    assert cpu_fingerprint(cpuinfo) != before
    assert len(cpu_fingerprint()) == 64


def test_texts_are_held_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setattr(library, "HELD_BYTES", 100)
    held = Library(Translator("fake_translator"), Cache(tmp_path), LibrarySettings(None, Limits()))
    names = [held.hold(bytes([number]) * 40) for number in range(3)]
    assert list(held._texts) == names[1:]
    huge = held.hold(bytes(1000))
    assert list(held._texts) == [huge]


def test_the_real_translator_offers_what_the_helper_uses() -> None:
    translator = Translator(DEFAULT_TRANSLATOR).load()
    for name in ("inspect_module", "compile_kernel", "PtxError", "TargetSpec"):
        assert hasattr(translator, name)
