"""C++ parts use of each other only what ARCHITECTURE.md allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GENERATED = "generated"
"""Stands for what remoting/codegen writes into the build folder."""

MAY_USE: dict[str, set[str]] = {
    "common": {GENERATED},  # the messages' codec is made of the protocol alone
    "driverabi": set(),
    "client": {"common", "driverabi", GENERATED},
    "launcher": {"common", GENERATED},
    "agent": {"common", GENERATED},
    "worker": {"common", "driverabi", GENERATED},
    "bench": {"common", GENERATED},
    "softgpu": {"driverabi", GENERATED},
}
"""Part -> the other parts that it may include. Parts meet at run time, by dlopen or a socket."""

SOFTGPU_MAY_USE: dict[str, set[str]] = {
    "exec": set(),
    "compiler": set(),
    "device": set(),
    "driver": {"exec", "compiler", "device"},
    "nvml": {"device"},
}
"""The same inside the software GPU, whose layers stack."""

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
LINKED = re.compile(r"target_link_libraries\s*\(([^)]*)\)")


def native_sources(tree: list[Path], part: str) -> list[Path]:
    """C and C++ files of one folder below remoting/."""
    suffixes = {".c", ".cc", ".h", ".inc"}
    return [
        path for path in tree if path.parts[:2] == ("remoting", part) and path.suffix in suffixes
    ]


def resolve(root: Path, source: Path, name: str) -> Path | None:
    """The file of ours that an include line means, relative to remoting/; None if generated."""
    part = root / Path(*source.parts[:2])
    for folder in (root / source.parent, part, root / "remoting", root):
        file = (folder / name).resolve()
        if file.is_file() and file.is_relative_to(root / "remoting"):
            return file.relative_to(root / "remoting")
    return None


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_includes_only_what_it_may_use(root: Path, tree: list[Path], part: str) -> None:
    wrong: list[str] = []
    for source in native_sources(tree, part):
        for name in INCLUDE.findall((root / source).read_text()):
            target = resolve(root, source, name)
            used = target.parts[0] if target else GENERATED
            if used != part and used not in MAY_USE[part]:
                wrong.append(f"{source} includes {name} ({used})")
    assert not wrong


@pytest.mark.parametrize("layer", SOFTGPU_MAY_USE)
def test_layers_of_the_software_gpu_use_only_lower_ones(
    root: Path, tree: list[Path], layer: str
) -> None:
    wrong: list[str] = []
    for source in native_sources(tree, "softgpu"):
        if source.parts[2] != layer:
            continue
        for name in INCLUDE.findall((root / source).read_text()):
            target = resolve(root, source, name)
            if target is None or target.parts[0] != "softgpu":
                continue
            if target.parts[1] != layer and target.parts[1] not in SOFTGPU_MAY_USE[layer]:
                wrong.append(f"{source} includes {name}")
    assert not wrong


@pytest.mark.parametrize("part", MAY_USE)
def test_a_part_links_only_what_it_may_use(root: Path, tree: list[Path], part: str) -> None:
    wrong: list[str] = []
    for lists in tree:
        if lists.name != "CMakeLists.txt" or lists.parts[:2] != ("remoting", part):
            continue
        for arguments in LINKED.findall((root / lists).read_text()):
            for used in re.findall(r"\bheadrace_(\w+)", arguments):
                owner = next((p for p in MAY_USE if used == p or used.startswith(f"{p}_")), part)
                if owner != part and owner not in MAY_USE[part]:
                    wrong.append(f"{lists} links headrace_{used}")
    assert not wrong


def test_every_native_part_has_a_rule(tree: list[Path]) -> None:
    native = {
        path.parts[1]
        for path in tree
        if path.parts[0] == "remoting"
        and path.suffix in {".c", ".cc", ".h"}
        and len(path.parts) > 2
    }
    assert native <= set(MAY_USE)
