"""The driver-semantics program through the network: every suite that passes direct passes remote."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import BUILD, Appliance

PROGRAM = BUILD / "bin" / "driver_tests"


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    if not PROGRAM.exists():
        pytest.fail(f"no {PROGRAM}: run 'make build' first")
    folder = tmp_path_factory.mktemp("semantics")
    with Appliance(folder / "appliance", software_gpu="2x1GiB") as running:
        yield running
    # Only the forked children of the programs end without a goodbye, by _exit.
    assert {line["kind"] for line in running.log("connection_failed")} <= {"lost"}
    assert running.log("worker_crashed") == []


def suites() -> list[str]:
    """What the program itself says that it has."""
    listed = subprocess.run(
        [PROGRAM, "--list-test-suites", "--no-colors"],
        env={"LD_LIBRARY_PATH": str(BUILD / "lib/softgpu")},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in listed.stdout.splitlines() if line and line[0] not in "[="]


def test_every_suite_passes_through_the_network(appliance: Appliance) -> None:
    names = suites()
    assert len(names) > 3
    failures = {}
    for name in names:
        done = appliance.run(
            *("run", "-n", "2", "-m", "1GiB", "--", PROGRAM, f"--test-suite={name}"), timeout=100
        )
        if done.returncode != 0 or "test cases: 0" in done.stdout.replace("  ", " "):
            failures[name] = done.stdout + done.stderr
    assert not failures, "\n".join(failures.values())


def test_a_program_without_a_gpu_is_refused_before_it_starts(
    appliance: Appliance, tmp_path: Path
) -> None:
    proof = tmp_path / "started"
    done = appliance.run("run", "-n", "3", "-m", "1GiB", "--", "touch", proof)
    assert done.returncode == 125
    assert "headrace" in done.stderr
    assert not proof.exists()
