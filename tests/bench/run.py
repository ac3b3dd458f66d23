"""What a call, a launch and a copy cost next to raw TLS: runs headrace-bench, judges, reports.

The client library talks to a worker over loopback TLS, the worker runs the null backend, so what
is measured is ours alone. Everything is pinned first to one core, then to two.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from tests.fakes.stub_appliance import StubAppliance

ROOT = Path(__file__).resolve().parents[2]
CALL_MARGIN_US = 10.0
LAUNCHES_PER_S = 300_000.0
COPY_SHARE = 0.70


@dataclass(frozen=True)
class Line:
    """One row of the result."""

    name: str
    unit: str
    ours: float
    raw: float | None
    floor: str
    holds: bool | None
    """None: no floor applies."""


def measure(cores: set[int], runs: int, build: Path, client: Path) -> dict[str, list[float]]:
    """All numbers of one pinning; worker and benchmark inherit this process's cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        with StubAppliance(
            driver=build / "lib/null/libcuda.so.1", worker=build / "bin/headrace-worker"
        ) as stub:
            session = stub.folder / "session"
            stub.write_session_file(session)
            done = subprocess.run(
                [build / "bin/headrace-bench", client, str(runs)],
                env={**os.environ, "HEADRACE_SESSION": str(session)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=False,
                timeout=600,
            )
            if done.returncode != 0:
                click.echo(stub.stderr(), err=True)
                raise SystemExit("bench: headrace-bench failed")
    finally:
        os.sched_setaffinity(0, before)
    numbers: dict[str, list[float]] = json.loads(done.stdout)
    return numbers


def judge(numbers: dict[str, list[float]], *, one_core: bool) -> list[Line]:
    """Medians against the floors. The floor of the call is for one core: see the page."""
    median = {name: statistics.median(values) for name, values in numbers.items()}
    call, raw_call = median["call_us"], median["raw_call_us"]
    drained = median["launches_drained_per_s"]
    lines = [
        Line(
            "answering call, half of them within",
            "µs",
            call,
            raw_call,
            "≤ raw + 10 µs" if one_core else "",
            call <= raw_call + CALL_MARGIN_US if one_core else None,
        ),
        Line(
            "answering call, 99 % within",
            "µs",
            median["call_p99_us"],
            median["raw_call_p99_us"],
            "",
            None,
        ),
        Line("launches enqueued", "1/s", median["launches_enqueued_per_s"], None, "", None),
        Line("launches drained", "1/s", drained, None, "≥ 300,000/s", drained >= LAUNCHES_PER_S),
    ]
    for name, way in (("copy to device, 256 MiB", "up"), ("copy to host, 256 MiB", "down")):
        ours, raw = median[f"{way}_mib_s"], median[f"raw_{way}_mib_s"]
        lines.append(Line(name, "MiB/s", ours, raw, "≥ 70 % of raw", ours >= COPY_SHARE * raw))
    return lines


def table(lines: list[Line]) -> str:
    """Markdown."""
    rows = [
        "| what | ours | raw TLS 1.3 | ratio | floor | |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        verdict = {True: "ok", False: "**missed**", None: ""}[line.holds]
        digits = 1 if line.unit == "µs" else 0
        raw = "" if line.raw is None else f"{line.raw:,.{digits}f} {line.unit}"
        ratio = "" if line.raw is None else f"{line.ours / line.raw:.2f}"
        rows.append(
            f"| {line.name} | {line.ours:,.{digits}f} {line.unit} | {raw} | {ratio} "
            f"| {line.floor} | {verdict} |"
        )
    return "\n".join(rows)


def machine() -> str:
    """What it ran on, in a line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"


@click.command()
@click.option("--runs", type=click.IntRange(1), default=5, show_default=True)
@click.option("--build", type=click.Path(path_type=Path), default=ROOT / "build/release")
@click.option("--client", type=click.Path(path_type=Path), help="The client's libcuda.so.1.")
@click.option("--page", type=click.Path(path_type=Path), help="Write the tables into this page.")
def main(runs: int, build: Path, client: Path | None, page: Path | None) -> None:
    """Measure, print, and fail if a floor is missed."""
    cores = sorted(os.sched_getaffinity(0))
    pinnings = [("one core", {cores[0]})]
    if len(cores) > 1:
        pinnings.append(("two cores", {cores[0], cores[1]}))
    missed = False
    sections = []
    for name, wanted in pinnings:
        numbers = measure(wanted, runs, build, client or build / "lib/client/libcuda.so.1")
        lines = judge(numbers, one_core=len(wanted) == 1)
        missed = missed or any(line.holds is False for line in lines)
        sections.append(f"## Pinned to {name}\n\n{table(lines)}\n")
        click.echo(f"\n{sections[-1]}")
        sections.append(
            "Every run:\n\n```json\n"
            + "\n".join(f"{key}: {values}" for key, values in sorted(numbers.items()))
            + "\n```\n"
        )
    click.echo(f"medians of {runs} runs after one to warm up; {machine()}")
    if page is not None:
        head = page.read_text().partition("<!-- numbers -->")[0]
        page.write_text(
            head
            + f"<!-- numbers -->\n\nMedians of {runs} runs. {machine()}.\n\n"
            + "\n".join(sections)
        )
    if missed:
        click.echo("bench: a floor is missed", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
