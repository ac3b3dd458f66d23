"""Runs a suite, a process for a file or a few, and survives what its tests do to that process.

A process that crashes or hangs costs the test that was running; the other tests go on in a new
one. What is done is in the store, so a run that was stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.suites.model import Result, Suite
from tests.suites.store import Store

PLUGINS = Path(__file__).resolve().parent / "plugins"
PROCESS = "<process>"
"""Name of the stand-in for a file whose process fails outside all tests."""

_LOOK_SECONDS = 0.25
_TAIL = 1500


@dataclass(frozen=True)
class Limits:
    """Seconds that a test, collecting or leaving a file, and a whole process may take."""

    test: float = 600
    outside: float = 300
    process: float = 1800


@dataclass(frozen=True)
class Way:
    """How a suite's processes reach the GPU: what stands before the program, and its environment."""

    name: str
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Life:
    """What is seen of one process."""

    running: str | None = None
    since: float = field(default_factory=time.monotonic)
    ended: int = 0
    finished: bool = False


class Runner:
    """Runs files of one suite in one way."""

    def __init__(
        self,
        suite: Suite,
        way: Way,
        store: Store,
        limits: Limits = Limits(),
        say: Callable[[str], None] = print,
    ) -> None:
        self._suite = suite
        self._way = way
        self._store = store
        self._limits = limits
        self._say = say
        self._stop = threading.Event()

    def run(self, files: Iterable[str], jobs: int = 1) -> None:
        """Runs all that is left of these files."""
        todo = [file for file in files if file not in self._store.complete]
        step = self._suite.files_per_process
        chunks = [todo[at : at + step] for at in range(0, len(todo), step)]
        with ThreadPoolExecutor(jobs) as pool:
            try:
                for done in [pool.submit(self._chunk, chunk) for chunk in chunks]:
                    done.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _chunk(self, files: list[str]) -> None:
        started = time.monotonic()
        stuck = 0
        while stuck < 2:
            life = self._process(files)
            if self._stop.is_set():
                return
            if life.finished:
                break
            stuck = 0 if life.ended else stuck + 1
            if stuck and len(files) > 1:  # which of them it is shows when each one is alone
                for file in files:
                    self._chunk([file])
                return
        for file in files:
            self._store.is_complete(file)
            self._say(f"{self._way.name} {file}: {self._told(file)}")
        self._say(f"{self._way.name}: {time.monotonic() - started:.0f} s")

    def _told(self, file: str) -> str:
        outcomes: dict[str, int] = {}
        for test in self._store.collected.get(file, ()):
            outcome = getattr(self._store.results.get(test), "outcome", "excluded")
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        told = (f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        return ", ".join(told) or "no tests"

    def _process(self, files: list[str]) -> Life:
        """One process, from its start to its end."""
        folder = self._store.folder / "work" / files[0].replace("/", ".")
        folder.mkdir(parents=True, exist_ok=True)
        events, left_out, log = (folder / name for name in ("events", "left-out", "log"))
        events.write_bytes(b"")
        known = [test for test in self._store.results if test.partition("::")[0] in files]
        for file in files:
            collected = self._store.collected.get(file, ())
            known += [test for test in collected if self._excluded(test)]
        left_out.write_text("".join(f"{test}\n" for test in known))
        environment = {
            **self._way.environment,
            **self._suite.environment,
            "HEADRACE_SUITE_EVENTS": str(events),
            "HEADRACE_SUITE_LEFT_OUT": str(left_out),
            "HEADRACE_SUITE_ROOT": str(self._suite.root),
        }
        paths = [str(PLUGINS), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._way.prefix, *self._command(files)],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return self._watch(process, files, events, log)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _command(self, files: list[str]) -> list[str]:
        plugins = ("headrace_events", *self._suite.plugins)
        return [
            *(sys.executable, "-m", "pytest", "-q", "-c", os.devnull),
            *("--rootdir", str(self._suite.root)),
            *("-p", "no:cacheprovider", "-p", "no:timeout", "-p", "no:asyncio"),
            *(word for plugin in plugins for word in ("-p", plugin)),
            *self._suite.options,
            "--continue-on-collection-errors",
            *self._suite.targets(files),
        ]

    def _watch(
        self, process: subprocess.Popen[bytes], files: list[str], events: Path, log: Path
    ) -> Life:
        """Takes in what the process tells until it ends or has to be ended."""
        life = Life()
        started = time.monotonic()
        with events.open() as lines:
            rest = ""
            while True:
                over = process.poll() is not None
                while chunk := lines.read():
                    whole, newline, rest = (rest + chunk).rpartition("\n")
                    if newline:
                        for line in whole.splitlines():
                            self._heard(life, json.loads(line))
                if over:
                    return self._after(life, files, process.returncode, log)
                if self._stop.is_set():
                    return life
                if self._is_late(life, started):
                    return self._killed(life, files, log)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)

    def _is_late(self, life: Life, started: float) -> bool:
        now = time.monotonic()
        limit = self._limits.test if life.running else self._limits.outside
        return now - life.since > limit or now - started > self._limits.process

    def _heard(self, life: Life, event: dict[str, Any]) -> None:
        life.since = time.monotonic()
        kind = event["event"]
        if kind == "collected":
            files: dict[str, list[str]] = {}
            for test in event["ids"]:
                files.setdefault(test.partition("::")[0], []).append(test)
            for file, ids in files.items():
                self._collected(file, ids)
        elif kind == "start":
            life.running = event["id"]
        elif kind == "end":
            life.running = None
            life.ended += 1
            self._ended(event["id"], Result(event["outcome"], event["seconds"], event["why"]))
        elif kind == "finish":
            life.finished = True
        elif kind in ("not collected", "file skipped"):
            bad = kind == "not collected"
            self._outside(event["file"], Result("failed" if bad else "skipped", why=event["why"]))

    def _after(self, life: Life, files: list[str], status: int, log: Path) -> Life:
        """The process ended by itself."""
        if life.running is not None:
            life.ended += 1
            why = f"{_status(status)}\n{_tail(log)}"
            self._ended(life.running, Result("crashed", time.monotonic() - life.since, why))
        elif not life.finished:
            if len(files) == 1 or life.ended:
                self._outside(files[-1], Result("crashed", why=f"{_status(status)}\n{_tail(log)}"))
        elif status < 0 or status > 5:  # 0 to 5 are pytest's own
            self._outside(
                files[-1], Result("crashed", why=f"at its end: {_status(status)}\n{_tail(log)}")
            )
        return life

    def _killed(self, life: Life, files: list[str], log: Path) -> Life:
        """The process took too long."""
        seconds = time.monotonic() - life.since
        result = Result("timeout", seconds, _tail(log))
        alone = len(files) == 1 or life.ended > 0
        if life.running is not None and seconds > self._limits.test:
            life.ended += 1
            self._ended(life.running, result)
        elif life.running is None and seconds > self._limits.outside and alone:
            self._outside(files[-1], result)
        return life

    def _collected(self, file: str, ids: list[str]) -> None:
        outside = f"{file}::{PROCESS}"
        if outside in self._store.results:
            ids = [*ids, outside]
        if self._store.collected.get(file) != ids:
            self._store.has_collected(file, ids)

    def _ended(self, test: str, result: Result) -> None:
        if not self._excluded(test):
            self._store.has_ended(test, result)

    def _outside(self, file: str, result: Result) -> None:
        """Something happened to a file's process outside of its tests."""
        self._ended(f"{file}::{PROCESS}", result)
        self._collected(file, [x for x in self._store.collected.get(file, ()) if PROCESS not in x])

    def _excluded(self, test: str) -> bool:
        return self._suite.notes.exclusion(test) is not None


def _status(status: int) -> str:
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return file.read().decode(errors="replace")


def files_matching(files: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Files whose path contains one of the words; all without words."""
    return [file for file in files if not wanted or any(word in file for word in wanted)]
