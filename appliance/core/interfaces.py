"""Where the domain meets the world: the parts of the appliance implement these, and find each
other through them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from appliance.core.gpu import Gpu
from appliance.core.ids import ReservationId, WorkerPid
from appliance.core.reservation import Reservation

Clock = Callable[[], float]
"""Seconds since 1970, as certificates and people count."""


class Inventory(Protocol):
    """Finds the GPUs of this appliance."""

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs that can be lent."""
        ...


class ReservationStore(Protocol):
    """Keeps reservations that have not ended."""

    def put(self, reservation: Reservation) -> None:
        """Add or replace; one that has ended is forgotten."""
        ...

    def get(self, reservation: ReservationId) -> Reservation | None:
        """The reservation, unless it has ended or never was."""
        ...

    def all(self) -> Iterable[Reservation]:
        """All that have not ended."""
        ...


class Workers(Protocol):
    """The worker processes, for who must know when one is trusted, and when it is gone."""

    def local_address(self, pid: WorkerPid) -> str | None:
        """The address of this appliance at which the worker's peer came in, if known."""
        ...

    def connected(self, pid: WorkerPid) -> None:
        """The worker speaks to the broker."""
        ...

    def disconnected(self, pid: WorkerPid) -> None:
        """All that the worker had to say to the broker is read."""
        ...

    def authenticated(self, pid: WorkerPid) -> None:
        """The worker's peer has shown a certificate that is accepted."""
        ...

    def explained(self, pid: WorkerPid) -> None:
        """The log has a line that says why the worker's connection ended."""
        ...

    async def finish(self, pid: WorkerPid, grace_seconds: float) -> None:
        """Return when the worker is gone; kill it after the grace. Unknown ones are gone."""
        ...
