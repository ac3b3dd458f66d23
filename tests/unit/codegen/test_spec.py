"""Rows: what is accepted, and how faults are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.codegen.errors import SpecError
from remoting.codegen.model import CallClass
from remoting.codegen.spec import IDS, Spec, append_ids, read_spec


def folder_with(tmp_path: Path, rows: str, ids: str = "") -> Path:
    (tmp_path / "memory.toml").write_text(rows)
    (tmp_path / IDS).write_text(ids)
    (tmp_path / "structs.toml").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("[cuX]\nclas = 'local'", "unknown key 'clas' (did you mean 'class'?)"),
        ("[cuX]\nclass = 'later'", "class 'later' is none of local, send"),
        ("[cuX]\nclass = 'refused'", "a refused function needs a reason"),
        ("[cuX]\nclass = 'local'\nreason = 'x'", "only a refused function has a reason"),
        ("[cuX]\nclass = 'local'\nvia = 'cuY'", "give either a class or"),
        ("[cuX]\nnote = 'x'", "give either a class or"),
        ("[cuX]\nclass = 'local'\nclient = 'custom'", "'client' belongs to carried functions only"),
        ("[cuX]\nclass = 'send'\nworker = 'magic'", "worker 'magic' is none of generated, custom"),
        ("[cuX]\nclass = 'send'\nparams.a = { dirr = 'in' }", "unknown key 'dirr'"),
        ("[cuX]\nclass = 'send'\nparams.a = { ownership = 'keep' }", "ownership 'keep' is none"),
        ("[cuX", "memory.toml:"),
    ],
)
def test_a_fault_in_a_row_is_named(tmp_path: Path, rows: str, fault: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(folder_with(tmp_path, rows))
    assert fault in str(caught.value)
    assert "memory.toml" in str(caught.value)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(folder_with(tmp_path, "[cuX]\nclass = 'refused'\n[cuY]\nclass = 'no'\n"))
    assert len(caught.value.faults) == 2


def test_a_function_has_one_row(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "cuX = { class = 'local' }")
    (folder / "more.toml").write_text("cuX = { class = 'local' }")
    with pytest.raises(SpecError, match=r"there is a row already in memory\.toml"):
        read_spec(folder)


@pytest.mark.parametrize(
    ("ids", "fault"),
    [
        ("cuX = 1\ncuY = 1\n", "share the id 1"),
        ("cuX = 2\ncuY = 1\n", "ids must ascend"),
        ("cuX = 0\n", "ids go from 1"),
        ("cuX = 61440\n", "ids go from 1"),
    ],
)
def test_faults_of_ids_are_named(tmp_path: Path, ids: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        read_spec(folder_with(tmp_path, "", ids))


def test_new_rows_get_the_next_ids_and_old_ones_stay(tmp_path: Path) -> None:
    rows = "cuB = { class = 'send' }\ncuA = { class = 'send' }\ncuL = { class = 'local' }\n"
    folder = folder_with(tmp_path, rows, "cuGone = 3\ncuB = 7\n")
    assert append_ids(folder) == ["cuA"]
    assert read_spec(folder).ids == {"cuGone": 3, "cuB": 7, "cuA": 8}


def test_ids_in_the_tree_are_those_first_given(spec: Spec) -> None:
    """A changed id would make old and new builds misunderstand each other."""
    assert spec.ids["cuCtxCreate_v4"] == 1
    assert spec.ids["cuLaunchKernel"] == 29
    assert spec.ids["cuStreamWaitEvent"] == 79


def test_old_abis_are_refused_and_their_successors_are_not(spec: Spec) -> None:
    assert spec.rows["cuMemAlloc"].call_class is CallClass.REFUSED
    assert spec.rows["cuMemAlloc_v2"].call_class is CallClass.TRIP
    assert spec.rows["cuCtxDestroy"].via == "cuCtxDestroy_v2"
