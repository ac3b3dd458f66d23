"""The Unix socket for workers, and the registry of what they hold."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from appliance.broker import wire
from appliance.broker.connection import WorkerConnection
from appliance.broker.desk import Desk, Endable
from appliance.broker.policy import GrantPolicy
from appliance.core.ids import ReservationId, SessionId, WorkerPid
from appliance.core.interfaces import Clock, Workers
from appliance.core.pool import Pool
from appliance.core.reservation import EndReason, Reservation
from security.identity import Pseudonyms
from security.pki import CertificateAuthority

_PEER_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class Broker:
    """Accepts workers, and ends reservations with their holder, their time or by order."""

    def __init__(
        self,
        pool: Pool,
        authority: CertificateAuthority,
        pseudonyms: Pseudonyms,
        workers: Workers,
        policy: GrantPolicy,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._pool = pool
        self._policy = policy
        self._clock = clock
        self._log = log
        self._desk = Desk(pool, authority, pseudonyms, workers, self, policy, clock, log)
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._connections: dict[asyncio.Task[None], WorkerConnection] = {}
        self._holders: dict[ReservationId, Endable] = {}
        self._sessions: dict[SessionId, Endable] = {}
        self._expiries: dict[ReservationId, asyncio.TimerHandle] = {}

    async def start(self, path: Path) -> None:
        """Listen. The path is ours alone: the state folder is locked by one daemon."""
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(os.fspath(path))
            self._path = path
            path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._accept, sock=listener, backlog=512)
        except BaseException:
            listener.close()
            raise

    def say_goodbye(self) -> None:
        """Begin a shutdown: every reservation ends, every worker is told."""
        if self._server:
            self._server.close()
        for reservation in self._pool.reservations():
            self.end_reservation(reservation.id, EndReason.SHUTDOWN)
        for connection in self._connections.values():
            connection.tell_to_end(wire.SHUTTING_DOWN, EndReason.SHUTDOWN.value)

    async def stop(self) -> None:
        """End what is left. Called when the workers are gone, or if there never were any."""
        if self._server:
            self._server.close()
        for timer in self._expiries.values():
            timer.cancel()
        tasks = list(self._connections)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._policy.stop_seconds)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._path:
            self._path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ registry

    def granted(self, reservation: Reservation, holder: Endable) -> None:
        """A reservation began; it ends with its time, or with its holder."""
        self._holders[reservation.id] = holder
        self._expiries[reservation.id] = asyncio.get_running_loop().call_later(
            max(0.0, reservation.expires - self._clock()),
            self.end_reservation,
            reservation.id,
            EndReason.EXPIRED,
        )

    def attached(self, session: SessionId, worker: Endable) -> None:
        """A session began."""
        self._sessions[session] = worker

    def detached(self, session: SessionId) -> None:
        """A session's worker is gone."""
        self._sessions.pop(session, None)

    def end_reservation(self, reservation: ReservationId, reason: EndReason) -> None:
        """End a reservation and its sessions; ending it twice changes nothing."""
        holder = self._holders.pop(reservation, None)
        if holder is None:
            return
        self._expiries.pop(reservation).cancel()
        sessions = self._pool.end(reservation, reason)
        told = [worker for session in sessions if (worker := self._sessions.get(session))]
        if reason in (EndReason.EXPIRED, EndReason.ADMINISTRATOR):
            told.append(holder)  # in the other cases it is the holder who ended it
        if reason is not EndReason.SHUTDOWN:  # then everybody is told anyway
            for worker in told:
                worker.tell_to_end(wire.NOT_PERMITTED, f"the reservation is over: {reason.value}")
        self._log.info(
            "reservation_ended",
            reservation=reservation,
            reason=reason.value,
            sessions=len(sessions),
        )

    # ------------------------------------------------------------------ accepting

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        pid, uid = _peer(writer)
        if uid != os.geteuid():
            self._log.warning("worker_refused", reason="another user", uid=uid)
            writer.close()
            return
        if len(self._connections) >= self._policy.max_connections:
            self._log.warning("worker_refused", reason="too many connections", worker=pid)
            writer.close()
            return
        connection = WorkerConnection(self._desk, pid, reader, writer)
        self._connections[task] = connection
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await connection.run()
        finally:
            del self._connections[task]


def _peer(writer: asyncio.StreamWriter) -> tuple[WorkerPid, int]:
    """Who the kernel says is at the other end."""
    connected: socket.socket = writer.get_extra_info("socket")
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
    pid, uid, _ = _PEER_CREDENTIALS.unpack(raw)
    return WorkerPid(pid), uid
