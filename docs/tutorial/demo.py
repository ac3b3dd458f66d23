"""The demo: real CUDA programs on a machine without a GPU, through TLS, next to the CPU's numbers.

Started by `make demo`. It starts an appliance with a software GPU in a temporary folder, with a
certificate authority and a client certificate of its own, runs the example programs through the
network, prints a table, ends the appliance, and makes sure that no process is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from docs.tutorial.catalogue import (
    PROGRAMS,
    ROOT,
    Outcome,
    Program,
    Workshop,
    outcome_of,
    prepare,
)
from docs.tutorial.leftovers import adopt_orphans, end_leftovers
from tests.fakes.appliance import Appliance

PROGRAM_LIMIT = 240
"""Seconds that one program may take."""

SOFTWARE_GPU = "1x4GiB"
SLICE = "1GiB"
OUTPUT = ROOT / "demo-output"


@dataclass(frozen=True)
class Row:
    """A program's line in the table at the end."""

    program: Program
    outcome: Outcome | None
    wall: float
    where: str
    trouble: str = ""


def say(text: str) -> None:
    """Tells at once what is going on."""
    print(f"demo: {text}", flush=True)


def run_program(appliance: Appliance, program: Program, workshop: Workshop) -> Row:
    """Runs one program through the network."""
    start = time.monotonic()
    command = appliance.command("run", "-n", "1", "-m", SLICE, "--", *program.arguments(workshop))
    try:
        done = subprocess.run(
            command,
            env=appliance.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROGRAM_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        late = f"no end after {PROGRAM_LIMIT} s"
        return Row(program, None, time.monotonic() - start, appliance.address, late)
    wall = time.monotonic() - start
    try:
        return Row(program, outcome_of(done.stdout), wall, appliance.address, done.stderr.strip())
    except (ValueError, KeyError):
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        trouble = said[-1] if said else f"status {done.returncode}"
        return Row(program, None, wall, appliance.address, trouble)


def table(rows: list[Row]) -> str:
    """The result, as text in columns."""
    lines = [("program", "made with", "ran on", "seconds", "largest difference", "allowed", "")]
    for row in rows:
        if row.outcome is None:
            lines.append((row.program.name, row.program.front_end, "-", "-", "-", "-", "FAILED"))
            continue
        outcome = row.outcome
        lines.append(
            (
                outcome.program.split(" (")[0],
                row.program.front_end,
                f"{outcome.device} at {row.where}",
                f"{row.wall:.1f}",
                f"{outcome.max_difference:.3g}",
                f"{outcome.tolerance:g}",
                "agrees with the CPU" if outcome.ok else "WRONG",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    text.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(text)


def show(folder: Path) -> list[Row]:
    """Everything between the start of the appliance and its end."""
    say("compiling the C++ programs with nvcc, and unpacking their input")
    workshop = prepare(folder / "workshop")
    say(f"starting an appliance with a software GPU ({SOFTWARE_GPU}) in {folder}")
    rows = []
    with Appliance(folder / "appliance", software_gpu=SOFTWARE_GPU) as appliance:
        say(f"it listens on {appliance.address}, TLS 1.3, client certificates only")
        for program in PROGRAMS:
            say(f"headrace run -n 1 -m {SLICE} -- {program.source}")
            row = run_program(appliance, program, workshop)
            rows.append(row)
            if row.outcome is None or not row.outcome.ok:
                say(f"  {row.trouble}")
        say("ending the appliance")
    if workshop.picture.exists():
        OUTPUT.mkdir(exist_ok=True)
        shutil.copy(workshop.picture, OUTPUT / workshop.picture.name)
    return rows


def main() -> int:
    """Runs the demo; the exit status says whether every number was right and nothing is left."""
    # An end from outside shall end the appliance as well: let the with-statements unwind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    adopt_orphans()
    start = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    rows: list[Row] = []
    try:
        rows = show(folder)
    finally:
        left = end_leftovers()
        shutil.rmtree(folder, ignore_errors=True)
    right = bool(rows) and all(row.outcome is not None and row.outcome.ok for row in rows)
    print(f"\n{table(rows)}\n")
    if (OUTPUT / "china-sharp.png").exists():
        say(f"the sharpened photograph: {os.path.relpath(OUTPUT / 'china-sharp.png')}")
    say(f"took {time.monotonic() - start:.0f} s after the build")
    if left:
        say(f"FAULT: processes were left behind and had to be ended: {', '.join(left)}")
    else:
        say("no process is left behind")
    return 0 if right and not left else 1


if __name__ == "__main__":
    sys.exit(main())
