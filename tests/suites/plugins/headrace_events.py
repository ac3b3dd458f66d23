"""pytest plugin: tells the runner, line by line, what happens to each test.

It runs inside the suite's process, which may crash or be killed at any moment, so every line goes
out with one write. It knows nothing of the rest of the repository.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

EVENTS = "HEADRACE_SUITE_EVENTS"
"""File that the lines go to."""
ROOT = "HEADRACE_SUITE_ROOT"
"""Folder that test ids are relative to."""
LEFT_OUT = "HEADRACE_SUITE_LEFT_OUT"
"""File with the ids, one a line, that shall not run."""

_WHY_LIMIT = 1500


class Events:
    """Writes events, and gives tests the same ids however pytest was started."""

    def __init__(self, events: Path, root: Path, left_out: set[str]) -> None:
        self._file = os.open(events, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._root = root.resolve()
        self._left_out = left_out
        self._reports: list[pytest.TestReport] = []
        self._errors: list[str] = []

    def _say(self, event: str, **more: Any) -> None:
        os.write(self._file, (json.dumps({"event": event, **more}) + "\n").encode())

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path.resolve(), self._root)

    def _id(self, item: pytest.Item) -> str:
        return f"{self._relative(item.path)}::{item.nodeid.partition('::')[2]}"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        self._say("collected", ids=[self._id(item) for item in items])
        gone = [item for item in items if self._id(item) in self._left_out]
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = [item for item in items if self._id(item) not in self._left_out]

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.failed:
            why = report.longreprtext[-_WHY_LIMIT:]
            self._say("not collected", file=self._relative(collector.path), why=why)
        elif report.skipped:
            why = _reason(report.longrepr)
            self._say("file skipped", file=self._relative(collector.path), why=why)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._reports = []
        self._say("start", id=self._id(item))
        result = yield
        self._say("end", id=self._id(item), **_verdict(self._reports))
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._say("finish", status=int(exitstatus))


def _verdict(reports: list[pytest.TestReport]) -> dict[str, Any]:
    """One outcome of set-up, call, tear-down, and of subtests: the worst."""
    seconds = round(sum(report.duration for report in reports), 3)
    for report in reports:
        if report.failed:
            text = report.longreprtext
            return {"outcome": "failed", "seconds": seconds, "why": text[-_WHY_LIMIT:]}
    for report in reports:
        if report.skipped and "Subtest" not in type(report).__name__:
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            return {"outcome": outcome, "seconds": seconds, "why": _reason(report.longrepr)}
    return {"outcome": "passed", "seconds": seconds, "why": ""}


def _reason(longrepr: object) -> str:
    """Why something was skipped."""
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return str(text).removeprefix("Skipped: ")[-_WHY_LIMIT:]


def pytest_configure(config: pytest.Config) -> None:
    """Start telling, if a runner asked for it."""
    if EVENTS not in os.environ:
        return
    left_out = set(Path(os.environ[LEFT_OUT]).read_text().splitlines())
    events = Events(Path(os.environ[EVENTS]), Path(os.environ[ROOT]), left_out)
    config.pluginmanager.register(events, "headrace-events")
