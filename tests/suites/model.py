"""What a suite is, what becomes of a test, and which tests are left out for what reason."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REASONS = {
    "managed memory": "needs managed memory",
    "IPC": "needs inter-process memory handles",
    "textures": "needs textures, surfaces or arrays",
    "profiler": "needs a profiler",
    "vendor library": "needs a vendor's library, which has machine code and no PTX",
}
"""The only reasons for which a test may be left out."""

GOOD = {"passed", "xfailed"}
"""Outcomes of a test that did what its authors expect of it."""

BAD = {"failed", "crashed", "timeout"}
"""Outcomes of a test that did not."""


class SuiteError(Exception):
    """Something about a suite's description or state is wrong; the text is for people."""


@dataclass(frozen=True)
class Result:
    """What became of one test."""

    outcome: str
    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Rule:
    """Tests (patterns with * and ?) and what is said of them."""

    ids: tuple[str, ...]
    text: str

    def matches(self, test: str) -> bool:
        """Whether the rule means this test. Brackets of parametrised ids mean themselves."""
        return any(fnmatch.fnmatchcase(test, one.replace("[", "[[]")) for one in self.ids)


@dataclass(frozen=True)
class Notes:
    """A suite's committed notes: what is excluded, and why known failures fail."""

    excluded: tuple[Rule, ...] = ()
    failing: tuple[Rule, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Notes:
        """Reads SUITE.toml."""
        data = tomllib.loads(path.read_text())
        excluded = _rules(path, data, "excluded", "reason")
        for rule in excluded:
            if rule.text.partition(":")[0] not in REASONS:
                raise SuiteError(f"{path}: {rule.text!r} is no reason; those are: {list(REASONS)}")
        return cls(excluded, _rules(path, data, "failing", "cause"))

    def exclusion(self, test: str) -> str | None:
        """The reason for which this test is left out, if it is."""
        return next((rule.text for rule in self.excluded if rule.matches(test)), None)

    def cause(self, test: str) -> str | None:
        """Why this test is known to fail, if it is."""
        return next((rule.text for rule in self.failing if rule.matches(test)), None)

    def idle(self, tests: Iterable[str]) -> list[str]:
        """Patterns that mean no test of the suite (any more)."""
        every = list(tests)
        return [
            one
            for rule in (*self.excluded, *self.failing)
            for one in rule.ids
            if not any(Rule((one,), "").matches(test) for test in every)
        ]


def _rules(path: Path, data: Mapping[str, Any], table: str, key: str) -> tuple[Rule, ...]:
    rules = []
    for entry in data.get(table, []):
        if set(entry) != {"ids", key}:
            raise SuiteError(f"{path}: each [[{table}]] has `ids` and `{key}`, nothing else")
        rules.append(Rule(tuple(entry["ids"]), entry[key]))
    return tuple(rules)


@dataclass(frozen=True)
class Suite:
    """A Python test suite of somebody else, and how it is started here."""

    name: str
    version: str
    root: Path
    """Folder of its tests; test ids are relative to it."""
    files: tuple[str, ...]
    """Test files, relative to `root`."""
    notes: Notes = Notes()
    package: str = ""
    """The package that the tests are imported from; empty: they are loose files."""
    plugins: tuple[str, ...] = ()
    """Plugins beside headrace_events."""
    options: tuple[str, ...] = ()
    """Further options of pytest."""
    environment: Mapping[str, str] = field(default_factory=dict)
    files_per_process: int = 1
    gpus: int = 1
    gpu_memory: str = "2GiB"

    def targets(self, files: list[str]) -> list[str]:
        """How pytest is told to run these files."""
        if not self.package:
            return [str(self.root / file) for file in files]
        modules = (file.removesuffix(".py").replace("/", ".") for file in files)
        return ["--pyargs", *(f"{self.package}.{module}" for module in modules)]
