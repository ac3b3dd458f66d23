"""Prints the requirements of pyproject.toml, all extras included, one a line.

Runs with nothing but Debian's python3: scripts/setup uses it before there is a .venv.
"""

from __future__ import annotations

import tomllib
from pathlib import Path


def main() -> None:
    """Reads pyproject.toml beside this folder and prints what pip shall install."""
    root = Path(__file__).resolve().parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines.extend(extra)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
