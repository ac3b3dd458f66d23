"""The example programs: how each is started, and what it needs first.

The demo and the end-to-end tests use this list, so that what is shown is what is tested.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "docs/tutorial/programs"


@dataclass(frozen=True)
class Program:
    """One example: its name in tables and test ids, and the arguments that start it."""

    name: str
    source: str
    front_end: str

    def arguments(self, workshop: Workshop) -> list[str]:
        """The command line."""
        if self.source.endswith(".py"):
            picture = [str(workshop.picture)] if self.source == "photo_nvrtc.py" else []
            return [sys.executable, str(SOURCES / self.source), *picture]
        return [str(workshop.binaries / self.source), str(workshop.photo)]


PROGRAMS = (
    Program("kmeans", "kmeans_cupy.py", "CuPy"),
    Program("asteroids", "asteroids_numba.py", "numba-cuda"),
    Program("photo", "photo_nvrtc.py", "cuda-bindings, NVRTC"),
    Program("vector-add", "vector_add", "nvcc, static runtime 13.0"),
    Program("matmul", "matmul", "nvcc, static runtime 13.0"),
    Program("reduction", "reduction", "nvcc, static runtime 13.0"),
    Program("histogram", "histogram", "nvcc, static runtime 13.0"),
    Program("streams", "streams", "nvcc, static runtime 13.0"),
    Program("runtime12", "runtime12", "g++, static runtime 12.9"),
)


@dataclass(frozen=True)
class Workshop:
    """Where the compiled programs and their input lie, and where they may write."""

    binaries: Path
    folder: Path

    @property
    def photo(self) -> Path:
        """The photograph as plain bytes, for the C++ programs."""
        return self.folder / "china.ppm"

    @property
    def picture(self) -> Path:
        """What the image filter writes."""
        return self.folder / "china-sharp.png"


def prepare(folder: Path) -> Workshop:
    """Compiles what is not compiled yet, and unpacks the photograph into `folder`."""
    binaries = ROOT / "build/programs"
    command = [str(SOURCES / "build"), str(binaries), sys.executable]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    workshop = Workshop(binaries, folder)

    from PIL import Image
    from sklearn.datasets import load_sample_image

    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(load_sample_image("china.jpg")).save(workshop.photo)
    return workshop


@dataclass(frozen=True)
class Outcome:
    """What a program said in its last line."""

    program: str
    device: str
    seconds: float
    max_difference: float
    tolerance: float
    ok: bool


def outcome_of(output: str) -> Outcome:
    """Reads the line of JSON that a program ends with."""
    lines = output.strip().splitlines()
    if not lines:
        raise ValueError("the program printed nothing")
    said = json.loads(lines[-1])
    return Outcome(**{name: said[name] for name in Outcome.__dataclass_fields__})


def front_end_settings(cache: Path) -> dict[str, str]:
    """What a software GPU needs the front ends to be told, where no launcher tells it.

    CuPy shall hand out PTX, and not use the CUB library for reductions: its module is 28 MB of
    PTX, of which one kernel takes a minute to compile for a processor.
    """
    return {
        "CUPY_COMPILE_WITH_PTX": "1",
        "CUPY_ACCELERATORS": "",
        "CUPY_CACHE_DIR": str(cache / "cupy"),
    }
