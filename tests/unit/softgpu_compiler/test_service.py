"""The compile helper as its clients see it: answers, faults, sharing, end."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.unit.softgpu_compiler.harness import (
    HERE,
    ROOT,
    Connection,
    Helper,
    StartHelper,
    module,
)

pytestmark = pytest.mark.timeout(90)


def loads_as(path: str) -> bytes:
    """The kernel's name in a shared object's descriptor."""
    name = ctypes.c_char_p.in_dll(ctypes.CDLL(path), "sgk_desc")
    address = ctypes.addressof(name)
    result = ctypes.c_char_p.from_address(address + 8).value
    assert result is not None
    return result


def test_inspect_describes_the_module(start_helper: StartHelper) -> None:
    reply = start_helper().connect().ask({"op": "inspect"}, module())
    assert reply.header["ok"]
    described = reply.header["module"]
    assert [kernel["name"] for kernel in described["kernels"]] == ["first", "second"]
    assert described["kernels"][0]["params"] == [[0, 8], [8, 4]]
    assert described["globals_bytes"] == 4096
    assert described["relocations"] == [
        {"offset": 8, "target": "limit", "addend": -4, "generic": True}
    ]
    assert reply.attachment == bytes(range(20))


def test_compile_gives_an_object_that_loads(start_helper: StartHelper) -> None:
    connection = start_helper().connect()
    for kernel in ("first", "second"):
        reply = connection.compile(module(), kernel)
        assert reply["ok"], reply
        assert loads_as(reply["path"]) == kernel.encode()
        assert Path(reply["path"]).stat().st_mode & 0o777 == 0o644


def test_answers_are_kept_for_the_next_helper(start_helper: StartHelper, tmp_path: Path) -> None:
    count = tmp_path / "count"
    text = module(f"//count {count}")
    paths = [start_helper().connect().compile(text)["path"] for _ in range(2)]
    assert paths[0] == paths[1]
    assert count.read_text() == "once\n"


def test_a_compile_without_the_text_asks_for_it(start_helper: StartHelper) -> None:
    text = module("//only here")
    first, second = start_helper(), start_helper("--cpu-limit", "60")
    name = first.connect().ask({"op": "inspect"}, text).header["module"]["hash"]
    request = {"op": "compile", "module": name, "kernel": "first", "opt": 1}
    connection = second.connect()
    assert connection.ask(request).header["error"]["kind"] == "unknown_module"
    assert connection.ask(request, text).header["ok"]


def test_equal_requests_are_compiled_once(start_helper: StartHelper, tmp_path: Path) -> None:
    count, gate = tmp_path / "count", tmp_path / "gate"
    os.mkfifo(gate)
    helper = start_helper()
    text = module(f"//count {count}", f"//wait {gate}")
    connections = [helper.connect() for _ in range(4)]
    name = connections[0].ask({"op": "inspect"}, text).header["module"]["hash"]
    for connection in connections:
        connection.send({"op": "compile", "module": name, "kernel": "first", "opt": None})
    # Others are answered meanwhile, while the equal requests wait for one compile.
    assert helper.connect().ask({"op": "hello"}).header["ok"]
    gate.write_text("")
    assert len({connection.receive().header["path"] for connection in connections}) == 1
    assert count.read_text() == "once\n"


def test_two_processes_compile_the_same_kernel(start_helper: StartHelper, tmp_path: Path) -> None:
    count = tmp_path / "count"
    helper = start_helper("--keep")
    text = module(f"//count {count}")
    (tmp_path / "text").write_bytes(text)
    program = (
        "import sys, pathlib; from tests.unit.softgpu_compiler.harness import Connection; "
        "print(Connection(pathlib.Path(sys.argv[1])).compile("
        "pathlib.Path(sys.argv[2]).read_bytes())['path'])"
    )
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{ROOT}"}
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(helper.path), str(tmp_path / "text")],
            stdout=subprocess.PIPE,
            env=environment,
        )
        for _ in range(2)
    ]
    paths = {client.communicate(timeout=60)[0] for client in clients}
    assert len(paths) == 1
    assert paths.pop().strip().endswith(b".so")
    assert count.read_text() == "once\n"


@pytest.mark.parametrize(
    ("order", "kind", "words"),
    [
        ("//refuse wgmma.mma_async.sync", "unsupported_form", "wgmma.mma_async.sync"),
        ("//abort", "internal", "SIGABRT"),
        ("//explode", "internal", "RuntimeError: a bug"),
        ("//eat", "limit", "1024 MiB"),
        ("//loop", "limit", "1 s"),
    ],
)
def test_a_failing_compile_is_told_and_the_service_goes_on(
    start_helper: StartHelper, order: str, kind: str, words: str
) -> None:
    helper = start_helper("--cpu-limit", "1", "--memory-limit", "1024")
    connection = helper.connect()
    reply = connection.compile(module(order))
    assert reply["error"]["kind"] == kind, reply
    assert words in reply["error"]["message"]
    assert reply["error"]["line"] == (4 if kind == "unsupported_form" else 0)
    assert connection.compile(module())["ok"]
    assert helper.process.poll() is None


def test_text_that_is_no_ptx_is_refused_with_its_line(start_helper: StartHelper) -> None:
    reply = start_helper().connect().ask({"op": "inspect"}, b"\xff\0garbage").header
    assert reply["error"] == {"kind": "invalid_ptx", "message": "no .version directive", "line": 1}


def test_a_missing_device_helper_is_named(start_helper: StartHelper) -> None:
    text = b"//fake\n//kernel first\nvoid sgrt_nowhere(void); void use(void) { sgrt_nowhere(); }\n"
    text += module().split(b"\n", 3)[3].replace(b"*(unsigned*)env->params = 1;", b"sgrt_nowhere();")
    reply = start_helper().connect().compile(text)
    assert reply["error"]["kind"] == "internal"
    assert "sgrt_nowhere" in reply["error"]["message"]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 5, 0) + b"hello",
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 0xFFFFFFFF, 0),
        struct.pack("<II", 2, 0xFFFFFFFF) + b"{}",
        struct.pack("<II", 12, 0) + b'{"op":"drop"}'[:12],
        struct.pack("<II", 13, 0) + b'{"op":"drop"}',
        struct.pack("<II", 16, 0) + b'{"op":"compile"}',
        struct.pack("<II", 8000, 0) + b"[" * 8000,
    ],
)
def test_bad_frames_end_their_connection_only(start_helper: StartHelper, data: bytes) -> None:
    helper = start_helper()
    good, bad = helper.connect(), helper.connect()
    bad.socket.sendall(data)
    assert bad.at_end()
    assert good.ask({"op": "hello"}).header["protocol"] == 1


def test_a_client_killed_while_it_waits_harms_nobody(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    helper = start_helper()
    text = module(f"//wait {gate}")
    waiting, other = helper.connect(), helper.connect()
    name = waiting.ask({"op": "inspect"}, text).header["module"]["hash"]
    request = {"op": "compile", "module": name, "kernel": "first", "opt": None}
    waiting.send(request)
    half = helper.connect()
    half.socket.sendall(struct.pack("<II", 100, 0) + b"half a requ")
    half.close()
    other.send(request)
    waiting.close()
    gate.write_text("")
    assert other.receive().header["ok"]


def test_the_helper_ends_with_its_last_client(start_helper: StartHelper, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    helper = start_helper("--lock", str(lock))
    first, second = helper.connect(), helper.connect()
    for connection in (first, second):
        assert connection.ask({"op": "hello"}).header["ok"]
    first.close()
    assert second.ask({"op": "hello"}).header["ok"]
    second.close()
    assert helper.process.wait(20) == 0
    assert not helper.path.exists()
    assert not lock.exists()


def test_the_helper_ends_also_when_its_directory_is_gone(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    helper = start_helper("--lock", str(tmp_path / "run" / "lock"))
    connection = helper.connect()
    assert connection.ask({"op": "hello"}).header["ok"]
    (tmp_path / "run").rmdir()
    connection.close()
    assert helper.process.wait(20) == 0


def test_the_helper_does_not_end_while_somebody_connects(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    helper = start_helper("--lock", str(lock))
    first = helper.connect()
    assert first.ask({"op": "hello"}).header["ok"]
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        first.close()
        second = helper.connect()
        assert second.ask({"op": "hello"}).header["ok"]
    assert second.ask({"op": "hello"}).header["ok"]
    second.close()
    assert helper.process.wait(20) == 0


def test_the_helper_ends_in_the_middle_of_a_compile_nobody_waits_for(
    start_helper: StartHelper, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    helper = start_helper("--lock", str(tmp_path / "lock"))
    connection = helper.connect()
    name = connection.ask({"op": "inspect"}, module(f"//wait {gate}")).header["module"]["hash"]
    connection.send({"op": "compile", "module": name, "kernel": "first", "opt": None})
    with open(gate, "w"):  # the compile has begun
        connection.close()
        assert helper.process.wait(20) == 0


def test_a_kept_helper_stays_until_it_is_told(start_helper: StartHelper) -> None:
    helper = start_helper("--keep")
    for _ in range(2):
        connection = helper.connect()
        assert connection.ask({"op": "hello"}).header["ok"]
        connection.close()
    assert helper.process.poll() is None
    helper.process.send_signal(signal.SIGTERM)
    assert helper.process.wait(20) == 0


def test_damaged_entries_are_made_anew(start_helper: StartHelper, tmp_path: Path) -> None:
    count = tmp_path / "count"
    helper = start_helper()
    connection = helper.connect()
    text = module(f"//count {count}")
    path = Path(connection.compile(text)["path"])
    sound = path.read_bytes()
    for damaged in (sound[:-1], sound[:100], b"", sound[:200] + b"x" + sound[201:]):
        path.unlink()  # not in place: this process has it mapped
        path.write_bytes(damaged)
        assert connection.compile(text)["path"] == str(path)
        assert path.read_bytes() == sound
        assert loads_as(connection.compile(text)["path"]) == b"first"
    assert count.read_text() == "once\n" * 5
    (described,) = helper.entries(".json")
    described.write_bytes(b"{}")
    assert connection.ask({"op": "inspect"}, text).header["ok"]


def test_parallel_connections_are_served_in_parallel(start_helper: StartHelper) -> None:
    helper: Helper = start_helper()
    results: list[bool] = []

    def client(number: int) -> None:
        connection = Connection(helper.path)
        results.append(connection.compile(module(f"//number {number}"))["ok"])
        connection.close()

    keeper = helper.connect()
    assert keeper.ask({"op": "hello"}).header["ok"]
    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 6
