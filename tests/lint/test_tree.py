"""Nothing lies in the repository that must not be there."""

from __future__ import annotations

import re
from pathlib import Path

VENDOR_HEADERS = re.compile(
    r"^(cuda|cudaTypedefs|cudaProfiler|cudaProfilerTypedefs|cuda_runtime\w*|nvrtc|nvml|nvJitLink)\.h$"
)

VENDOR_LICENCE = "LicenseRef-" + "NvidiaProprietary"

OF_ONE_MACHINE = re.compile(
    "|".join(
        (
            # written in halves, so that this file does not find itself
            "/wo" + r"rk/(main|wt|brief|shared|steering|\.library)",
            "/fa" + "rm/",
            "registry" + r"\.npmjs",
            "files" + r"\.pythonhosted",
            "deb" + r"\.debian\.org",
            "pypi" + r"\.org/simple",
        )
    )
)


def text_of(path: Path) -> str:
    """The file's text, or nothing where it is binary."""
    data = path.read_bytes()
    return "" if b"\0" in data[:4096] else data.decode(errors="replace")


def test_no_vendor_header_is_committed(root: Path, tree: list[Path]) -> None:
    by_name = [path for path in tree if VENDOR_HEADERS.match(path.name)]
    by_licence = [path for path in tree if VENDOR_LICENCE in text_of(root / path)]
    assert not by_name + by_licence, "the build takes them from the wheel of the CUDA runtime"


def test_no_file_names_one_machine_or_a_registry_host(root: Path, tree: list[Path]) -> None:
    found = [
        f"{path}: {match.group()}"
        for path in tree
        if (match := OF_ONE_MACHINE.search(text_of(root / path)))
    ]
    assert not found


def test_programs_are_executable_and_nothing_else_is(root: Path, tree: list[Path]) -> None:
    wrong = []
    for path in tree:
        starts_a_program = (root / path).read_bytes()[:2] == b"#!"
        executable = bool((root / path).stat().st_mode & 0o100)
        if starts_a_program != executable:
            wrong.append(str(path))
    assert not wrong, "a '#!' line and the executable bit go together"
