"""Who imports whom: what the contracts of import-linter in pyproject.toml do not say."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ("appliance", "security", "remoting", "tui", "client_installer")


def imported(root: Path, file: Path) -> set[str]:
    """Top-level names of the absolute imports of a file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((root / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


def modules(tree: list[Path], *folders: str) -> list[Path]:
    """Python files of ours below these folders."""
    return [p for p in tree if p.suffix == ".py" and str(p).startswith(folders)]


def test_the_domain_uses_the_standard_library_only(root: Path, tree: list[Path]) -> None:
    allowed = sys.stdlib_module_names | {"appliance"}
    for file in modules(tree, "appliance/core/"):
        assert imported(root, file) <= allowed, file


def test_only_the_inventory_knows_nvml(root: Path, tree: list[Path]) -> None:
    users = {str(p) for p in modules(tree, *PACKAGES) if "pynvml" in imported(root, p)}
    assert all(user.startswith("appliance/inventory/") for user in users), users


def test_ours_never_imports_tests_or_documents(root: Path, tree: list[Path]) -> None:
    users = {str(p) for p in modules(tree, *PACKAGES) if {"tests", "docs"} & imported(root, p)}
    assert not users


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_prints_nothing_and_starts_nothing(root: Path, package: str) -> None:
    program = f"import {package}, sys, threading; sys.exit(len(threading.enumerate()) - 1)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
