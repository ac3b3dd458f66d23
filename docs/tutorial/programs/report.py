"""The line that each of these programs ends with."""

from __future__ import annotations

import json
import sys


def report(
    program: str, device: str, seconds: float, difference: float, tolerance: float, **more: object
) -> None:
    """Prints one line of JSON, and ends with status 1 where the numbers are not the CPU's."""
    ok = difference <= tolerance  # false for NaN
    line = {
        "program": program,
        "device": device,
        "seconds": round(seconds, 4),
        "max_difference": difference,
        "tolerance": tolerance,
        "ok": ok,
    }
    print(json.dumps(line | more))
    sys.exit(0 if ok else 1)
