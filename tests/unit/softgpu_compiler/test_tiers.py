"""Kernels are known by what they are made from; large ones are optimised behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.softgpu_compiler.harness import Connection, StartHelper, module

pytestmark = pytest.mark.timeout(90)


def ask(connection: Connection, text: bytes, **changes: Any) -> dict[str, Any]:
    """Compile with tiers, as the driver does."""
    name = connection.ask({"op": "inspect"}, text).header["module"]["hash"]
    request = {"op": "compile", "module": name, "kernel": "first", "opt": None, "tiers": True}
    return connection.ask(request | changes).header


def better(connection: Connection, text: bytes) -> dict[str, Any]:
    """The answer about better code, as soon as there is one."""
    name = connection.ask({"op": "inspect"}, text).header["module"]["hash"]
    while True:
        reply = connection.ask({"op": "better", "module": name, "kernel": "first"}).header
        if not reply["ok"] or reply["path"] is not None:
            return reply


def test_an_edit_of_one_kernel_recompiles_only_that_one(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    connection = start_helper().connect()

    def paths(second: str) -> list[str]:
        text = module(f"//count {count}", kernels=("first unchanged", f"second {second}"))
        return [connection.compile(text, name)["path"] for name in ("first", "second")]

    before = paths("old")
    assert count.read_text() == "once\n" * 2
    after = paths("new")
    assert count.read_text() == "once\n" * 3
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_quick_code_comes_first_and_optimised_code_follows(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    gate, count = tmp_path / "gate", tmp_path / "count"
    os.mkfifo(gate)
    text = module(f"//count {count}", f"//optimising //wait {gate}")
    connection = start_helper("--quick-from", "1").connect()
    quick = ask(connection, text)
    assert quick["ok"], quick
    assert not quick["final"]
    request = {"op": "better", "module": connection.ask({"op": "inspect"}, text).header["module"]}
    request["module"] = request["module"]["hash"]
    assert connection.ask(request | {"kernel": "first"}).header == {"ok": True, "path": None}
    assert ask(connection, text) == quick  # meanwhile others are served as quickly
    with open(gate, "w"):
        pass
    optimised = better(connection, text)["path"]
    assert optimised != quick["path"]
    assert ask(connection, text) == {"ok": True, "path": optimised, "final": True}
    assert count.read_text() == "once\n" * 2


def test_small_kernels_and_wanted_levels_have_one_tier(start_helper: StartHelper) -> None:
    small = start_helper("--quick-from", "101").connect()
    assert ask(small, module())["final"]
    large = start_helper("--quick-from", "100").connect()
    assert ask(large, module("//a"), opt=1)["final"]
    assert ask(large, module("//b"), tiers=False)["final"]
    assert not ask(large, module("//c"))["final"]


def test_code_stays_quick_when_optimising_fails(start_helper: StartHelper, tmp_path: Path) -> None:
    count = tmp_path / "count"
    text = module("//optimising //abort", f"//count {count}")
    connection = start_helper("--quick-from", "1").connect()
    assert not ask(connection, text)["final"]
    for _ in range(2):
        assert better(connection, text)["error"]["kind"] == "internal"
    assert not ask(connection, text)["final"]
    assert count.read_text() == "once\n"  # and it is not tried again


def test_another_helper_is_asked_for_better_code(start_helper: StartHelper) -> None:
    text = module("//optimising nothing")
    assert not ask(start_helper("--quick-from", "1", "--cpu-limit", "60").connect(), text)["final"]
    assert better(start_helper("--quick-from", "1").connect(), text)["ok"]


def test_nobody_waits_for_optimised_code_at_the_end(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    helper = start_helper("--quick-from", "1")
    connection = helper.connect()
    assert not ask(connection, module(f"//optimising //wait {gate}"))["final"]
    connection.close()
    assert helper.process.wait(20) == 0
