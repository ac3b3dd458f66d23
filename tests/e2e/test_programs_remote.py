"""Unmodified programs through TLS to an appliance with a software GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.tutorial.catalogue import PROGRAMS, Program, Workshop, outcome_of
from tests.e2e.watch import Watched, watch
from tests.fakes.appliance import Appliance

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def appliance(
    build: Path, kernel_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Appliance]:
    """One appliance for the programs of this file, each of which makes its own reservation."""
    with Appliance(tmp_path_factory.mktemp("appliance"), build=build) as running:
        yield running


@pytest.fixture(scope="module")
def remote(
    appliance: Appliance, kernel_cache: Path, plain_environment: dict[str, str]
) -> dict[str, str]:
    """The environment of `headrace run`, which itself tells front ends of the software GPU."""
    return (
        appliance.environment() | plain_environment | {"CUPY_CACHE_DIR": str(kernel_cache / "cupy")}
    )


def run(appliance: Appliance, remote: dict[str, str], command: list[str]) -> Watched:
    """Runs a program on a slice of 1 GiB, to a good end."""
    whole = appliance.command("run", "-n", "1", "-m", "1GiB", "--", *command)
    done = watch(whole, remote, timeout=240)
    log = "\n".join(appliance.log_file.read_text().splitlines()[-8:])
    assert done.status == 0, f"{done.output.strip()}{done.errors}\nthe appliance says:\n{log}"
    return done


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gets_the_numbers_of_the_cpu(
    program: Program,
    workshop: Workshop,
    appliance: Appliance,
    build: Path,
    remote: dict[str, str],
) -> None:
    done = run(appliance, remote, program.arguments(workshop))
    assert outcome_of(done.output).ok
    assert done.mapped_named("libcuda.so") == {build / "lib/client/libcuda.so.1"}
    assert not {path for path in done.mapped if "softgpu" in str(path).lower()}


def test_the_picture_is_that_of_a_direct_run(
    workshop: Workshop, appliance: Appliance, direct: dict[str, str], remote: dict[str, str]
) -> None:
    photo = next(program for program in PROGRAMS if program.name == "photo")
    command = photo.arguments(workshop)
    pictures = []
    for way in ("direct", "remote"):
        workshop.picture.unlink(missing_ok=True)
        if way == "direct":
            done = watch(command, direct, timeout=240)
            assert done.status == 0, done.output.strip() + done.errors
        else:
            run(appliance, remote, command)
        pictures.append(workshop.picture.read_bytes())
    assert pictures[0] == pictures[1]


@pytest.mark.parametrize(("name", "runtime"), [("runtime12", "12.9"), ("vector-add", "13.0")])
def test_static_runtimes_of_two_generations_run(
    name: str, runtime: str, workshop: Workshop, appliance: Appliance, remote: dict[str, str]
) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    done = run(appliance, remote, program.arguments(workshop))
    assert f'"runtime": "{runtime}"' in done.output
    assert not done.mapped_named("libcudart")
