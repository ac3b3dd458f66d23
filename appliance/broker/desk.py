"""What every worker's connection needs: the domain, the CA, and its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from structlog.typing import FilteringBoundLogger

from appliance.broker.policy import GrantPolicy
from appliance.core.ids import ReservationId, SessionId
from appliance.core.interfaces import Clock, Workers
from appliance.core.pool import Pool
from appliance.core.reservation import EndReason, Reservation
from security.identity import Pseudonyms
from security.pki import CertificateAuthority


class Endable(Protocol):
    """A worker's connection, for whoever ends what it holds."""

    def tell_to_end(self, code: int, text: str) -> None:
        """Ask the worker to end; it is killed if it does not."""
        ...


class Registry(Protocol):
    """Who holds which reservation, and which worker serves which session."""

    def granted(self, reservation: Reservation, holder: Endable) -> None:
        """A reservation began; it ends with its time, or with its holder."""
        ...

    def attached(self, session: SessionId, worker: Endable) -> None:
        """A session began."""
        ...

    def detached(self, session: SessionId) -> None:
        """A session's worker is gone."""
        ...

    def end_reservation(self, reservation: ReservationId, reason: EndReason) -> None:
        """End a reservation and the sessions of it."""
        ...


@dataclass(frozen=True)
class Desk:
    """Handed to every connection."""

    pool: Pool
    authority: CertificateAuthority
    pseudonyms: Pseudonyms
    workers: Workers
    registry: Registry
    policy: GrantPolicy
    clock: Clock
    log: FilteringBoundLogger
