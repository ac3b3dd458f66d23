"""The linters are tests: what `make lint` and `make typecheck` run, each by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOOLS: dict[str, list[str]] = {
    "ruff": [".venv/bin/ruff", "check"],
    "ruff-format": [".venv/bin/ruff", "format", "--check"],
    "clang-format": ["scripts/format-cpp", "--check"],
    "mypy": [".venv/bin/mypy"],
    "import-contracts": [".venv/bin/lint-imports", "--no-logo"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", TOOLS)
def test_tool_has_nothing_to_say(root: Path, tool: str) -> None:
    done = subprocess.run(TOOLS[tool], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"\n{done.stdout}{done.stderr}"
