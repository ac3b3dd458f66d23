"""Which GPUs a reservation gets: best fit by free memory, never more than there is.

Best fit, because a large hole is worth more than two small ones: a request for a whole GPU can
only be served by a hole that nobody nibbled at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.core.errors import InvalidRequest, NotEnough
from appliance.core.gpu import Gpu, GpuState
from appliance.core.sizes import format_size, round_up

MAX_SLICES = 64
_MAX_MEMORY = 1 << 50


@dataclass(frozen=True)
class Room:
    """A GPU with what is free on it now."""

    gpu: Gpu
    free_bytes: int
    """Not taken by slices. A new slice needs its memory and room for a context of it."""
    slices: int

    @property
    def largest_slice(self) -> int:
        """What a new slice could have."""
        if self.gpu.state is not GpuState.READY:
            return 0
        return max(0, self.free_bytes - self.gpu.context_overhead_bytes)


@dataclass(frozen=True)
class Demand:
    """What somebody asks for."""

    count: int
    memory_bytes: int
    """Per slice; 0 is a whole GPU."""
    compute_percent: int = 0
    """Per slice; 0 leaves it to the policy."""


@dataclass(frozen=True)
class Place:
    """One slice-to-be."""

    gpu: Gpu
    memory_bytes: int


def place(demand: Demand, rooms: Sequence[Room]) -> tuple[Place, ...]:
    """Choose `count` different GPUs, or raise NotEnough and say what is free."""
    _check(demand)
    if demand.memory_bytes == 0:
        fitting = [room for room in rooms if room.slices == 0 and room.largest_slice > 0]
    else:
        wanted = round_up(demand.memory_bytes)
        fitting = [room for room in rooms if room.largest_slice >= wanted]
    if len(fitting) < demand.count:
        raise _not_enough(demand, rooms)
    # Ties are broken by id, so that the same state and demand always give the same answer.
    fitting.sort(key=lambda room: (room.largest_slice, room.gpu.id))
    return tuple(
        Place(room.gpu, round_up(demand.memory_bytes) or room.gpu.largest_slice)
        for room in fitting[: demand.count]
    )


def _check(demand: Demand) -> None:
    if not 1 <= demand.count <= MAX_SLICES:
        raise InvalidRequest(f"count is {demand.count}; 1 to {MAX_SLICES} GPUs can be asked for")
    if not 0 <= demand.memory_bytes <= _MAX_MEMORY:
        raise InvalidRequest(f"memory_bytes is {demand.memory_bytes}, more than any GPU has")
    if not 0 <= demand.compute_percent <= 100:
        raise InvalidRequest(f"compute_percent is {demand.compute_percent}; it is a per cent value")


def _not_enough(demand: Demand, rooms: Sequence[Room]) -> NotEnough:
    if not rooms:
        return NotEnough("this appliance has no GPU", hint="headrace list")
    free = sorted((room.largest_slice for room in rooms), reverse=True)
    each = "a whole GPU" if demand.memory_bytes == 0 else format_size(demand.memory_bytes)
    idle = sum(1 for room in rooms if room.slices == 0 and room.largest_slice > 0)
    shown = ", ".join(format_size(size) for size in free[:8]) + (", …" if len(free) > 8 else "")
    message = (
        f"{demand.count} × {each} wanted on different GPUs; "
        f"{len(rooms)} GPU{'s' if len(rooms) != 1 else ''} with {shown} free, {idle} idle"
    )
    if demand.count > len(rooms):
        return NotEnough(message, hint=f"ask for at most {len(rooms)} GPUs with -n")
    if (best := free[demand.count - 1]) > 0:
        return NotEnough(message, hint=f"ask for at most {format_size(best)} with -m, or wait")
    return NotEnough(message, hint="wait until a reservation ends: headrace list")
