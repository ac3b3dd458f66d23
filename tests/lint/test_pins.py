"""Versions are pinned exactly, and in one way."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def normal(name: str) -> str:
    """A distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: list[str]) -> dict[str, str]:
    """Name -> version of lines `name==version`."""
    split = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {normal(name): version for name, version in split}


def test_pins_and_constraints_agree(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = pins(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted |= pins(extra)
    constraints = pins((root / "scripts/constraints.txt").read_text().splitlines())
    different = {name: v for name, v in wanted.items() if constraints.get(name) != v}
    assert not different, "run `make constraints`"


def test_nvjitlink_stays_out(root: Path) -> None:
    """With it installed numba-cuda hands the driver machine code, which a software GPU refuses."""
    assert "nvidia-nvjitlink" not in pins(
        (root / "scripts/constraints.txt").read_text().splitlines()
    )


def test_debian_packages_are_sorted_and_named_once(root: Path) -> None:
    lines = (root / "scripts/debian-packages.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert names == sorted(set(names))
