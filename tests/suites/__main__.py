"""Runs other people's CUDA test suites: `python -m tests.suites run numba-cuda`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import click

from tests.suites import catalogue, report, ways
from tests.suites.model import Suite, SuiteError
from tests.suites.runner import Limits, Runner, files_matching
from tests.suites.store import Store

BEGIN, END = "<!-- numbers -->", "<!-- end of numbers -->"

_names = click.argument("names", nargs=-1, type=click.Choice(list(catalogue.SUITES)))
_ways = click.option(
    "--way", "wanted", multiple=True, type=click.Choice(ways.NAMES), default=ways.NAMES
)
_results = click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=catalogue.WORK / "results",
    help="Where results are kept; default: build/suites/results.",
)


def store(results: Path, suite: Suite, way: str) -> Store:
    """What is known of a suite in one way."""
    return Store(results / suite.name / way)


@click.group()
def main() -> None:
    """Run other people's test suites on the software GPU, directly and through the network."""


@main.command()
@_names
@_ways
@_results
@click.option("--file", "words", multiple=True, help="Only files whose path has this in it.")
@click.option("--again", is_flag=True, help="Forget earlier results of these files.")
@click.option("--again-bad", is_flag=True, help="Forget results of tests that did not pass.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True)
@click.option("--test-limit", type=float, default=Limits.test, show_default=True)
@click.option("--build", type=click.Path(path_type=Path), default=catalogue.ROOT / "build/release")
def run(
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    results: Path,
    words: tuple[str, ...],
    again: bool,
    again_bad: bool,
    jobs: int,
    test_limit: float,
    build: Path,
) -> None:
    """Run what has no result yet. Interrupt it at will: the next run goes on."""
    for name in names or catalogue.SUITES:
        suite = catalogue.suite(name)
        for way_name in wanted:
            known = store(results, suite, way_name)
            files = files_matching(suite.files, words)
            for file in files:
                if again or (again_bad and file in known.bad_files()):
                    known.again(file, only_bad=not again)
            with ways.way(way_name, suite, build.resolve(), catalogue.WORK / "caches") as way:
                limits = Limits(test=test_limit)
                Runner(suite, way, known, limits, click.echo).run(files, jobs)
    _tell(names, wanted, results)


@main.command()
@_names
@_ways
@_results
@click.option("--page", type=click.Path(path_type=Path), help="Write the tables into this page.")
@click.option("--output", type=click.Path(path_type=Path), help="Write everything as JSON.")
def tell(
    names: tuple[str, ...],
    wanted: tuple[str, ...],
    results: Path,
    page: Path | None,
    output: Path | None,
) -> None:
    """Say what came of it; fail where the ways differ or a pattern of the notes means no test."""
    summaries, ok = _tell(names, wanted, results)
    if output is not None:
        output.write_text(json.dumps([_plain(one) for one in summaries], indent=1) + "\n")
    if page is not None:
        before, _, rest = page.read_text().partition(BEGIN)
        after = rest.partition(END)[2]
        body = [report.table(summaries)]
        body += [f"## {one.suite.name}, {one.way}\n\n{report.details(one)}" for one in summaries]
        page.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join(body) + f"\n\n{END}{after}")
    sys.exit(0 if ok else 1)


def _tell(
    names: tuple[str, ...], wanted: tuple[str, ...], results: Path
) -> tuple[list[report.Summary], bool]:
    """Print a summary. False where something is wrong that is no test's result."""
    summaries, ok = [], True
    for name in names or catalogue.SUITES:
        suite = catalogue.suite(name)
        stores = {way: store(results, suite, way) for way in wanted}
        summaries += [report.summarise(suite, way, known) for way, known in stores.items()]
        collected = [
            x for known in stores.values() for ids in known.collected.values() for x in ids
        ]
        if all(set(suite.files) <= known.complete for known in stores.values()):
            for pattern in suite.notes.idle(collected):
                ok = False
                click.echo(f"{name}: the notes name {pattern}, which is no test", err=True)
        if len(stores) > 1:
            for test, pair in report.differences(*stores.values()).items():
                ok = False
                click.echo(
                    f"{name}: {test}: {pair[0]} {wanted[0]}, {pair[1]} {wanted[1]}", err=True
                )
    click.echo(report.table(summaries))
    return summaries, ok


def _plain(summary: report.Summary) -> dict[str, object]:
    return {
        "suite": summary.suite.name,
        "version": summary.suite.version,
        "way": summary.way,
        "collected": summary.collected,
        "excluded": summary.excluded,
        "skipped": summary.skipped,
        "passed": summary.passed,
        "failed": {
            test: {"outcome": result.outcome, "why": report.last_line(result)}
            for test, result in sorted(summary.bad.items())
        },
        "missing": summary.missing,
    }


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Also where a shell that started us in the background has us ignore the first one.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, _interrupted)
    try:
        main()
    except SuiteError as error:
        click.echo(f"suites: {error}", err=True)
        sys.exit(2)
