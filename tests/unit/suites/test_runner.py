"""The runner of other people's suites, on a suite whose tests crash, hang and fail."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.suites.model import Notes, Rule, Suite, SuiteError
from tests.suites.report import differences, summarise, table
from tests.suites.runner import PROCESS, Limits, Runner, Way
from tests.suites.store import Store

LIMITS = Limits(test=5, outside=60, process=60)

MIXED = """
import os, signal, time, unittest
import pytest

def test_a_good(): pass
def test_b_crash(): os.kill(os.getpid(), signal.SIGSEGV)
def test_c_hang(): time.sleep(600)
def test_d_bad(): assert 1 == 2, "one is not two"
def test_e_skipped(): pytest.skip("no such thing here")
@pytest.mark.parametrize("x", [1, 2])
def test_f_left_out(x): assert False
class TestSub(unittest.TestCase):
    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertNotEqual(i, 1)
    @unittest.expectedFailure
    def test_expected(self): self.fail()
    @unittest.expectedFailure
    def test_unexpected(self): pass
"""

EXPECTED = {
    "test_a_good": "passed",
    "test_b_crash": "crashed",
    "test_c_hang": "timeout",
    "test_d_bad": "failed",
    "test_e_skipped": "skipped",
    "TestSub::test_subtests": "failed",
    "TestSub::test_expected": "xfailed",
    "TestSub::test_unexpected": "failed",
}


def make(folder: Path, notes: Notes | None = None, **files: str) -> Suite:
    root = folder / "tests"
    root.mkdir()
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return Suite("tiny", "1", root, tuple(f"{name}.py" for name in sorted(files)), notes or Notes())


def run(suite: Suite, store: Store) -> Store:
    said: list[str] = []
    way = Way("here", environment={"PATH": os.environ["PATH"]})
    Runner(suite, way, store, LIMITS, said.append).run(suite.files)
    return store


def outcomes(store: Store) -> dict[str, str]:
    return {test: result.outcome for test, result in store.results.items()}


def test_each_test_gets_its_outcome_whatever_it_does_to_the_process(tmp_path: Path) -> None:
    notes = Notes(excluded=(Rule(("mixed.py::test_f_left_out[*",), "IPC"),))
    suite = make(tmp_path, notes, mixed=MIXED)
    store = run(suite, Store(tmp_path / "store"))
    assert outcomes(store) == {f"mixed.py::{name}": how for name, how in EXPECTED.items()}
    assert "one is not two" in store.results["mixed.py::test_d_bad"].why
    assert "SIGSEGV" in store.results["mixed.py::test_b_crash"].why
    summary = summarise(suite, "here", store)
    assert (summary.collected, summary.excluded["IPC"], summary.passed) == (10, 2, 2)
    assert (summary.wanted, summary.ran, len(summary.bad), summary.missing) == (8, 7, 5, ())
    assert "| 20.0 % | 25.0 % | 28.5 % |" in table([summary])


def test_a_later_run_goes_on_where_an_earlier_one_stopped(tmp_path: Path) -> None:
    counted = "import pathlib\ndef test_once(): (pathlib.Path(__file__).parent / 'ran').open('a').write('x')\n"
    suite = make(tmp_path, first=counted, second="def test_two(): assert False\n")
    run(suite, Store(tmp_path / "store"))
    with (tmp_path / "store/results.jsonl").open("a") as file:
        file.write('{"id": "first.py::test_onc')  # killed while it wrote
    store = run(suite, Store(tmp_path / "store"))
    assert (suite.root / "ran").read_text() == "x"
    store.again("second.py", only_bad=True)
    (suite.root / "second.py").write_text("def test_two(): pass\n")
    assert outcomes(run(suite, store))["second.py::test_two"] == "passed"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("import nothing_of_this_name\n", "failed"),
        ("import os\nos.abort()\n", "crashed"),
        (
            "import atexit, os\natexit.register(os.abort)\ndef test_good(): pass\n",
            "crashed",
        ),
    ],
)
def test_a_process_that_fails_outside_its_tests_is_a_result(
    text: str, outcome: str, tmp_path: Path
) -> None:
    store = run(suite := make(tmp_path, odd=text), Store(tmp_path / "store"))
    assert outcomes(store)[f"odd.py::{PROCESS}"] == outcome
    assert f"odd.py::{PROCESS}" in summarise(suite, "here", store).bad


def test_files_that_share_a_process_do_not_share_its_end(tmp_path: Path) -> None:
    suite = make(
        tmp_path,
        a="def test_good(): pass\n",
        b="import nothing_of_this_name\n",
        c="def test_crash():\n import os\n os.abort()\n",
        d="def test_good(): pass\n",
        e="import os\nos.abort()\n",
        f="def test_good(): pass\n",
    )
    store = run(replace(suite, files_per_process=4), Store(tmp_path / "store"))
    assert outcomes(store) == {
        "a.py::test_good": "passed",
        f"b.py::{PROCESS}": "failed",
        "c.py::test_crash": "crashed",
        "d.py::test_good": "passed",
        f"e.py::{PROCESS}": "crashed",
        "f.py::test_good": "passed",
    }
    assert store.complete == set(suite.files)


def test_a_difference_between_two_ways_is_found(tmp_path: Path) -> None:
    suite = make(tmp_path, one="import os\ndef test_x(): assert 'BAD' not in os.environ\n")
    good = run(suite, Store(tmp_path / "good"))
    bad = Store(tmp_path / "bad")
    way = Way("there", environment={"PATH": os.environ["PATH"], "BAD": "1"})
    Runner(suite, way, bad, LIMITS, str).run(suite.files)
    assert differences(good, bad) == {"one.py::test_x": ("passed", "failed")}
    assert not differences(good, good)


def test_notes_take_only_the_agreed_reasons_and_name_only_real_tests(tmp_path: Path) -> None:
    notes = tmp_path / "notes.toml"
    notes.write_text('[[excluded]]\nids = ["a.py::*"]\nreason = "too slow"\n')
    with pytest.raises(SuiteError, match="too slow"):
        Notes.load(notes)
    notes.write_text('[[excluded]]\nids = ["a.py::*"]\nreason = "textures: a surface"\n')
    assert Notes.load(notes).idle(["a.py::test_x"]) == []
    assert Notes.load(notes).idle(["b.py::test_x"]) == ["a.py::*"]
