"""A Python program on the software GPU that does what it is asked, a function by its name at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release") / "lib/softgpu"

# Reads a line of JSON, calls the function that it names, answers with a line.
_ASKED = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    name_of, *given = json.loads(line)
    print(json.dumps(globals()[name_of](*given)), flush=True)
"""


class AskedProgram:
    """Runs `code`, whose functions can be asked then, with machine-wide devices in folder `state`.

    `settings` are environment variables. End it with kill().
    """

    def __init__(self, code: str, state: Path, devices: str, **settings: str) -> None:
        assert (LIBRARIES / "libcuda.so.1").exists(), (
            f"no libcuda.so.1 in {LIBRARIES}: run 'make build' first"
        )
        environment = {n: os.environ[n] for n in ("PATH", "HOME", "LD_PRELOAD") if n in os.environ}
        environment |= {
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "HEADRACE_SOFTGPU": devices,
            "HEADRACE_SOFTGPU_STATE": str(state),
            **settings,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code + _ASKED],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def begin(self, *words: object) -> None:
        """Ask, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What the function that was asked first returned."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *words: object) -> Any:
        """Call the function of the first word with the others."""
        self.begin(*words)
        return self.answer()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.communicate()
