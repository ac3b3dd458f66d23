"""What the programs of the frameworks share: steps that are run one after the other and told as
JSON lines, and how many calls of a step waited for the server.

It is imported by programs that run in a framework's own environment, so it needs Python alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

Step = Callable[[], object]
_STEPS: dict[str, Step] = {}
_REPEATS = 5


def step(function: Step) -> Step:
    """Declare a step; its name is the function's."""
    _STEPS[function.__name__] = function
    return function


def expect(condition: bool, what: str) -> None:
    """An assertion that stays."""
    if not condition:
        raise AssertionError(what)


def trips() -> int:
    """Calls of this process that have waited for the server; 0 where nobody counts."""
    log = os.environ.get("HEADRACE_LOG", "")
    if not log or not Path(log).exists():
        return 0
    # Time, process and thread come before the text.
    return sum(1 for line in Path(log).read_text().splitlines() if " trip " in line)


def measured(iteration: Callable[[], object]) -> dict[str, float]:
    """Seconds and waiting calls of one iteration, once everything is loaded."""
    for _ in range(2):
        iteration()
    trips_before, start = trips(), time.perf_counter()
    for _ in range(_REPEATS):
        iteration()
    seconds = (time.perf_counter() - start) / _REPEATS
    return {
        "milliseconds": round(seconds * 1000, 2),
        "trips": round((trips() - trips_before) / _REPEATS, 1),
    }


def main() -> int:
    """Run the named steps, or all; one line of JSON each. The status is the number of failures."""
    names = sys.argv[1:] or list(_STEPS)
    failures = 0
    for name in names:
        # Told before, so that whoever reads knows where a program that died has been.
        print(json.dumps({"step": name, "state": "begun"}), flush=True)
        start = time.perf_counter()
        line: dict[str, object] = {"step": name, "state": "passed"}
        try:
            outcome = _STEPS[name]()
            if outcome is not None:
                line["outcome"] = outcome
        except Exception as error:
            failures += 1
            line |= {"state": "failed", "error": f"{type(error).__name__}: {error}"}
            line["trace"] = traceback.format_exc()
        line["seconds"] = round(time.perf_counter() - start, 2)
        print(json.dumps(line), flush=True)
    return min(failures, 100)
