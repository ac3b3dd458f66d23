"""What came of the suites, as tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.suites.model import BAD, GOOD, Result, Suite
from tests.suites.store import Store


@dataclass(frozen=True)
class Summary:
    """The outcome of one suite in one way."""

    suite: Suite
    way: str
    collected: int
    excluded: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    """By the reason that the suite itself gives."""
    passed: int = 0
    bad: dict[str, Result] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Tests that are known and have not run yet."""
    files_done: int = 0
    """Files of which all tests have run; those of other files may not even be known."""

    @property
    def wanted(self) -> int:
        """Tests that are not excluded."""
        return self.collected - self.excluded.total()

    @property
    def ran(self) -> int:
        """Tests that the suite itself did not skip either."""
        return self.wanted - self.skipped.total() - len(self.missing)


def summarise(suite: Suite, way: str, store: Store) -> Summary:
    """Counts."""
    tests = [test for file in suite.files for test in store.collected.get(file, ())]
    excluded: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    passed, bad, missing = 0, {}, []
    for test in tests:
        if (reason := suite.notes.exclusion(test)) is not None:
            excluded[reason] += 1
        elif (result := store.results.get(test)) is None:
            missing.append(test)
        elif result.outcome in GOOD:
            passed += 1
        elif result.outcome in BAD:
            bad[test] = result
        else:
            skipped[result.why.strip().splitlines()[0] if result.why.strip() else "?"] += 1
    done = len(store.complete & set(suite.files))
    return Summary(suite, way, len(tests), excluded, skipped, passed, bad, tuple(missing), done)


def differences(one: Store, other: Store) -> dict[str, tuple[str, str]]:
    """Tests that have a result in both ways, but not the same one."""
    found = {}
    for test, result in one.results.items():
        beside = other.results.get(test)
        if beside is not None and _kind(result) != _kind(beside):
            found[test] = (result.outcome, beside.outcome)
    return found


def _kind(result: Result) -> str:
    if result.outcome in GOOD:
        return "good"
    return "bad" if result.outcome in BAD else result.outcome


def share(part: int, whole: int) -> str:
    """Per cent, cut, never rounded up."""
    return f"{part / whole * 1000 // 1 / 10:.1f} %" if whole else "–"


def table(summaries: list[Summary]) -> str:
    """A row for each suite and way."""
    lines = [
        "| suite | way | files run | collected | excluded | skipped by the suite | passed | failed | passed / collected | passed / not excluded | passed / run |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for s in summaries:
        lines.append(
            f"| {s.suite.name} {s.suite.version} | {s.way} "
            f"| {s.files_done} of {len(s.suite.files)} | {s.collected:,} | {s.excluded.total():,} "
            f"| {s.skipped.total():,} | {s.passed:,} | {len(s.bad):,} "
            f"| {share(s.passed, s.collected)} | {share(s.passed, s.wanted)} | {share(s.passed, s.ran)} |"
        )
    return "\n".join(lines)


def last_line(result: Result) -> str:
    """What a failed test said at its end, in one line."""
    lines = [line.strip() for line in result.why.splitlines() if line.strip()]
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith("E ")]
    return (errors[-1] if errors else lines[-1] if lines else result.outcome)[:200]


def details(summary: Summary) -> str:
    """What was left out, skipped, and failed, with causes."""
    parts = []
    for title, counts in (("Excluded", summary.excluded), ("Skipped", summary.skipped)):
        if counts:
            rows = [f"| {_cell(reason)} | {count:,} |" for reason, count in counts.most_common()]
            parts.append("\n".join([f"{title}:\n", "| reason | tests |", "| --- | --- |", *rows]))
    if summary.bad:
        rows = [
            f"| `{_cell(test)}` | {result.outcome} "
            f"| {_cell(summary.suite.notes.cause(test) or last_line(result))} |"
            for test, result in sorted(summary.bad.items())
        ]
        parts.append("\n".join(["Failed:\n", "| test | | cause |", "| --- | --- | --- |", *rows]))
    if summary.missing:
        parts.append(f"Not run yet: {len(summary.missing):,}.")
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
