"""Listens on the data port and gives every connection a worker of its own.

The contract with the worker is systemd's with Accept=yes: the connection is descriptor 3, and
nothing else is inherited. Not a byte of a connection is read here. What can be limited without
reading is limited: how many connections there are, how many of them have not shown an accepted
certificate yet, and for how long they may go without.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from appliance.config.endpoint import Endpoint
from appliance.core.ids import WorkerPid
from appliance.spawner.child import BASE_ENVIRONMENT, ChildProcess
from security.identity import Kind, Pseudonyms

_BACKLOG = 512


class SpawnError(Exception):
    """Workers cannot be started; message and hint for people."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Limits:
    """How many connections at once, and how long without a certificate."""

    connections: int
    unauthenticated: int
    unauthenticated_per_address: int
    unauthenticated_seconds: float


@dataclass
class _Worker:
    """What is known about a worker besides its process."""

    process: ChildProcess
    peer: str
    local_address: str
    deadline: asyncio.TimerHandle
    authenticated: bool = False
    explained: bool = False
    broker_connections: int = 0


class Spawner:
    """Owns the listening sockets and all worker processes."""

    def __init__(
        self,
        program: Path,
        broker: Path,
        passed_on: Mapping[str, str],
        limits: Limits,
        pseudonyms: Pseudonyms,
        log: FilteringBoundLogger,
    ) -> None:
        self._program = program
        self._broker = broker
        self._passed_on = dict(passed_on)
        self._limits = limits
        self._pseudonyms = pseudonyms
        self._log = log
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._workers: dict[WorkerPid, _Worker] = {}

    def listen(self, endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        """Open the ports; the answer has the real ones where 0 was asked for."""
        if not os.access(self._program, os.X_OK):
            raise SpawnError(f"there is no worker program {self._program}", hint="make build")
        try:
            for endpoint in endpoints:
                self._listeners.append(_listen(endpoint))
        except OSError as error:
            self._close_listeners()
            raise SpawnError(
                f"cannot listen on {endpoint}: {error.strerror or error}",
                hint=_what_to_do(endpoint, error.errno),
            ) from error
        return tuple(Endpoint(*listener.getsockname()[:2]) for listener in self._listeners)

    def start(self) -> None:
        """Accept from now on."""
        self._accepting = [asyncio.create_task(self._accept(each)) for each in self._listeners]

    def stop_listening(self) -> None:
        """Accept nothing more."""
        for task in self._accepting:
            task.cancel()
        self._close_listeners()

    async def stop(self, grace_seconds: float) -> None:
        """End all workers: those without an accepted peer at once, the others after the grace."""
        self.stop_listening()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for worker in self._workers.values():
            if not worker.authenticated:
                worker.process.end()
        await asyncio.gather(*(self.finish(pid, grace_seconds) for pid in list(self._workers)))

    @property
    def count(self) -> int:
        """Workers that run."""
        return sum(1 for worker in self._workers.values() if not worker.process.gone.is_set())

    # ------------------------------------------------------------------ core.interfaces.Workers

    def local_address(self, pid: WorkerPid) -> str | None:
        """The address of this appliance at which the worker's peer came in, if known."""
        worker = self._workers.get(pid)
        return worker.local_address if worker else None

    def connected(self, pid: WorkerPid) -> None:
        """The worker speaks to the broker."""
        if worker := self._workers.get(pid):
            worker.broker_connections += 1

    def disconnected(self, pid: WorkerPid) -> None:
        """All that the worker had to say to the broker is read."""
        if worker := self._workers.get(pid):
            worker.broker_connections -= 1
            self._conclude_if_over(worker)

    def authenticated(self, pid: WorkerPid) -> None:
        """The worker's peer has shown a certificate that is accepted."""
        if worker := self._workers.get(pid):
            worker.authenticated = True
            worker.deadline.cancel()

    def explained(self, pid: WorkerPid) -> None:
        """The log has a line that says why the worker's connection ended."""
        if worker := self._workers.get(pid):
            worker.explained = True

    async def finish(self, pid: WorkerPid, grace_seconds: float) -> None:
        """Return when the worker is gone; kill it after the grace. Unknown ones are gone."""
        worker = self._workers.get(pid)
        if worker is None:
            return
        try:
            async with asyncio.timeout(grace_seconds):
                await worker.process.gone.wait()
        except TimeoutError:
            worker.process.kill()
            await worker.process.gone.wait()

    # ------------------------------------------------------------------ one connection

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:
                # Out of descriptors, or a peer that left the queue: neither may stop the loop,
                # nor make it spin.
                self._log.warning("accept_failed", reason=error.strerror)
                await asyncio.sleep(0.1)
                continue
            with connection:
                self._admit(connection, address[0], address[1])

    def _admit(self, connection: socket.socket, address: str, port: int) -> None:
        peer = self._pseudonyms.of(Kind.ADDRESS, address)
        waiting = [worker for worker in self._workers.values() if not worker.authenticated]
        of_the_peer = sum(1 for worker in waiting if worker.peer == peer)
        if len(self._workers) >= self._limits.connections:
            self._log.warning("connection_refused", peer=peer, reason="too many connections")
        elif len(waiting) >= self._limits.unauthenticated:
            self._log.warning(
                "connection_refused", peer=peer, reason="too many connections without certificate"
            )
        elif of_the_peer >= self._limits.unauthenticated_per_address:
            self._log.warning(
                "connection_refused",
                peer=peer,
                reason="too many connections without certificate from this address",
            )
        else:
            self._spawn(connection, peer, address, port)

    def _spawn(self, connection: socket.socket, peer: str, address: str, port: int) -> None:
        connection.setblocking(True)  # as systemd hands it over; the flag is shared with the child
        try:
            process = ChildProcess(
                [os.fspath(self._program)],
                connection,
                self._environment(address, port),
                self._gone,
            )
        except OSError as error:
            self._log.error("worker_not_started", peer=peer, reason=error.strerror)
            return
        pid = WorkerPid(process.pid)
        deadline = asyncio.get_running_loop().call_later(
            self._limits.unauthenticated_seconds, self._too_late, pid
        )
        local = str(connection.getsockname()[0])
        self._workers[pid] = _Worker(process, peer, local, deadline)
        self._log.debug("worker_started", worker=process.pid, peer=peer)

    def _environment(self, address: str, port: int) -> dict[str, str]:
        """What systemd says about a connection that it passes on, and where the daemon is."""
        return {
            **BASE_ENVIRONMENT,
            **self._passed_on,
            "HEADRACE_BROKER": os.fspath(self._broker),
            "LISTEN_FDS": "1",
            "LISTEN_FDNAMES": "connection",
            "REMOTE_ADDR": address,
            "REMOTE_PORT": str(port),
        }

    def _too_late(self, pid: WorkerPid) -> None:
        worker = self._workers[pid]
        if not worker.explained:
            self._log.warning(
                "connection_failed",
                worker=pid,
                peer=worker.peer,
                kind="spawner",
                reason="no accepted certificate in time",
            )
            worker.explained = True
        worker.process.kill()

    def _gone(self, process: ChildProcess) -> None:
        worker = self._workers[WorkerPid(process.pid)]
        worker.deadline.cancel()
        self._conclude_if_over(worker)

    def _conclude_if_over(self, worker: _Worker) -> None:
        """Log how a worker ended, once it is gone and its report, if any, is read."""
        process = worker.process
        if not process.gone.is_set() or worker.broker_connections > 0:
            return
        if self._workers.pop(WorkerPid(process.pid), None) is None:
            return
        log = self._log.bind(worker=process.pid, peer=worker.peer)
        assert process.exit is not None
        if process.exit.signal is not None and not process.killed:
            log.error("worker_crashed", reason=str(process.exit), output=process.last_words)
        elif process.exit.code and not worker.explained:
            log.warning(
                "connection_failed",
                kind="worker",
                reason=process.last_words or str(process.exit),
            )
        else:
            log.debug("worker_ended", reason=str(process.exit), output=process.last_words)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.close()
        self._listeners.clear()


def _what_to_do(endpoint: Endpoint, reason: int | None) -> str:
    """The next command when a port could not be opened."""
    match reason:
        case errno.EADDRINUSE:
            return f"see who has it: ss -ltnp 'sport = :{endpoint.port}'; or give another --listen"
        case errno.EACCES:
            return "ports below 1024 are root's: give another --listen"
        case errno.EADDRNOTAVAIL:
            return "see which addresses this machine has: ip -brief address"
        case _:
            return "give another --listen HOST:PORT"


def _listen(endpoint: Endpoint) -> socket.socket:
    family, kind, _, _, address = socket.getaddrinfo(
        endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
