"""What is known of a suite's tests so far: lines appended to a file, so that a killed run loses
nothing and the next one goes on from there."""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.suites.model import BAD, Result


class Store:
    """Results of one suite in one way. Safe for several threads of one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.collected: dict[str, list[str]] = {}
        """File -> ids of its tests."""
        self.results: dict[str, Result] = {}
        self.complete: set[str] = set()
        """Files of which nothing is left to do."""
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "results.jsonl"
        if self._path.exists():
            self._read()

    def _read(self) -> None:
        text = self._path.read_text()
        for line in text.splitlines():
            # One may be half: a run was killed while it wrote.
            with contextlib.suppress(json.JSONDecodeError):
                self._apply(json.loads(line))
        if text and not text.endswith("\n"):
            with self._path.open("a") as file:
                file.write("\n")

    def _apply(self, entry: dict[str, Any]) -> None:
        if "collected" in entry:
            self.collected[entry["file"]] = entry["collected"]
        elif "complete" in entry:
            (self.complete.add if entry["complete"] else self.complete.discard)(entry["file"])
        elif "forget" in entry:
            self.results.pop(entry["forget"], None)
        else:
            test = entry["id"]
            self.results[test] = Result(entry["outcome"], entry["seconds"], entry["why"])

    def _write(self, entry: dict[str, Any]) -> None:
        with self._lock:
            with self._path.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            self._apply(entry)

    def has_collected(self, file: str, ids: list[str]) -> None:
        """Keep which tests a file has."""
        self._write({"file": file, "collected": ids})

    def has_ended(self, test: str, result: Result) -> None:
        """Keep what became of a test."""
        self._write({"id": test, **asdict(result)})

    def is_complete(self, file: str) -> None:
        """Keep that nothing is left to do in a file."""
        self._write({"file": file, "complete": True})

    def again(self, file: str, *, only_bad: bool) -> None:
        """Forget results of a file, or only the bad ones, so that its tests run again."""
        for test in [test for test in self.results if test.partition("::")[0] == file]:
            if not only_bad or self.results[test].outcome in BAD:
                self._write({"forget": test})
        self._write({"file": file, "complete": False})

    def bad_files(self) -> set[str]:
        """Files with a test that did not do well."""
        return {
            test.partition("::")[0]
            for test, result in self.results.items()
            if result.outcome in BAD
        }
