"""Documents say what is so: links lead somewhere, commands run, the tree is the real one.

Every fenced block of commands in README.md and below docs/ is preceded by a comment that says how
it is held to the truth:

    <!-- run -->             this test runs it, in the repository's root
    <!-- not run: reason --> it is not run here, because ...
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

README_LIMIT = 150

ROOT = Path(__file__).resolve().parents[2]

FENCE = re.compile(
    r"^(?P<before>[^\n]*)\n+```(?:sh|bash|console|shell)\n(?P<body>.*?)^```", re.M | re.S
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
RUN = "<!-- run -->"
NOT_RUN = re.compile(r"<!-- not run: .+ -->")


def documents() -> list[Path]:
    """README.md, the root's other documents, and everything below docs/."""
    generated = {ROOT / "docs/reference/driver-coverage.md"}
    found = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "remoting").rglob("*.md")}
    return sorted(found - generated)


def command_blocks() -> list[tuple[str, str, str]]:
    """(where, line before the block, commands) of every fenced block of commands."""
    blocks = []
    for document in documents():
        text = document.read_text()
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start("body")) + 1
            where = f"{document.relative_to(ROOT)}:{line}"
            blocks.append((where, match["before"].strip(), match["body"]))
    return blocks


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < README_LIMIT


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document: Path) -> None:
    targets = (target.split("#")[0] for target in LINK.findall(document.read_text()))
    broken = [
        target
        for target in targets
        if target and "://" not in target and not (document.parent / target).exists()
    ]
    assert not broken


def test_every_block_of_commands_is_run_or_says_why_not() -> None:
    unmarked = [
        where
        for where, before, _ in command_blocks()
        if before != RUN and not NOT_RUN.match(before)
    ]
    assert not unmarked


@pytest.mark.parametrize(
    ("where", "commands"),
    [(where, commands) for where, before, commands in command_blocks() if before == RUN],
)
def test_documented_commands_run(where: str, commands: str) -> None:
    lines = [line.removeprefix("$ ") for line in commands.splitlines()]
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "\n".join(lines)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"


# --- ARCHITECTURE.md's tree

TREE_LINE = re.compile(r"^(?P<indent>(?:  )*)(?P<names>[\w.-]+/(?: [\w.-]+/)*)(?:\s{2,}.*)?$")

OWN_FOLDERS = {"appliance", "client_installer", "remoting", "security", "tests", "tui", "docs"}
"""Top-level folders whose sub-folders the tree has to name, each one."""


def described_folders() -> set[str]:
    """Folders that the first block after '## The tree' in ARCHITECTURE.md names."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"^## The tree$.*?^```\n(.*?)^```", text, re.M | re.S)
    assert block, "ARCHITECTURE.md has no block under '## The tree'"
    folders: set[str] = set()
    stack: list[str] = []
    for line in block[1].splitlines():
        match = TREE_LINE.match(line)
        if not match:
            continue
        depth = len(match["indent"]) // 2
        assert depth <= len(stack), f"indentation jumps at {line!r}"
        names = [name.rstrip("/") for name in match["names"].split()]
        folders |= {"/".join([*stack[:depth], name]) for name in names}
        stack[depth:] = [names[-1]]
    return folders


def real_folders(tree: list[Path]) -> set[str]:
    """Top-level folders with committed files, and the sub-folders of our own ones."""
    folders = {path.parts[0] for path in tree if len(path.parts) > 1}
    folders |= {
        "/".join(path.parts[:2])
        for path in tree
        if len(path.parts) > 2 and path.parts[0] in OWN_FOLDERS
    }
    return {folder for folder in folders if not folder.startswith(".")}


def test_the_described_tree_exists(tree: list[Path]) -> None:
    every = {str(parent) for path in tree for parent in path.parents}
    assert described_folders() <= every


def test_the_real_tree_is_described(tree: list[Path]) -> None:
    assert real_folders(tree) <= described_folders()
