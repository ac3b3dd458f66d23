"""Files stay small enough to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

HARD_LIMIT = 800
"""Lines of a source file. 400 is what to aim for; tests and generated files are exempt."""

FUNCTION_LIMIT = 60
"""Lines of a Python function, docstring included."""

BIG_FILE = 2_000_000
"""Bytes. More belongs into a package that is installed, not into the history."""

SOURCES = {".py", ".c", ".cc", ".h", ".S", ".cu"}


def is_ours(path: Path) -> bool:
    """Whether the limits hold for this file: written by hand, and no test."""
    return path.suffix in SOURCES and "gen" not in path.parts and path.parts[0] != "tests"


def test_no_source_file_is_longer_than_the_hard_limit(root: Path, tree: list[Path]) -> None:
    too_long = {
        str(path): lines
        for path in filter(is_ours, tree)
        if (lines := (root / path).read_bytes().count(b"\n")) > HARD_LIMIT
    }
    assert not too_long, "split these by what they are about"


def test_no_python_function_is_longer_than_its_limit(root: Path, tree: list[Path]) -> None:
    too_long: dict[str, int] = {}
    for path in filter(is_ours, tree):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse((root / path).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LIMIT:
                    too_long[f"{path}:{node.lineno} {node.name}"] = lines
    assert not too_long, "give the steps of these names of their own"


def test_no_committed_file_is_big(root: Path, tree: list[Path]) -> None:
    sizes = {str(path): (root / path).stat().st_size for path in tree}
    assert not {path: size for path, size in sizes.items() if size > BIG_FILE}
