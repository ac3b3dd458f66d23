"""Machine code on a software GPU: refused, or with `skip` loaded and not run, direct and remote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.appliance import BUILD, Appliance

PROGRAM = Path(__file__).parent / "programs/load_image.py"
SOURCE = Path(__file__).parents[1] / "cpp/data/kernels.cu"
STORES = 'extern "C" __global__ void stores(int* p) { *p = 7; }\n'
SKIPPED = "Headrace Software GPU [SASS skipped]"
NO_BINARY_FOR_GPU, NOT_FOUND = 209, 500
UNTOUCHED, STORED = "2a000000", "07000000"
# char, pointer, short, 3-byte struct, 16-aligned struct, int, double: ordinary C layout.
MIXED = [[0, 1], [8, 8], [16, 2], [18, 3], [32, 32], [64, 4], [72, 8]]

Told = dict[str, Any]


def _fatbin(*targets: str) -> list[str]:
    return ["-fatbin", *(f"--generate-code={target}" for target in targets)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What NVIDIA's compiler makes of the kernels of the C++ tests and of one more."""
    import nvidia.cu13

    nvcc = Path(next(iter(nvidia.cu13.__path__))) / "bin/nvcc"
    folder = tmp_path_factory.mktemp("images")
    source = folder / "all.cu"
    source.write_text(SOURCE.read_text() + STORES)
    small = folder / "small.cu"
    small.write_text(STORES)
    wanted = {
        "cubin": (source, ["-cubin", "-arch=sm_80"]),
        "newer cubin": (source, ["-cubin", "-arch=sm_120"]),
        "relocatable": (source, ["-cubin", "-arch=sm_80", "-rdc=true"]),
        "newer relocatable": (source, ["-cubin", "-arch=sm_120", "-rdc=true"]),
        "machine code alone": (small, _fatbin("arch=compute_80,code=sm_80")),
        "both": (small, _fatbin("arch=compute_80,code=[sm_80,compute_80]")),
        "newer PTX": (
            small,
            _fatbin("arch=compute_80,code=sm_80", "arch=compute_120,code=compute_120"),
        ),
        "PTX": (small, _fatbin("arch=compute_80,code=compute_80")),
        "other machine code": (small, _fatbin("arch=compute_120,code=sm_120")),
    }
    made = {}
    for name, (text, options) in wanted.items():
        made[name] = folder / name.replace(" ", "_")
        subprocess.run([nvcc, *options, "-o", made[name], text], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    folder = tmp_path_factory.mktemp("skipping") / "appliance"
    with Appliance(folder, flags=("--software-gpu-sass", "skip")) as running:
        yield running


@pytest.fixture(params=["direct", "remote"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def direct(image: Path, sass: str | None, cc: str = "8.0") -> Told:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_PRELOAD") if name in os.environ}
    environment = kept | {
        "LD_LIBRARY_PATH": str(BUILD / "lib/softgpu"),
        "HEADRACE_SOFTGPU_CC": cc,
        **({"HEADRACE_SOFTGPU_SASS": sass} if sass else {}),
    }
    done = subprocess.run(
        [sys.executable, PROGRAM, image],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: Told = json.loads(done.stdout)
    return told


def told_by(way: str, image: Path, appliance: Appliance) -> Told:
    if way == "direct":
        return direct(image, "skip")
    done = appliance.run("run", "-m", "1GiB", "--", sys.executable, PROGRAM, image)
    assert done.returncode == 0, done.stderr
    told: Told = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("sass", [None, "refuse", "nonsense"])
def test_machine_code_is_refused_unless_asked_for(
    images: dict[str, Path], sass: str | None
) -> None:
    for name in ("cubin", "machine code alone"):
        told = direct(images[name], sass)
        assert told == {"device": "Headrace Software GPU", "load": NO_BINARY_FOR_GPU}


@pytest.mark.parametrize("name", ["cubin", "newer cubin", "relocatable", "newer relocatable"])
def test_cubins_load_and_say_what_they_have(
    images: dict[str, Path], appliance: Appliance, way: str, name: str
) -> None:
    """Routines that were not inlined and symbols of other kinds are no kernels."""
    told = told_by(way, images[name], appliance)
    assert told["device"] == SKIPPED
    assert told["load"] == 0
    functions = told["functions"]
    assert functions["mixed"]["parameters"] == MIXED
    assert functions["mixed"]["binary"] == (120 if "newer" in name else 80)
    assert functions["no_parameters"]["parameters"] == []
    assert functions["stores"]["parameters"] == [[0, 8]]
    assert functions["_Z6helperd"] == NOT_FOUND
    assert told["count"] == 4
    assert told["factors"] == "01000000020000000300000004000000"
    assert told["counter"] == "07000000"
    assert told["absent"] == NOT_FOUND


@pytest.mark.parametrize(
    ("name", "memory"),
    [
        ("machine code alone", UNTOUCHED),
        ("both", STORED),
        ("PTX", STORED),
        # A real device of this capability would run the machine code.
        ("newer PTX", UNTOUCHED),
    ],
)
def test_only_machine_code_is_skipped(
    images: dict[str, Path], appliance: Appliance, way: str, name: str, memory: str
) -> None:
    function = told_by(way, images[name], appliance)["functions"]["stores"]
    assert function["memory"] == memory
    assert (function["binary"], function["ptx"]) == (80, 80)


def test_newer_ptx_is_computed_where_it_fits(images: dict[str, Path]) -> None:
    function = direct(images["newer PTX"], "skip", cc="12.0")["functions"]["stores"]
    assert function["memory"] == STORED
    assert function["ptx"] == 120


def test_machine_code_of_a_fatbin_must_be_for_the_device(
    images: dict[str, Path], appliance: Appliance, way: str
) -> None:
    assert told_by(way, images["other machine code"], appliance)["load"] == NO_BINARY_FOR_GPU


def test_every_list_names_the_mode(appliance: Appliance) -> None:
    assert SKIPPED in appliance.run("list").stdout
    assert SKIPPED in appliance.run("list", "--json").stdout
    query = ("run", "-m", "1GiB", "--", BUILD / "bin/headrace", "smi")
    name = appliance.run(*query, "--query-gpu=name", "--format=csv,noheader").stdout
    assert name.strip() == SKIPPED
    assert "SASS skipped" in appliance.run(*query, "-L").stdout
