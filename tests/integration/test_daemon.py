"""headraced as a process, with a worker and an NVML that obey the test."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.core.sizes import GIB
from remoting.protocol.gen import messages as m
from security.pki import CertificateAuthority
from tests.fakes.appliance import ROOT, Appliance, ApplianceError
from tests.fakes.broker_client import BrokerClient
from tests.fakes.nvml import build_fake_nvml

WORKER = ROOT / "tests" / "fakes" / "worker.py"


@pytest.fixture(scope="session")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a worker, libcuda.so.1 and libnvidia-ml.so.1 that are none."""
    folder = tmp_path_factory.mktemp("fakes")
    build_fake_nvml(folder)
    worker = folder / "worker"
    worker.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{WORKER}"\n')
    worker.chmod(0o755)
    return folder


Start = Callable[..., Appliance]


@pytest.fixture
def start(fakes: Path, tmp_path: Path) -> Start:
    """Makes an appliance of the fakes; further flags win over these."""

    def make(*flags: str, gpus: str = "Test GPU:4096", folder: str = "appliance") -> Appliance:
        return Appliance(
            tmp_path / folder,
            flags=[
                *("--software-gpu-libraries", os.fspath(fakes)),
                *("--worker", os.fspath(fakes / "worker")),
                *("--software-gpu-compiler", "own"),
                *flags,
            ],
            environment={"FAKE_NVML": gpus},
        )

    return make


def connect(appliance: Appliance, command: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", appliance.port))
    connection.sendall(command.encode() + b"\n")
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Until the end, in whatever way it comes."""
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionError:
        pass
    connection.close()
    return data


def processes_of(appliance: Appliance) -> list[int]:
    """Children of the daemon, those that ended and are not reaped yet included."""
    children = Path(f"/proc/{appliance.pid}/task/{appliance.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Wait until a process that was killed has ended; false if it has not after a while."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)


@contextmanager
def ends_with_lines(appliance: Appliance, event: str, count: int = 1) -> Any:
    """Inside, things happen; on leaving, the appliance has ended and the log has the lines."""
    with appliance:
        yield
        appliance.wait_for_log(event, count)
    lines = appliance.log(event)
    assert len(lines) == count, appliance.log()


# ---------------------------------------------------------------------- start and end


def test_the_first_start_makes_a_private_state_and_the_next_keeps_it(start: Start) -> None:
    with start() as first:
        fingerprint = first.log("ready")[0]["ca"]
        assert stat.S_IMODE(first.state.stat().st_mode) == 0o700
        assert stat.S_IMODE(first.broker.stat().st_mode) == 0o600
        for key in ("ca/issuing.key", "ca/root.key", "pseudonym.key"):
            assert stat.S_IMODE((first.state / key).stat().st_mode) == 0o600
    with start() as second:
        assert second.log("ready")[-1]["ca"] == fingerprint


def test_a_second_daemon_on_the_same_state_is_refused(start: Start) -> None:
    with start(), pytest.raises(ApplianceError, match="another headraced uses"), start():
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_leaves_no_process_and_no_socket(
    start: Start, number: signal.Signals
) -> None:
    with start("--stop-time", "200ms") as appliance:
        connections = [connect(appliance, "stubborn") for _ in range(3)]
        pids = [int(pid) for c in connections for pid in c.recv(100).split()]
        assert len(pids) == 6
        assert all(alive(pid) for pid in pids)
        os.kill(appliance.pid, number)
        for connection in connections:
            assert read_all(connection) == b""
    assert all(gone(pid) for pid in pids)
    assert not appliance.broker.exists()
    assert [line["event"] for line in appliance.log()][-1] == "stopped"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--worker", "/none"], ["there is no worker program /none", "make build"]),
        (["--driver", "/none/libcuda.so.1"], ["there is no driver library", "make build"]),
        (["--nvml", "/dev/null"], ["NVML does not start from /dev/null", "--nvml"]),
        (["--listen", "192.0.2.1:1"], ["cannot listen on 192.0.2.1:1", "ip -brief address"]),
        (["--listen", "nonsense"], ["--listen", "HOST:PORT"]),
        (["--broker", "/tmp/" + "x" * 120], ["path of", "shorter"]),
        (["--reservation-time", "soon"], ["--reservation-time", "24h"]),
        (["--software-gpu", "many"], ["--software-gpu", "1x4GiB"]),
        (["--worker-environment", "LD_PRELOAD"], ["LD_PRELOAD"]),
    ],
)
def test_a_start_that_fails_says_what_and_what_next(
    start: Start, flags: list[str], words: list[str]
) -> None:
    with pytest.raises(ApplianceError) as failed, start(*flags):
        pass
    for word in words:
        assert word in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_port_that_is_taken_is_named(start: Start) -> None:
    with (
        start() as appliance,
        pytest.raises(ApplianceError, match=r"(?s)already in use.*hint: .*ss -ltnp"),
        start("--listen", appliance.address, folder="other"),
    ):
        pass


def test_settings_come_from_flag_then_environment_then_file(tmp_path: Path) -> None:
    file = tmp_path / "headraced.toml"
    file.write_text('max_sessions = "none"\nlisten = ["127.0.0.1:1"]\n')

    def complaint(*flags: str, **environment: str) -> str:
        command = [sys.executable, "-m", "appliance.service", "--config", str(file), *flags]
        done = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 1
        return done.stderr

    assert f"max_sessions in {file}" in complaint()
    assert "HEADRACED_MAX_SESSIONS" in complaint(HEADRACED_MAX_SESSIONS="several")
    assert "--max-sessions" in complaint("--max-sessions", "few", HEADRACED_MAX_SESSIONS="several")
    file.write_text("max_session = 3\n")
    assert "did you mean max_sessions?" in complaint()
    file.write_text("")
    assert "did you mean HEADRACED_LISTEN?" in complaint(HEADRACED_LISTN="x")
    file.write_text("max_sessions = \n")
    assert "not TOML" in complaint()


# ---------------------------------------------------------------------- spawning


def test_a_worker_starts_clean(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LD_PRELOAD_X", "CUDA_VISIBLE_DEVICES", "HEADRACED_LOG_LEVEL", "SECRET"):
        monkeypatch.setenv(name, "info")
    monkeypatch.setenv("ASAN_OPTIONS", "passed=1")
    with start() as appliance:
        told = json.loads(read_all(connect(appliance, "describe")))
    environment = told["environment"]
    for variable in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"):  # of the shell and of Python
        environment.pop(variable, None)
    peer = environment.pop("REMOTE_PORT")
    assert 0 < int(peer) < 65536
    assert environment == {
        "ASAN_OPTIONS": "passed=1",
        "HEADRACE_BROKER": os.fspath(appliance.broker),
        "LANG": "C.UTF-8",
        "LISTEN_FDNAMES": "connection",
        "LISTEN_FDS": "1",
        "PATH": "/usr/bin:/bin",
        "REMOTE_ADDR": "127.0.0.1",
    }
    # 0, 1, 2, the connection, and the one that lists the folder.
    assert told["descriptors"] == [0, 1, 2, 3, 4]
    assert told["session"]
    assert told["blocking"]


@pytest.mark.parametrize(
    ("command", "event", "reason"),
    [
        ("exit 3 it went wrong", "connection_failed", "it went wrong"),
        ("exit 5", "connection_failed", "exit code 5"),
        ("flood", "connection_failed", "the last line"),
        ("crash", "worker_crashed", "killed by SIGSEGV"),
    ],
)
def test_a_worker_that_fails_is_one_line_with_a_pseudonym(
    start: Start, command: str, event: str, reason: str
) -> None:
    appliance = start()
    with ends_with_lines(appliance, event):
        assert read_all(connect(appliance, command)) == b""
        assert read_all(connect(appliance, "describe"))
    (line,) = appliance.log(event)
    assert line["reason"] == reason
    assert line["peer"].startswith("a-")
    assert "127.0.0.1" not in json.dumps(line)


def test_a_worker_that_ends_well_leaves_no_line(start: Start) -> None:
    appliance = start()
    with ends_with_lines(appliance, "connection_failed", 0):
        read_all(connect(appliance, "exit 0"))
    assert [line["event"] for line in appliance.log()] == ["ready", "stopping", "stopped"]


def test_connections_without_certificate_are_limited(start: Start) -> None:
    appliance = start("--max-unauthenticated", "2", "--stop-time", "200ms")
    with ends_with_lines(appliance, "connection_refused"):
        held = [connect(appliance, "stubborn") for _ in range(2)]
        for connection in held:
            assert connection.recv(100)
        assert read_all(socket.create_connection(("127.0.0.1", appliance.port))) == b""
        for connection in held:
            connection.close()
    assert appliance.log("connection_refused")[0]["reason"].endswith("without certificate")


def test_a_slot_is_free_again_when_its_worker_is_gone(start: Start) -> None:
    with start("--max-unauthenticated", "1") as appliance:
        for _ in range(5):
            # The connection's end is seen here before the daemon has reaped the worker.
            while not (told := read_all(connect(appliance, "describe"))):
                pass
            assert json.loads(told)


def test_all_connections_are_limited(start: Start) -> None:
    appliance = start("--max-connections", "1", "--stop-time", "200ms")
    with ends_with_lines(appliance, "connection_refused"):
        held = connect(appliance, "stubborn")
        assert held.recv(100)
        assert read_all(socket.create_connection(("127.0.0.1", appliance.port))) == b""
        held.close()
    assert appliance.log("connection_refused")[0]["reason"] == "too many connections"


def test_a_worker_that_never_authenticates_is_killed_with_its_children(start: Start) -> None:
    appliance = start("--handshake-time", "500ms")
    with ends_with_lines(appliance, "connection_failed"):
        connection = connect(appliance, "stubborn")
        pids = [int(pid) for pid in connection.recv(100).split()]
        assert read_all(connection) == b""
        assert all(gone(pid) for pid in pids)


# ---------------------------------------------------------------------- the whole daemon


async def test_a_reservation_and_a_session_through_the_daemon(start: Start) -> None:
    with start(gpus="Test GPU:4096,Other GPU:2048") as appliance:
        authority = CertificateAuthority.load(appliance.state / "ca")
        async with (
            await BrokerClient.through_worker(appliance.port) as agent,
            await BrokerClient.through_worker(appliance.port) as session,
        ):
            await agent.as_agent(authority)
            listed = await agent.ask(m.ListRequest(), m.ListReply)
            assert [(gpu.name, gpu.free_bytes) for gpu in listed.gpus] == [
                ("Test GPU", 4 * GIB),
                ("Other GPU", 2 * GIB),
            ]
            grant = await agent.reserve(1, GIB)
            assert grant.server == appliance.address
            granted = await session.attach(grant.certificate)
            (device,) = granted.devices
            assert device.name == "Other GPU"
            names = {setting.name: setting.value for setting in granted.environment}
            assert names["HEADRACE_SOFTGPU"] == "1x4GiB"
            assert Path(names["HEADRACE_SOFTGPU_CACHE"]).parent == appliance.state
            assert (await session.ask(m.MemoryRequest(0, GIB), m.MemoryReply)).granted
            await agent.close()
            assert (await session.next(m.EndSession)).code == 3
    events = [line["event"] for line in appliance.log()]
    assert events[:3] == ["ready", "reservation_granted", "session_attached"]
    # How the end of a session and the shutdown interleave is not promised.
    assert sorted(events[3:]) == ["reservation_ended", "session_detached", "stopped", "stopping"]


async def test_memory_comes_back_only_when_a_stubborn_worker_is_killed(start: Start) -> None:
    with start("--stop-time", "200ms") as appliance:
        authority = CertificateAuthority.load(appliance.state / "ca")
        async with await BrokerClient.through_worker(appliance.port) as agent:
            await agent.as_agent(authority)
            grant = await agent.reserve(1, 4 * GIB)
            before = set(processes_of(appliance))
            async with await BrokerClient.through_worker(appliance.port, "relay stubborn") as other:
                await other.attach(grant.certificate)
                (pid,) = set(processes_of(appliance)) - before
            # The worker's broker connection has ended, its process has not.
            await agent.ask(m.ReleaseRequest(grant.reservation), m.ReleaseReply)
            while True:  # each answer is a step of the daemon
                listed = await agent.ask(m.ListRequest(), m.ListReply)
                if listed.gpus[0].free_bytes == 4 * GIB:
                    break
                assert listed.gpus[0].free_bytes == 0
            assert not alive(pid)


async def test_a_hostile_worker_ends_alone(start: Start) -> None:
    appliance = start()
    with ends_with_lines(appliance, "connection_failed"):
        authority = CertificateAuthority.load(appliance.state / "ca")
        async with (
            await BrokerClient.through_worker(appliance.port) as agent,
            await BrokerClient.through_worker(appliance.port) as hostile,
        ):
            await agent.as_agent(authority)
            await hostile.hello()
            hostile.writer.write(b"\xff" * 64)
            assert await hostile.ended()
            assert await agent.reserve()


def test_mig_instances_are_lent_in_place_of_their_gpu(start: Start) -> None:
    with start(gpus="Whole:1024,Divided-mig:2048") as appliance:
        assert appliance.log("ready")[0]["gpus"] == [
            "GPU-00000000-0000-4000-8000-000000000000",
            "MIG-00000000-0000-4000-8000-000000000011",
            "MIG-00000000-0000-4000-8000-000000000013",
        ]


# ---------------------------------------------------------------------- the compile helper


def helper_of(appliance: Appliance) -> int:
    (pid,) = processes_of(appliance)
    return pid


def test_one_compile_helper_serves_all_and_is_started_again(start: Start, fakes: Path) -> None:
    (fakes / "libsoftgpu_device.a").touch()
    with start("--software-gpu-compiler", "shared") as appliance:
        path = os.fspath(appliance.broker.with_name("compiler.sock"))
        first = helper_of(appliance)
        for _ in range(2):
            with socket.socket(socket.AF_UNIX) as worker:
                worker.connect(path)  # never refused, also while the helper starts again
            os.kill(first, signal.SIGKILL)
            assert gone(first)
            while processes_of(appliance) in ([], [first]):
                pass
            first = helper_of(appliance)
        assert len(appliance.log("compile_helper_ended")) == 2
    assert gone(first)
    assert not Path(path).exists()


def test_a_compile_helper_that_cannot_start_is_given_up_and_said(
    start: Start, tmp_path: Path
) -> None:
    build_fake_nvml(tmp_path)  # libraries without libsoftgpu_device.a
    with start(
        *("--software-gpu-compiler", "shared"),
        *("--software-gpu-libraries", os.fspath(tmp_path)),
    ) as appliance:
        while not appliance.log("compile_helper_given_up"):
            pass
        assert read_all(connect(appliance, "describe"))
    ended = appliance.log("compile_helper_ended")
    assert len(ended) == 3
    assert "make build" in ended[0]["output"]


def test_the_compile_helper_ends_with_a_daemon_that_is_killed(start: Start, fakes: Path) -> None:
    (fakes / "libsoftgpu_device.a").touch()
    appliance = start("--software-gpu-compiler", "shared")
    appliance.__enter__()
    helper = helper_of(appliance)
    os.kill(appliance.pid, signal.SIGKILL)
    assert gone(helper)
    with pytest.raises(ApplianceError, match="status -9"):
        appliance.__exit__(None, None, None)
