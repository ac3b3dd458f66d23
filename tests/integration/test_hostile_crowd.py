"""Many bad guests at once, and guests who ask for more than they can be given: what they cost is
bounded, each is one line in the log, and a program at work notices nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core.sizes import MIB
from remoting.protocol.gen import messages as m
from tests.fakes.appliance import BUILD, ROOT, Appliance
from tests.fakes.cuda import OUT_OF_MEMORY, SUCCESS, Cuda
from tests.fakes.data_client import MORE, DataClient, frame
from tests.fakes.driver_calls import BLOB, FUNCTION, MODULE, call_type, handle, trip
from tests.fakes.scene import LOG_FLAGS, Scene, loud
from tests.fakes.visitor import CLIENT

CROWD = 1000
PER_ADDRESS = 32
PTX = b"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry wide(.param .align 8 .b8 p[4096]) { ret; }
"""


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Scene]:
    """An appliance that waits a second for a handshake, with one machine-wide software GPU."""
    for built in ("bin/headrace-worker", "lib/softgpu/libcuda.so.1"):
        if not (BUILD / built).exists():
            pytest.fail(f"there is no {BUILD / built}: run 'make build' first")
    flags = [*LOG_FLAGS, "--handshake-time", "1s", "--software-gpu-state", str(tmp_path / "gpus")]
    flags += ["--worker-environment", "HEADRACE_STALL_SECONDS", "--stop-time", "1s"]
    with (
        Appliance(
            tmp_path / "appliance",
            client=CLIENT,
            software_gpu="1x2GiB",
            flags=flags,
            environment={"HEADRACE_STALL_SECONDS": "3"},
        ) as appliance,
        Scene(appliance, tmp_path) as scene,
    ):
        yield scene


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Costs:
    """What a process takes of the machine."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")

    @property
    def descriptors(self) -> int:
        return len(list((self._folder / "fd").iterdir()))

    @property
    def memory(self) -> int:
        """Bytes of its own: without files and what is shared with others."""
        for line in (self._folder / "status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no RssAnon")


def newest_worker(scene: Scene) -> int:
    return int(scene.appliance.log("worker_started")[-1]["worker"])


def wait_until_all_are_gone(scene: Scene, before: set[int]) -> None:
    """All workers but those there were before have ended, and their ends are in the log."""
    deadline = time.monotonic() + 60
    while True:
        log = scene.appliance.log()
        started = {line["worker"] for line in log if line["event"] == "worker_started"}
        over = {
            line["worker"]
            for line in log
            if line["event"] in ("worker_ended", "worker_crashed")
            or (line["event"] == "connection_failed" and line.get("kind") == "worker")
        }
        if started - over <= before:
            return
        assert time.monotonic() < deadline, started - over - before
        time.sleep(0.02)


def workers_of(scene: Scene) -> set[int]:
    return {
        line["worker"]
        for line in scene.appliance.log("worker_started")
        if Path(f"/proc/{line['worker']}").exists()
    }


def connect_from(scene: Scene, source: str) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", scene.appliance.port), timeout=20, source_address=(source, 0)
    )


@pytest.mark.timeout(240)
def test_a_thousand_silent_connections(impatient: Scene) -> None:
    scene = impatient
    program = subprocess.Popen(
        scene.appliance.command(
            "run", "-m", "64MiB", "--", sys.executable, str(ROOT / "tests/fakes/steady_program.py")
        ),
        env=scene.appliance.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    daemon, before, lines_before = Costs(scene.appliance.pid), workers_of(scene), log_count(scene)
    descriptors, memory = daemon.descriptors, daemon.memory
    with contextlib.ExitStack() as crowd:
        for _ in range(CROWD):
            crowd.enter_context(connect_from(scene, "127.0.0.2"))
        # Others get in at once, and the one at work goes on.
        with scene.enter("attached") as guest:
            Cuda(guest).allocate(4096)
            guest.send(m.Close(0, ""))
        scene.check_the_others()
        # A worker has a handful of descriptors in the daemon.
        assert daemon.descriptors < descriptors + 6 * (PER_ADDRESS + 8)
        assert len(workers_of(scene) - before) <= PER_ADDRESS + 1
        wait_until_all_are_gone(scene, before)
    out, _ = program.communicate("end\n", timeout=60)
    assert (program.returncode, out.splitlines()[-1]) == (0, "all right")
    assert daemon.memory < memory + 64 * MIB
    lines = loud(scene.appliance.log())[lines_before:]
    assert len(lines) == CROWD, lines[-3:]
    assert {line["event"] for line in lines} == {"connection_refused", "connection_failed"}
    assert daemon.descriptors <= descriptors + 4


def log_count(scene: Scene) -> int:
    return len(loud(scene.appliance.log()))


def dribble(connection: socket.socket, data: bytes) -> None:
    """A byte now and then, until somebody has had enough."""
    with contextlib.suppress(OSError):
        for byte in data:
            connection.send(bytes([byte]))
            time.sleep(0.05)


def test_slow_handshakes_end_in_time(impatient: Scene) -> None:
    scene = impatient
    before, lines_before = workers_of(scene), log_count(scene)
    outgoing, incoming = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x")
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    greeting = outgoing.read()
    message = frame(m.Hello.TYPE, m.Hello(1, 1, 0, 1, "x" * 60).encode(), call=1)
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        threads = []
        for index in range(16):
            if index % 2:
                slow: socket.socket = stack.enter_context(connect_from(scene, "127.0.0.1"))
                data = greeting
            else:
                slow, data = stack.enter_context(scene.enter("hello")).socket, message
            threads.append(threading.Thread(target=dribble, args=(slow, data)))
            threads[-1].start()
        scene.check_the_others()
        wait_until_all_are_gone(scene, before)
        assert time.monotonic() - begun < 30
        for thread in threads:
            thread.join()
    lines = loud(scene.appliance.log())[lines_before:]
    assert len(lines) == 16
    assert {line["event"] for line in lines} == {"connection_failed"}


def test_a_client_that_never_reads_costs_little(impatient: Scene) -> None:
    scene = impatient
    with scene.ends_with("has read nothing for 3 s"), scene.enter("attached") as guest:
        cuda = Cuda(guest)
        address = cuda.allocate(8 * MIB)
        worker = Costs(newest_worker(scene))
        before, most = worker.memory, 0
        for call in range(1, 2000):
            cuda.request_download(address, 8 * MIB, call=call)
        with contextlib.suppress(OSError, AssertionError):
            while True:
                most = max(most, worker.memory)
                time.sleep(0.02)
        assert most < before + 64 * MIB


class Kernel:
    """A kernel with a large block of parameters, loaded in a guest's session."""

    def __init__(self, client: DataClient) -> None:
        client.send(m.BlobBegin(handle(BLOB), len(PTX), len(PTX), 0))
        client.send(m.BlobData(handle(BLOB), 0, PTX))
        loaded = trip(
            client, "cuModuleLoadDataEx", struct.pack("<QQI", handle(MODULE), handle(BLOB), 0)
        )
        assert (loaded.result, loaded.fields[:4]) == (SUCCESS, bytes(4))
        wanted = struct.pack("<QQI", handle(FUNCTION), handle(MODULE), 4) + b"wide"
        assert trip(client, "cuModuleGetFunction", wanted).result == SUCCESS
        block = bytes(4096)
        launch = struct.pack("<Q7IQI", handle(FUNCTION), 1, 1, 1, 1, 1, 1, 0, 0, len(block)) + block
        self.launch = frame(call_type("cuLaunchKernel"), launch)


def send_until_nobody_reads(client: DataClient, data: bytes) -> int:
    """How often it could be sent."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 200_000:
            client.send_raw(data * 16)
            sent += 16
    return sent


def fault(scene: Scene, tmp_path: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "remoting.softgpu.faults", "--state", tmp_path / "gpus", *words],
        cwd=ROOT,
        check=True,
    )


def test_copies_behind_a_hung_kernel_are_kept_up_to_a_limit(
    impatient: Scene, tmp_path: Path
) -> None:
    scene = impatient
    asked, kept = 64, 32
    with scene.guests() as lines, scene.enter("attached") as guest:
        cuda = Cuda(guest)
        address = cuda.allocate(8 * MIB)
        kernel = Kernel(guest)
        fault(scene, tmp_path, "hang")
        guest.send_raw(kernel.launch)
        for call in range(1, asked + 1):
            cuda.request_download(address, 8 * MIB, call=call)
        for _ in range(asked - kept):
            reply = guest.receive()
            assert struct.unpack_from("<i", reply.payload) == (OUT_OF_MEMORY,)
        fault(scene, tmp_path, "clear")
        done = total = 0
        while done < kept:
            reply = guest.receive()
            if reply.flags & MORE:
                total += len(reply.payload)
            else:
                assert struct.unpack_from("<i", reply.payload) == (SUCCESS,)
                done += 1
        assert total == kept * 8 * MIB
        assert len(cuda.download(address, 8 * MIB)) == 8 * MIB
        guest.send(m.Close(0, ""))
    assert loud(lines) == []


def test_launches_behind_a_hung_kernel_are_kept_up_to_a_limit(
    impatient: Scene, tmp_path: Path
) -> None:
    scene = impatient
    before = workers_of(scene)
    with scene.enter("attached") as guest:
        Cuda(guest)
        kernel = Kernel(guest)
        worker = Costs(newest_worker(scene))
        memory = worker.memory
        fault(scene, tmp_path, "hang")
        guest.socket.settimeout(3)
        assert 10_000 < send_until_nobody_reads(guest, kernel.launch) < 200_000
        assert worker.memory < memory + 256 * MIB
    # Nobody can know yet that the client is gone: its end is behind what was not taken. But with
    # its reservation the worker ends, whatever the driver does.
    scene.other_agent.ask(m.ReleaseRequest(scene.guest_reservation), m.ReleaseReply)
    wait_until_all_are_gone(scene, before)
    scene.check_the_others()


def test_a_worker_that_a_driver_holds_ends_with_its_client(
    impatient: Scene, tmp_path: Path
) -> None:
    scene = impatient
    before = workers_of(scene)
    with scene.enter("attached") as guest:
        cuda = Cuda(guest)
        address = cuda.allocate(MIB)
        kernel = Kernel(guest)
        fault(scene, tmp_path, "hang")
        guest.send_raw(kernel.launch)
        cuda.send("cuMemFree_v2", struct.pack("<Q", address))  # waits for the kernel
        guest.socket.settimeout(2)
        with pytest.raises(TimeoutError):
            cuda.client.ask(m.Ping(1), m.Pong)
    wait_until_all_are_gone(scene, before)
    scene.check_the_others()
