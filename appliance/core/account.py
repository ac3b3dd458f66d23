"""The memory account of one reservation: what its sessions hold on each of its slices.

Exact: every session's share is known, cannot become negative, and is given back whole when the
session ends. One context per slice has its room beside the slice (see Slice.footprint); every
further session's context is paid for from the slice, so that any number of processes together
never take more from the GPU than the reservation's footprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core.errors import InvalidRequest, NotEnough, NotFound
from appliance.core.ids import SessionId
from appliance.core.sizes import format_size


@dataclass(frozen=True)
class Answer:
    """The answer to one memory request."""

    granted: bool
    used: int
    limit: int


@dataclass(frozen=True)
class Process:
    """The program behind a session, as it named itself. For its holder, never for a log line."""

    pid: int
    program: str


class MemoryAccount:
    """Not thread-safe: it lives in the daemon's one event loop."""

    def __init__(self, limits: Sequence[int], context_overheads: Sequence[int]) -> None:
        self._limits = tuple(limits)
        self._overheads = tuple(context_overheads)
        self._shares: dict[SessionId, list[int]] = {}
        self._processes: dict[SessionId, Process] = {}

    @property
    def sessions(self) -> tuple[SessionId, ...]:
        """Sessions that are open."""
        return tuple(self._shares)

    def used(self, device: int) -> int:
        """Bytes of a slice that are taken: shares, and contexts after the first."""
        shares = sum(share[device] for share in self._shares.values())
        return shares + max(0, len(self._shares) - 1) * self._overheads[device]

    def holders(self, device: int) -> tuple[tuple[Process, int], ...]:
        """The processes that hold memory of a slice, and how much."""
        return tuple(
            (self._processes[session], share[device])
            for session, share in self._shares.items()
            if share[device] and session in self._processes
        )

    def open_session(self, session: SessionId, process: Process | None = None) -> None:
        """Admit a session; NotEnough if its context does not fit beside what is held."""
        if session in self._shares:
            raise InvalidRequest(f"session {session} is open already")
        if self._shares:
            for device, limit in enumerate(self._limits):
                free = limit - self.used(device)
                if self._overheads[device] > free:
                    raise NotEnough(
                        f"no room for another process's context on device {device}: "
                        f"{format_size(self._overheads[device])} needed, {format_size(free)} free",
                        hint="reserve more memory with -m",
                    )
        self._shares[session] = [0] * len(self._limits)
        if process:
            self._processes[session] = process

    def close_session(self, session: SessionId) -> None:
        """Give back all that a session held. Closing twice is harmless."""
        self._shares.pop(session, None)
        self._processes.pop(session, None)

    def request(self, session: SessionId, device: int, delta: int) -> Answer:
        """Take memory, or give it back with a negative delta.

        A request that would exceed the slice is answered with `granted` false. Giving back more
        than is held, or naming a device that is not there, is InvalidRequest: the worker is wrong.
        """
        share = self._shares.get(session)
        if share is None:
            raise NotFound(f"session {session} is not open")
        if not 0 <= device < len(self._limits):
            raise InvalidRequest(f"device {device} of {len(self._limits)}")
        if share[device] + delta < 0:
            raise InvalidRequest(f"gives back {-delta} bytes and holds {share[device]}")
        limit = self._limits[device]
        granted = delta <= 0 or self.used(device) + delta <= limit
        if granted:
            share[device] += delta
        return Answer(granted, self.used(device), limit)
