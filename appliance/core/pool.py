"""The pool: its GPUs, who holds what of them, and the rule that no byte is promised twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from appliance.core.account import Answer, MemoryAccount, Process
from appliance.core.errors import Busy, NotFound, NotPermitted
from appliance.core.gpu import Gpu, Slice, slice_pci
from appliance.core.ids import (
    ReservationId,
    SessionId,
    new_reservation_id,
    slice_uuid,
)
from appliance.core.interfaces import Clock, ReservationStore
from appliance.core.placement import Demand, Room, place
from appliance.core.reservation import EndReason, Holder, Reservation, ReservationState

WHOLE = 100
"""The compute share of a slice for which nobody asked for less."""


class MemoryStore:
    """Reservations in memory: they end with the daemon."""

    def __init__(self) -> None:
        self._reservations: dict[ReservationId, Reservation] = {}

    def put(self, reservation: Reservation) -> None:
        """Add or replace; one that has ended is forgotten."""
        if reservation.state is ReservationState.ENDED:
            self._reservations.pop(reservation.id, None)
        else:
            self._reservations[reservation.id] = reservation

    def get(self, reservation: ReservationId) -> Reservation | None:
        """The reservation, unless it has ended or never was."""
        return self._reservations.get(reservation)

    def all(self) -> Iterable[Reservation]:
        """All that have not ended."""
        return tuple(self._reservations.values())


class Pool:
    """Grants and ends reservations and sessions. Not thread-safe: one event loop owns it."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        store: ReservationStore,
        clock: Clock,
        *,
        reservation_seconds: float,
        max_sessions: int,
    ) -> None:
        self._gpus = tuple(gpus)
        self._store = store
        self._clock = clock
        self._reservation_seconds = reservation_seconds
        self._max_sessions = max_sessions

    def rooms(self) -> tuple[Room, ...]:
        """Every GPU with what is free on it."""
        slices = [s for reservation in self._store.all() for s in reservation.slices]
        rooms = []
        for gpu in self._gpus:
            mine = [s.footprint for s in slices if s.gpu.id == gpu.id]
            rooms.append(Room(gpu, gpu.memory_bytes - sum(mine), len(mine)))
        return tuple(rooms)

    def reserve(self, holder: Holder, demand: Demand) -> Reservation:
        """Grant a reservation, or raise NotEnough or InvalidRequest."""
        places = place(demand, self.rooms())
        identifier = new_reservation_id()
        slices = tuple(
            Slice(
                index=index,
                gpu=spot.gpu,
                uuid=slice_uuid(identifier, index),
                pci=slice_pci(index),
                memory_bytes=spot.memory_bytes,
                compute_percent=demand.compute_percent or WHOLE,
            )
            for index, spot in enumerate(places)
        )
        now = self._clock()
        reservation = Reservation(
            id=identifier,
            holder=holder,
            slices=slices,
            started=now,
            expires=now + self._reservation_seconds,
            account=MemoryAccount(
                [s.memory_bytes for s in slices], [s.gpu.context_overhead_bytes for s in slices]
            ),
        )
        self._store.put(reservation)
        return reservation

    def alive(self, identifier: ReservationId) -> Reservation:
        """A reservation that sessions may attach to, or NotPermitted."""
        reservation = self._store.get(identifier)
        if reservation is None or reservation.state is not ReservationState.HELD:
            raise NotPermitted(
                f"reservation {identifier} is over", hint="reserve again: headrace run …"
            )
        return reservation

    def end(self, identifier: ReservationId, reason: EndReason) -> tuple[SessionId, ...]:
        """Begin the end; the sessions that must be ended now are returned.

        Ending what is ending already, or has ended, changes nothing and returns nothing.
        """
        reservation = self._store.get(identifier)
        if reservation is None or reservation.state is not ReservationState.HELD:
            return ()
        sessions = reservation.account.sessions
        state = ReservationState.ENDING if sessions else ReservationState.ENDED
        self._store.put(reservation.moved_to(state, reason))
        return sessions

    def open_session(
        self, identifier: ReservationId, session: SessionId, process: Process | None = None
    ) -> Reservation:
        """Attach one more process to a reservation."""
        reservation = self.alive(identifier)
        if len(reservation.account.sessions) >= self._max_sessions:
            raise Busy(f"reservation {identifier} has {self._max_sessions} sessions already")
        reservation.account.open_session(session, process)
        return reservation

    def close_session(self, identifier: ReservationId, session: SessionId) -> None:
        """The session's worker is gone: what it held is free again."""
        reservation = self._store.get(identifier)
        if reservation is None:
            return
        reservation.account.close_session(session)
        if reservation.state is ReservationState.ENDING and not reservation.account.sessions:
            self._store.put(reservation.moved_to(ReservationState.ENDED))

    def request_memory(
        self, identifier: ReservationId, session: SessionId, device: int, delta: int
    ) -> Answer:
        """Account memory of a session; while a reservation ends it can only be given back."""
        reservation = self._store.get(identifier)
        if reservation is None:
            raise NotFound(f"no reservation {identifier}")
        if delta > 0 and reservation.state is not ReservationState.HELD:
            answer = reservation.account.request(session, device, 0)
            return Answer(granted=False, used=answer.used, limit=answer.limit)
        return reservation.account.request(session, device, delta)

    def reservations(self) -> tuple[Reservation, ...]:
        """All that have not ended."""
        return tuple(self._store.all())
