"""One worker's connection: phases, permits, and one handler per message.

    new ── WorkerHello ─▶ identified ── PeerCheck ─▶ agent     list, reserve, release
                                                └──▶ session ── SessionRequest ─▶ attached

Frames are handled one after the other, so a worker that floods the daemon waits for itself. What
a worker holds ends with its connection: a reservation at once, a session's memory when the worker
process is gone, since a process that still runs still has the memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from appliance.broker import admission, wire
from appliance.broker.desk import Desk
from appliance.broker.permits import PERMITS, Phase
from appliance.core.account import Process
from appliance.core.errors import InvalidRequest, NotFound, NotPermitted, PoolError
from appliance.core.ids import ReservationId, SessionId, WorkerPid, new_session_id
from appliance.core.placement import Demand
from appliance.core.reservation import EndReason, Holder, Reservation
from remoting.protocol.codec import CodecError, Message
from remoting.protocol.frames import REPLY, Frame, FrameError, read_frame
from remoting.protocol.gen import messages as m
from security.identity import Kind
from security.pki import PublicKeyError, SessionIdentity, load_public_der

_MAX_PAYLOAD = 65_536
_WRITE_SECONDS = 10.0
_MAX_REPORTS = 8

Handler = Callable[["WorkerConnection", Any], Coroutine[Any, Any, Message | None]]


class Violation(Exception):
    """The worker does what the protocol forbids: its connection ends."""


class WorkerConnection:
    """Serves one connection until it ends."""

    def __init__(
        self,
        desk: Desk,
        pid: WorkerPid,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._desk = desk
        self._pid = pid
        self._reader = reader
        self._writer = writer
        self._log = desk.log.bind(worker=pid)
        self._phase = Phase.NEW
        self._deadline: asyncio.Timeout | None = None
        self._reservation: ReservationId | None = None  # agent: held; session: attached to
        self._session: SessionId | None = None
        self._session_open = False
        self._client = ""
        self._peer_address = ""
        self._reserved_once = False
        self._reports = 0
        self._failure_logged = False
        self._local_address = desk.workers.local_address(pid)

    async def run(self) -> None:
        """Serve; return when the connection has ended and nothing of it is left."""
        self._desk.workers.connected(self._pid)
        try:
            async with asyncio.timeout(self._desk.policy.handshake_seconds) as self._deadline:
                await self._serve()
        except (Violation, FrameError, CodecError) as error:
            self._fail(f"worker broke the protocol: {error}")
            self._write(
                Frame(m.Close.TYPE, m.Close(wire.PROTOCOL_ERROR, wire.clip(str(error))).encode())
            )
        except TimeoutError:
            self._fail(f"worker let its time run out in phase {self._phase}")
        except ConnectionError as error:
            # It ended while an answer was on its way. How the process ended says whether all was
            # well, and whoever started it sees that.
            self._log.debug("worker_did_not_wait", reason=str(error))
        except Exception:
            # A fault of ours must not take the daemon with it; the log has the cause.
            self._explain()
            self._log.exception("internal_error", phase=self._phase)
            self._write(Frame(m.Close.TYPE, m.Close(wire.INTERNAL, "internal error").encode()))
        finally:
            await self._wind_up()

    def tell_to_end(self, code: int, text: str) -> None:
        """Send EndSession, and cut the connection off if the worker does not end in time.

        Whoever orders the end has said why in the log; the worker's own word on it is not news.
        """
        self._explain()
        self._write(Frame(m.EndSession.TYPE, m.EndSession(code, wire.clip(text)).encode()))
        asyncio.get_running_loop().call_later(
            self._desk.policy.stop_seconds, self._writer.transport.abort
        )

    async def _serve(self) -> None:
        while (frame := await read_frame(self._reader, _MAX_PAYLOAD)) is not None:
            kind = m.MESSAGES.get(frame.type)
            if kind is None or kind not in PERMITS[self._phase]:
                name = kind.__name__ if kind else f"type {frame.type:#06x}"
                raise Violation(f"{name} is not permitted in phase {self._phase}")
            if frame.flags:
                raise Violation(f"{kind.__name__} with flags {frame.flags:#06x}")
            if kind is m.Close:
                return
            answer = await self._handle(kind.decode(frame.payload))
            if answer is not None:
                if not frame.call:
                    raise Violation(f"{kind.__name__} awaits no answer")
                self._write(Frame(answer.TYPE, answer.encode(), REPLY, frame.call))
                async with asyncio.timeout(_WRITE_SECONDS):
                    await self._writer.drain()

    async def _handle(self, message: Message) -> Message | None:
        try:
            return await _HANDLERS[type(message)](self, message)
        except PoolError as error:
            return wire.refuse(error)

    # ------------------------------------------------------------------ every phase

    async def _ping(self, message: m.Ping) -> m.Pong:
        return m.Pong(message.cookie)

    async def _pong(self, message: m.Pong) -> None:
        raise Violation("Pong without Ping")

    async def _report(self, message: m.WorkerReport) -> None:
        self._reports += 1
        if self._reports > _MAX_REPORTS:
            raise Violation("too many reports")
        self._fail(self._without_address(message.text), kind=message.event)

    # ------------------------------------------------------------------ opening

    async def _hello(self, message: m.WorkerHello) -> m.WorkerIdentity:
        self._peer_address = message.peer.rpartition(":")[0].strip("[]")
        self._log = self._log.bind(peer=self._desk.pseudonyms.of(Kind.ADDRESS, self._peer_address))
        try:
            key = load_public_der(message.public_key)
        except PublicKeyError as error:
            raise Violation(f"WorkerHello: {error.message}") from error
        local = (self._local_address,) if self._local_address else ()
        hosts = tuple(dict.fromkeys((*self._desk.policy.hosts, *local)))
        issued = self._desk.authority.issue_server(hosts, key)
        # TLS handshake and hello have a limit each in the worker; beyond both it hangs.
        self._enter(Phase.IDENTIFIED, 3 * self._desk.policy.handshake_seconds)
        return m.WorkerIdentity(
            certificate=issued.der,
            chain=issued.chain_der,
            trust=self._desk.authority.trust_der,
            handshake_seconds=max(1, round(self._desk.policy.handshake_seconds)),
            idle_seconds=max(1, round(self._desk.policy.idle_seconds)),
        )

    async def _peer_check(self, message: m.PeerCheck) -> m.PeerPermit:
        try:
            identity = admission.admit_peer(
                message.certificate, self._desk.authority.issuing, self._desk.clock()
            )
            who = admission.principal(identity, self._desk.pseudonyms)
            self._log = self._log.bind(principal=who)
            if message.role == admission.ROLE_AGENT:
                self._client = admission.admit_agent(identity).name
                self._enter(Phase.AGENT)
            elif message.role == admission.ROLE_SESSION:
                reservation = admission.admit_session(identity, self._desk.pool)
                assert isinstance(identity, SessionIdentity)
                self._reservation = reservation.id
                self._session = new_session_id()
                self._log = self._log.bind(reservation=reservation.id, session=self._session)
                self._enter(Phase.SESSION)
            else:
                raise NotPermitted(f"there is no role {message.role}")
        except NotPermitted as error:
            self._fail(f"refused: {error.message}")
            raise
        self._desk.workers.authenticated(self._pid)
        return m.PeerPermit(principal=who, session=self._session or "")

    # ------------------------------------------------------------------ agent

    async def _list(self, message: m.ListRequest) -> m.ListReply:
        return wire.list_reply(self._desk.pool.rooms(), self._server())

    async def _reserve(self, message: m.ReserveRequest) -> m.ReserveGrant:
        if self._reserved_once:
            raise Violation("a second ReserveRequest")
        key = admission.check_reserve_request(message)
        holder = Holder(self._client, message.user, message.host)
        demand = Demand(message.count, message.memory_bytes, message.compute_percent)
        try:
            reservation = self._desk.pool.reserve(holder, demand)
        except PoolError as error:
            self._log.info("reservation_refused", reason=error.message)
            self._explain()
            raise
        self._reserved_once = True
        self._reservation = reservation.id
        self._desk.registry.granted(reservation, self)
        issued = self._desk.authority.issue_session(
            SessionIdentity(self._client, message.user, reservation.id),
            key,
            lifetime=_remaining(reservation, self._desk.clock()),
        )
        self._log = self._log.bind(reservation=reservation.id)
        self._log.info(
            "reservation_granted",
            user=self._desk.pseudonyms.of(Kind.USER, message.user),
            host=self._desk.pseudonyms.of(Kind.HOST, message.host),
            gpus=[entry.gpu.id for entry in reservation.slices],
            memory_bytes=reservation.slices[0].memory_bytes,
        )
        return wire.reserve_grant(reservation, issued, self._server())

    async def _release(self, message: m.ReleaseRequest) -> m.ReleaseReply:
        if message.reservation != self._reservation:
            raise NotFound("this connection holds no such reservation")
        self._desk.registry.end_reservation(self._reservation, EndReason.RELEASED)
        return m.ReleaseReply(message.reservation)

    # ------------------------------------------------------------------ session

    async def _status(self, message: m.StatusRequest) -> m.StatusReply:
        assert self._reservation is not None
        return wire.status_reply(self._desk.pool.alive(self._reservation))

    async def _session_request(self, message: m.SessionRequest) -> m.SessionGrant:
        assert self._reservation is not None
        assert self._session is not None
        try:
            reservation = self._desk.pool.open_session(
                self._reservation, self._session, Process(message.process, message.program)
            )
        except PoolError as error:
            self._fail(f"refused: {error.message}")
            raise
        self._session_open = True
        self._desk.registry.attached(self._session, self)
        self._enter(Phase.ATTACHED)
        self._log.info("session_attached")
        return wire.session_grant(reservation, self._session, self._desk.policy)

    async def _memory(self, message: m.MemoryRequest) -> m.MemoryReply:
        assert self._reservation is not None
        assert self._session is not None
        try:
            answer = self._desk.pool.request_memory(
                self._reservation, self._session, message.device, message.delta
            )
        except (InvalidRequest, NotFound) as error:
            raise Violation(f"MemoryRequest: {error.message}") from error
        return m.MemoryReply(answer.granted, answer.used, answer.limit)

    # ------------------------------------------------------------------ mechanics

    def _server(self) -> str:
        """Where clients are told to connect."""
        if self._desk.policy.server:
            return self._desk.policy.server
        address = self._local_address or self._desk.policy.hosts[0]
        host = f"[{address}]" if ":" in address else address
        return f"{host}:{self._desk.policy.port}"

    def _enter(self, phase: Phase, seconds: float | None = None) -> None:
        """Go on to a phase, in which the next step must follow within `seconds`."""
        self._phase = phase
        assert self._deadline is not None
        now = asyncio.get_running_loop().time()
        self._deadline.reschedule(now + seconds if seconds is not None else None)

    def _fail(self, reason: str, kind: str = "broker") -> None:
        """Log why this connection ends: one line, the first cause; what follows from it is not
        worth another."""
        log = self._log.debug if self._failure_logged else self._log.warning
        log("connection_failed", kind=kind, reason=reason, phase=self._phase)
        self._explain()

    def _explain(self) -> None:
        """The log says why this connection ends, or will; nobody need say it again."""
        self._failure_logged = True
        self._desk.workers.explained(self._pid)

    def _without_address(self, text: str) -> str:
        """A worker's text may quote its peer's address; the log must not."""
        if not self._peer_address:
            return text
        return text.replace(
            self._peer_address, self._desk.pseudonyms.of(Kind.ADDRESS, self._peer_address)
        )

    def _write(self, frame: Frame) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame.encode())

    async def _wind_up(self) -> None:
        """Give back whatever this connection held."""
        self._writer.close()
        self._desk.workers.disconnected(self._pid)
        if self._session_open:
            assert self._reservation is not None
            assert self._session is not None
            try:
                await self._desk.workers.finish(self._pid, self._desk.policy.stop_seconds)
            finally:
                self._desk.pool.close_session(self._reservation, self._session)
                self._desk.registry.detached(self._session)
                self._log.info("session_detached")
        elif self._phase is Phase.AGENT and self._reservation:
            self._desk.registry.end_reservation(self._reservation, EndReason.HOLDER_GONE)


_HANDLERS: dict[type[Message], Handler] = {
    m.Ping: WorkerConnection._ping,
    m.Pong: WorkerConnection._pong,
    m.WorkerReport: WorkerConnection._report,
    m.WorkerHello: WorkerConnection._hello,
    m.PeerCheck: WorkerConnection._peer_check,
    m.ListRequest: WorkerConnection._list,
    m.ReserveRequest: WorkerConnection._reserve,
    m.ReleaseRequest: WorkerConnection._release,
    m.StatusRequest: WorkerConnection._status,
    m.SessionRequest: WorkerConnection._session_request,
    m.MemoryRequest: WorkerConnection._memory,
}


def _remaining(reservation: Reservation, now: float) -> timedelta:
    """A session certificate lives as long as its reservation may, in whole seconds."""
    return timedelta(seconds=max(1, int(reservation.expires - now)))
