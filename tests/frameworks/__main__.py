"""Runs programs of PyTorch, JAX and Triton against a software GPU that skips machine code, both ways:
`python -m tests.frameworks`."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tests.fakes.appliance import BUILD, ROOT, Appliance

HERE = Path(__file__).parent
WORK = ROOT / "build/frameworks"
WAYS = ("direct", "remote")
DEVICES = "1x8GiB"
SECONDS = 3600

NOT_CARRIED = {
    "pytorch": {"fft": "cuFFT enumerates the functions of a module through an undocumented table"},
    "jax": {},
    "triton": {},
}
"""Steps that are known to fail, and why. One that passes after all is an error, too."""

_SETTINGS = {
    "pytorch": {},
    # Three quarters of the device's memory at the start are of no use here.
    "jax": {"JAX_PLATFORMS": "cuda", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    "triton": {},
}


@dataclass
class Outcome:
    """What a program told of its steps, one way."""

    framework: str
    way: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def bad(self) -> dict[str, str]:
        """Steps that did not come out as they should, and what they said."""
        known = NOT_CARRIED[self.framework]
        return {
            name: str(line.get("error", "passes now: take it out of NOT_CARRIED"))
            for name, line in self.steps.items()
            if (line["state"] == "passed") == (name in known)
        }


def environment_of(framework: str, folder: Path) -> Path:
    """The Python of a virtual environment with the pinned packages; made when it is not there."""
    requirements = HERE / f"requirements-{framework}.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    place = folder / framework
    stamp = place / "installed"
    python = place / "bin/python"
    if not stamp.exists() or stamp.read_text() != digest:
        click.echo(f"frameworks: installing {framework} into {place} (gigabytes)", err=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "-r", requirements]
        subprocess.run(install, check=True)
        stamp.write_text(digest)
    return python


def _plain() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LD_", "CUDA_", "HEADRACE", "PYTHON"))
    }


def _settings(framework: str, caches: Path) -> dict[str, str]:
    return _plain() | {
        **_SETTINGS[framework],
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }


@contextmanager
def direct(framework: str, caches: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The program loads the software GPU's libraries."""
    libraries, ptxas = BUILD / "lib/softgpu", BUILD / "bin/headrace-ptxas"
    yield (
        [],
        {
            **_settings(framework, caches),
            "LD_LIBRARY_PATH": str(libraries),
            "TRITON_LIBCUDA_PATH": str(libraries),
            "TRITON_PTXAS_PATH": str(ptxas),
            "HEADRACE_SOFTGPU": DEVICES,
            "HEADRACE_SOFTGPU_SASS": "skip",
            "HEADRACE_SOFTGPU_CACHE": str(caches / "softgpu"),
            "HEADRACE_SOFTGPU_LOG": str(caches.parent / f"{framework}-direct.log"),
        },
    )


@contextmanager
def remote(framework: str, caches: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The program runs under `headrace run`, with the whole device of an appliance."""
    log = caches.parent / f"{framework}-remote.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="headrace-frameworks-") as folder:
        flags = ("--software-gpu-sass", "skip")
        with Appliance(Path(folder), software_gpu=DEVICES, flags=flags) as appliance:
            yield (
                appliance.command("run", "-n", "1", "-m", DEVICES.partition("x")[2], "--"),
                {
                    **_settings(framework, caches),
                    "HEADRACE_CONFIG": str(appliance.config),
                    # How often a step waits is counted in the log.
                    "HEADRACE_LOG": str(log),
                    "HEADRACE_LOG_TRIPS": "1",
                },
            )


def run(framework: str, way: str, python: Path, steps: tuple[str, ...]) -> Outcome:
    """Run a framework's program and note what it tells."""
    outcome = Outcome(framework, way)
    caches = WORK / "caches"
    caches.mkdir(parents=True, exist_ok=True)
    program = [python, HERE / f"{framework}_program.py", *steps]
    with (direct if way == "direct" else remote)(framework, caches) as (prefix, environment):
        process = subprocess.Popen(
            [*prefix, *program], env=environment, stdout=subprocess.PIPE, text=True, cwd=caches
        )
        assert process.stdout is not None
        with process.stdout:
            for text in process.stdout:
                if not text.startswith('{"step"'):
                    continue  # a library that speaks
                line = json.loads(text)
                name = line.pop("step")
                outcome.steps[name] = line
                if line["state"] != "begun":
                    click.echo(
                        f"{framework} {way:6} {name:26} {line['state']:6} {line['seconds']:7.1f} s"
                    )
        status = process.wait(SECONDS)
    for line in outcome.steps.values():
        if line["state"] == "begun":  # it took the process with it
            line |= {"state": "failed", "error": f"the program ended with status {status}"}
    if not outcome.steps:
        outcome.steps["start"] = {"state": "failed", "error": f"status {status}"}
    return outcome


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(_SETTINGS)))
@click.option("--way", "ways", multiple=True, type=click.Choice(WAYS), default=WAYS)
@click.option("--step", "steps", multiple=True, help="Only this step; may be repeated.")
@click.option(
    "--environments",
    type=click.Path(path_type=Path),
    default=WORK,
    help="Folder of the virtual environments; default: build/frameworks.",
)
def main(
    names: tuple[str, ...], ways: tuple[str, ...], steps: tuple[str, ...], environments: Path
) -> None:
    """Run the programs of the frameworks; fail where a step fails or the ways differ."""
    outcomes = []
    for framework in names or tuple(_SETTINGS):
        python = environment_of(framework, environments)
        outcomes += [run(framework, way, python, steps) for way in ways]
    plain = [{"framework": one.framework, "way": one.way, "steps": one.steps} for one in outcomes]
    (WORK / "results.json").write_text(json.dumps(plain, indent=1) + "\n")
    ok = True
    for one in outcomes:
        passed = sum(line["state"] == "passed" for line in one.steps.values())
        click.echo(f"{one.framework} {one.way}: {passed} of {len(one.steps)} steps passed")
        for name, said in one.bad.items():
            ok = False
            click.echo(f"  {name}: {said.splitlines()[0]}", err=True)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
