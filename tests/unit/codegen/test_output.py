"""What is written: committed files are current, and the C++ has what consumers rely on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from remoting.codegen import cli
from remoting.codegen.emit import coverage_page, cpp_files, python_codec
from remoting.codegen.model import Api
from remoting.codegen.wire import read_protocol


@pytest.fixture(scope="module")
def files(api: Api) -> dict[str, str]:
    return cpp_files(api)


def body(text: str, start: str) -> str:
    """The function whose head starts so, up to its closing brace."""
    at = text.index(start)
    return text[at : text.index("\n}\n", at)]


def test_the_python_codec_in_the_tree_is_current() -> None:
    text = python_codec(read_protocol(cli.MESSAGES))
    assert cli.PYTHON_CODEC.read_text() == text, "run `make generate`"


def test_the_coverage_page_is_current_and_complete(api: Api) -> None:
    text = coverage_page(api)
    assert text == cli.COVERAGE.read_text(), "run `make generate`"
    listed = set(re.findall(r"^\| `(cu\w+)` \|", text, re.MULTILINE))
    assert listed == set(api.header.bases())


def test_every_symbol_is_exported_and_in_the_version_script(
    api: Api, files: dict[str, str]
) -> None:
    for name in ("client_exports.cc", "softgpu_exports.cc", "null_exports.cc"):
        exported = re.findall(r"^HEADRACE_EXPORT (\w+)\(", files[name], re.MULTILINE)
        assert sorted(exported) == sorted(api.header.functions)
    assert set(re.findall(r"(cu\w+);", files["client.map"])) == set(api.header.functions)


def test_a_per_thread_form_means_the_threads_stream(files: dict[str, str]) -> None:
    text = files["softgpu_exports.cc"]
    stream = body(text, "HEADRACE_EXPORT cuMemsetD8Async_ptsz(")
    assert "cuMemsetD8Async(dstDevice, uc, N, headrace::gen::or_per_thread(hStream))" in stream
    scope = body(text, "HEADRACE_EXPORT cuMemcpy_ptds(")
    assert "PerThreadStream scope;" in scope
    config = body(text, "HEADRACE_EXPORT cuLaunchKernelEx_ptsz(")
    assert "PerThreadStream scope;" in config
    assert "scope" not in body(text, "HEADRACE_EXPORT cuMemcpy(")


def test_the_client_refuses_with_the_reason(files: dict[str, str]) -> None:
    text = body(files["client_exports.cc"], "HEADRACE_EXPORT cuArrayCreate(")
    assert 'refused(told, "cuArrayCreate", "32-bit ABI of CUDA 3.1")' in text


def test_a_form_without_a_stream_uses_the_implicit_one(files: dict[str, str]) -> None:
    text = body(files["client_calls.cc"], "CUresult cuMemsetD8_v2(")
    assert "families::cuMemsetD8Async(dstDevice, uc, N, gen::implicit_stream())" in text


def test_generated_handlers_check_every_handle(files: dict[str, str]) -> None:
    text = body(files["worker_dispatch.cc"], "Outcome handle_cuStreamWaitEvent(")
    assert "session.find(HandleKind::stream, call.hStream, hStream)" in text
    assert "session.find(HandleKind::event, call.hEvent, hEvent)" in text


def test_a_handle_is_kept_only_after_success(files: dict[str, str]) -> None:
    text = body(files["worker_dispatch.cc"], "Outcome handle_cuStreamCreate(")
    assert "if (result == CUDA_SUCCESS) result = session.adopt(HandleKind::stream" in text


def test_the_command_writes_only_what_changed(tmp_path: Path) -> None:
    runner = CliRunner()
    first = runner.invoke(cli.main, ["--out", str(tmp_path)])
    assert first.exit_code == 0, first.output
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert runner.invoke(cli.main, ["--out", str(tmp_path)]).exit_code == 0
    assert made == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_the_build_knows_every_file_that_is_written(tmp_path: Path) -> None:
    lists = (cli.ROOT / "remoting/codegen/CMakeLists.txt").read_text()
    assert CliRunner().invoke(cli.main, ["--out", str(tmp_path)]).exit_code == 0
    known = set(re.findall(r"[\w]+\.(?:h|cc|inc|map)\b", lists))
    assert {path.name for path in tmp_path.iterdir()} <= known


def test_faults_end_the_command_with_their_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ids.toml", "structs.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "memory.toml").write_text("cuMemAloc = { class = 'local' }\n")
    monkeypatch.setattr(cli, "APISPEC", tmp_path)
    result = CliRunner().invoke(cli.main, ["--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "codegen: cuInit is in cuda.h and has no row" in result.output
    assert "[cuMemAloc] is no function of cuda.h" in result.output
