"""Fetches source distributions that have the tests of a package, at run time and never committed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.suites.model import SuiteError

LIST = Path(__file__).resolve().parent / "sources.txt"


def source(name: str, version: str, work: Path) -> Path:
    """The folder of an unpacked source distribution; fetched if it is not there."""
    folder = work / f"{name}-{version}"
    if folder.exists():
        return folder
    pins = [line for line in LIST.read_text().splitlines() if line.startswith(f"{name}==")]
    if not pins or not pins[0].startswith(f"{name}=={version} "):
        raise SuiteError(f"{LIST} does not name {name} {version}, which is installed")
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        _fetch(pins[0], Path(scratch))
        found = [*Path(scratch).glob(f"unpacked/pip-*/{name}_*")]
        found += Path(scratch).glob(f"archives/{name}-{version}")
        if not found:
            raise SuiteError(f"pip could not fetch {name} {version}; what it said is above")
        shutil.move(found[0], folder)
    return folder


def _fetch(pin: str, scratch: Path) -> None:
    """Has pip fetch, check and unpack. Before it hands out the archive, pip asks the package for its
    metadata, which packages that want a CUDA toolkit refuse; what it unpacked is kept then too."""
    wanted, archives, unpacked = (scratch / name for name in ("pin", "archives", "unpacked"))
    wanted.write_text(pin + "\n")
    unpacked.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"),
            *("--no-binary", ":all:", "--no-deps", "--no-build-isolation", "--no-clean"),
            *("--dest", str(archives), "--requirement", str(wanted)),
        ],
        env={**os.environ, "TMPDIR": str(unpacked)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if not any(unpacked.glob("pip-*/*_*")):
        print(done.stdout + done.stderr, file=sys.stderr)
    for archive in archives.glob("*.tar.gz"):
        with tarfile.open(archive) as file:
            file.extractall(archives, filter="data")
