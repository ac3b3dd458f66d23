"""A reservation and its states.

    HELD ──▶ ENDING ──▶ ENDED
       └─────────────────▲      (no session was open)

HELD: sessions may attach. ENDING: its sessions were told to end, none may attach; the slices are
taken until the last worker is gone, since only then the memory is really free. ENDED: final.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from appliance.core.account import MemoryAccount
from appliance.core.gpu import Slice
from appliance.core.ids import ReservationId


class ReservationState(StrEnum):
    """Where a reservation is in its life."""

    HELD = "held"
    ENDING = "ending"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a reservation ended."""

    RELEASED = "released by its holder"
    HOLDER_GONE = "its holder is gone"
    EXPIRED = "its time is over"
    ADMINISTRATOR = "ended by the administrator"
    SHUTDOWN = "the appliance is shutting down"


_NEXT: dict[ReservationState, frozenset[ReservationState]] = {
    ReservationState.HELD: frozenset({ReservationState.ENDING, ReservationState.ENDED}),
    ReservationState.ENDING: frozenset({ReservationState.ENDED}),
    ReservationState.ENDED: frozenset(),
}


@dataclass(frozen=True)
class Holder:
    """Who holds a reservation. Names: never for a log line."""

    client: str
    user: str
    host: str


@dataclass(frozen=True)
class Reservation:
    """The lease of n slices to one principal."""

    id: ReservationId
    holder: Holder
    slices: tuple[Slice, ...]
    started: float
    expires: float
    account: MemoryAccount = field(compare=False, repr=False)
    state: ReservationState = ReservationState.HELD
    end_reason: EndReason | None = None

    def moved_to(self, state: ReservationState, reason: EndReason | None = None) -> Reservation:
        """The reservation in its next state; a step that the drawing above lacks is a bug."""
        if state not in _NEXT[self.state]:
            raise ValueError(f"reservation {self.id} cannot go from {self.state} to {state}")
        return replace(self, state=state, end_reason=reason or self.end_reason)
