"""What the demo says about leftover processes is true."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

DAEMON = """
import os, time
os.fork() and os._exit(0)
os.setsid()
os.fork() and os._exit(0)
time.sleep(600)
"""


def run(body: str) -> str:
    """Runs a program that uses the module; its own process, since the adoption is for life."""
    program = "from docs.tutorial import leftovers\nimport subprocess, sys\n" + textwrap.dedent(
        body
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_daemon_that_left_its_session_is_found_and_ended() -> None:
    said = run(f"""
        leftovers.adopt_orphans()
        leftovers.PATIENCE = 0.2
        subprocess.run([sys.executable, "-c", {DAEMON!r}], check=True)
        print(len(leftovers.end_leftovers()), len(leftovers.descendants()))
    """)
    assert said == "1 0"


def test_children_that_ended_are_no_leftovers() -> None:
    said = run("""
        leftovers.adopt_orphans()
        child = subprocess.Popen(["true"])
        print(leftovers.end_leftovers())
    """)
    assert said == "[]"
