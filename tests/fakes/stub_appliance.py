"""The least that a worker needs around it: a listener that starts it, and a broker that says yes.

For tests of the worker alone, and by hand:

    python -m tests.fakes.stub_appliance --driver build/release/lib/null/libcuda.so.1 --out DIR

which writes DIR/session, to be named by HEADRACE_SESSION, and serves until interrupted.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import click

from remoting.protocol.codec import Message
from remoting.protocol.gen import messages as m
from security.pki import (
    CertificateAuthority,
    SessionIdentity,
    load_public_der,
    make_key,
    private_pem,
)
from tests.fakes.data_client import HEADER, REPLY, DataClient, frame, tls_context

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")
NULL_UUID = b"headrace-null-0\0"


@dataclass
class Slice:
    """What every session is granted one of."""

    uuid: bytes = NULL_UUID
    memory: int = 8 << 30


@dataclass
class StubAppliance:
    """Starts workers and answers them. A context manager; everything ends with it."""

    driver: Path = BUILD / "lib/null/libcuda.so.1"
    worker: Path = BUILD / "bin/headrace-worker"
    slices: list[Slice] = field(default_factory=lambda: [Slice()])
    environment: dict[str, str] = field(default_factory=dict)
    software: bool = False
    handshake_seconds: int = 10
    idle_seconds: int = 60
    reports: list[m.WorkerReport] = field(default_factory=list)
    used: dict[int, int] = field(default_factory=dict)
    peer_refusal: m.Refuse | None = None

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.authority = CertificateAuthority.create(self.folder / "ca")
        self._broker = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        self._broker.bind(str(self.folder / "broker"))
        self._broker.listen(64)
        self._data = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.address: tuple[str, int] = self._data.getsockname()[:2]
        self.workers: list[int] = []
        self._changed = threading.Condition()
        self._ended: set[int] = set()
        self._conversations: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._accept, args=(self._broker, self._serve_broker)),
            threading.Thread(target=self._accept, args=(self._data, self._start_worker)),
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for listener in (self._data, self._broker):
            listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for worker in self.workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)
        self._stack.close()

    def stderr(self) -> str:
        """What all workers have written, once they have ended."""
        for index in range(len(self.workers)):
            self.wait_for_worker(index)
        return self.stderr_so_far()

    def stderr_so_far(self) -> str:
        """What all workers have written."""
        return (self.folder / "stderr").read_text()

    def wait_for_worker(self, index: int) -> None:
        """Until a worker has ended, and the broker has noticed."""
        worker = self.workers[index]
        os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        with self._changed:
            assert self._changed.wait_for(lambda: worker in self._ended, 20), "no goodbye"

    def hang_up(self) -> None:
        """Be gone, as a daemon that was killed."""
        for connection in self._conversations:
            connection.shutdown(socket.SHUT_RDWR)

    def credentials(
        self, session: bool = True, authority: CertificateAuthority | None = None
    ) -> tuple[Path, Path]:
        """Files with a certificate (a session's, or a client's) and its key."""
        key = make_key()
        signer = authority or self.authority
        if session:
            issued = signer.issue_session(SessionIdentity("stub", "user", "r-1"), key.public_key())
        else:
            issued = signer.issue_client("stub", key.public_key())
        return self.write_pem(issued.pem, private_pem(key))

    def write_pem(self, certificate: bytes, key: bytes) -> tuple[Path, Path]:
        """Store a pair under a new name."""
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".pem")
        os.write(handle, certificate)
        os.close(handle)
        handle, key_name = tempfile.mkstemp(dir=self.folder, suffix=".key")
        os.write(handle, key)
        os.close(handle)
        return Path(name), Path(key_name)

    def client(self, *, session: bool = True) -> DataClient:
        """Connect with a good certificate."""
        certificate, key = self.credentials(session)
        context = tls_context(self.authority.root_pem, certificate, key)
        return DataClient.connect(self.address, context)

    def write_session_file(self, path: Path, through: tuple[str, int] | None = None) -> None:
        """What a launcher would hand to a program; `through` is an address in front of ours."""
        certificate, key = self.credentials()
        host, port = through or self.address
        text = (
            f"headrace-session 1\nserver {host}:{port}\nreservation r-1\n"
            f"software {'yes' if self.software else 'no'}\n"
            f"expires {int(time.time()) + 86400}\n"
            f"[certificate]\n{certificate.read_text()}[key]\n{key.read_text()}"
            f"[ca]\n{self.authority.root_pem.decode()}"
        )
        path.touch(mode=0o600)
        path.write_text(text)

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            serve(connection)

    def _start_worker(self, connection: socket.socket) -> None:
        with connection, (self.folder / "stderr").open("ab") as log:
            # Not Popen: only here can the connection be put where the contract wants it.
            self.workers.append(
                os.posix_spawn(
                    self.worker,
                    [str(self.worker)],
                    {"HEADRACE_BROKER": str(self.folder / "broker"), "LISTEN_FDS": "1"},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, connection.fileno(), 3),
                        (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
                    ],
                )
            )

    def _serve_broker(self, connection: socket.socket) -> None:
        threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        held: dict[int, int] = {}
        worker = 0
        self._conversations.append(connection)
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(HEADER.size)) == HEADER.size:
                size, kind, _, call, _ = HEADER.unpack(head)
                payload = stream.read(size)
                if kind == m.WorkerHello.TYPE:
                    worker = m.WorkerHello.decode(payload).pid
                answer = self._answer(kind, payload, held)
                if answer is not None:
                    connection.sendall(frame(answer.TYPE, answer.encode(), REPLY, call))
        with self._changed:
            for device, size in held.items():
                self.used[device] -= size
            self._ended.add(worker)
            self._changed.notify_all()

    def _answer(self, kind: int, payload: bytes, held: dict[int, int]) -> Message | None:
        if kind == m.WorkerHello.TYPE:
            hello = m.WorkerHello.decode(payload)
            issued = self.authority.issue_server(
                ["127.0.0.1", "localhost"], load_public_der(hello.public_key)
            )
            return m.WorkerIdentity(
                certificate=issued.der,
                chain=issued.chain_der,
                trust=self.authority.trust_der,
                handshake_seconds=self.handshake_seconds,
                idle_seconds=self.idle_seconds,
            )
        if kind == m.PeerCheck.TYPE:
            return self.peer_refusal or m.PeerPermit(principal="c-stub", session="s-1")
        if kind == m.SessionRequest.TYPE:
            return self._grant()
        if kind == m.StatusRequest.TYPE:
            return self._status()
        if kind == m.MemoryRequest.TYPE:
            return self._account(m.MemoryRequest.decode(payload), held)
        if kind == m.WorkerReport.TYPE:
            self.reports.append(m.WorkerReport.decode(payload))
            return None
        return m.Refuse(code=12, text=f"the stub does not answer {kind:#06x}", hint="")

    def _grant(self) -> m.SessionGrant:
        return m.SessionGrant(
            session="s-1",
            driver_library=str(self.driver),
            software=self.software,
            environment=[m.Setting(name=k, value=v) for k, v in self.environment.items()],
            devices=[
                m.GrantedDevice(
                    physical_uuid=one.uuid,
                    slice_uuid=bytes([index + 1] * 16),
                    pci_domain=0,
                    pci_bus=index + 1,
                    pci_device=0,
                    name="Stub GPU",
                    memory_bytes=one.memory,
                    compute_percent=100,
                )
                for index, one in enumerate(self.slices)
            ],
        )

    def _status(self) -> m.StatusReply:
        return m.StatusReply(
            reservation="r-1",
            driver="580.65.06",
            cuda_version=13000,
            devices=[
                m.SliceState(
                    slice_uuid=bytes([index + 1] * 16),
                    pci_domain=0,
                    pci_bus=index + 1,
                    pci_device=0,
                    name="Stub GPU",
                    memory_bytes=one.memory,
                    used_bytes=self.used.get(index, 0),
                    compute_percent=100,
                    compute_major=8,
                    compute_minor=0,
                    software=self.software,
                )
                for index, one in enumerate(self.slices)
            ],
            processes=[],
        )

    def _account(self, request: m.MemoryRequest, held: dict[int, int]) -> m.MemoryReply:
        limit = self.slices[request.device].memory
        with self._changed:
            used = self.used.get(request.device, 0)
            granted = request.delta <= 0 or used + request.delta <= limit
            if granted:
                used += request.delta
                self.used[request.device] = used
                held[request.device] = held.get(request.device, 0) + request.delta
        return m.MemoryReply(granted=granted, used=used, limit=limit)


@click.command()
@click.option("--driver", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--uuid", help="Of the driver's device, in hex; the null backend's by default.")
@click.option("--memory", type=int, default=1 << 30, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(driver: Path, uuid: str | None, memory: int, out: Path) -> None:
    """Serve sessions on a driver until standard input ends or an interrupt."""
    one = Slice(bytes.fromhex(uuid) if uuid else NULL_UUID, memory)
    out.mkdir(mode=0o700, exist_ok=True)
    session = out / "session"
    session.unlink(missing_ok=True)
    with StubAppliance(driver=driver.resolve(), slices=[one]) as stub:
        stub.write_session_file(session)
        click.echo(f"export HEADRACE_SESSION={session}", err=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
        click.echo((stub.folder / "stderr").read_text() if stub.workers else "", err=True)


if __name__ == "__main__":
    main()
