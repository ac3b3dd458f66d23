"""One type per id, so that a session's id is never passed where a reservation's is wanted."""

from __future__ import annotations

import hashlib
import secrets
from typing import NewType

GpuId = NewType("GpuId", str)
"""What NVML calls the device, `GPU-…` or `MIG-…`. For the administrator and the worker only."""

ReservationId = NewType("ReservationId", str)
"""`r-` and 80 random bits: it names nobody, so it may appear in logs."""

SessionId = NewType("SessionId", str)
"""`s-` and 80 random bits."""

SliceUuid = NewType("SliceUuid", bytes)
"""The 16 bytes that a program sees as the UUID of its GPU."""

WorkerPid = NewType("WorkerPid", int)
"""A worker's process id as the kernel says it."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LETTERS = 16


def new_reservation_id() -> ReservationId:
    """A new id that was never used before."""
    return ReservationId("r-" + _random_letters())


def new_session_id() -> SessionId:
    """A new id that was never used before."""
    return SessionId("s-" + _random_letters())


def slice_uuid(reservation: ReservationId, index: int) -> SliceUuid:
    """The UUID of a reservation's slice: the same in all its sessions, and not the GPU's own."""
    digest = hashlib.sha256(f"headrace slice {reservation} {index}".encode()).digest()
    octets = bytearray(digest[:16])
    octets[6] = octets[6] & 0x0F | 0x80  # version 8 (RFC 9562): made by a rule of our own
    octets[8] = octets[8] & 0x3F | 0x80
    return SliceUuid(bytes(octets))


def _random_letters() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_LETTERS))
