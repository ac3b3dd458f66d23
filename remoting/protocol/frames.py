"""Frames of the data protocol, for Python (PROTOCOL.md §2). The same bytes run on both sockets."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

HEADER_SIZE = 16
MAX_PAYLOAD = 1_048_576
MAX_PAYLOAD_BEFORE_WELCOME = 65_536

REPLY = 1
MORE = 2
COMPRESSED = 4  # reserved

_HEADER = struct.Struct("<IHHII")
_KNOWN_FLAGS = REPLY | MORE


class FrameError(Exception):
    """Bytes that are no frame; the connection ends, and the text says why."""


@dataclass(frozen=True)
class Frame:
    """One frame: `call` 0 awaits nothing, another number awaits (or is) the reply to it."""

    type: int
    payload: bytes = b""
    flags: int = 0
    call: int = 0

    def encode(self) -> bytes:
        """Header and payload."""
        return _HEADER.pack(len(self.payload), self.type, self.flags, self.call, 0) + self.payload


@dataclass(frozen=True)
class FrameHeader:
    """The checked header of a frame whose payload is still to come."""

    length: int
    type: int
    flags: int
    call: int

    @classmethod
    def decode(cls, header: bytes, max_payload: int) -> FrameHeader:
        """Check a header's 16 bytes, or raise FrameError."""
        length, kind, flags, call, ack = _HEADER.unpack(header)
        if length > max_payload:
            raise FrameError(f"frame of {length} bytes, at most {max_payload} are permitted")
        if flags & ~_KNOWN_FLAGS:
            raise FrameError(f"frame with unknown flags {flags:#06x}")
        if ack:
            raise FrameError("frame with a non-zero ack")
        return cls(length, kind, flags, call)


async def read_frame(reader: asyncio.StreamReader, max_payload: int) -> Frame | None:
    """The next frame, or None at a clean end. FrameError on anything else, truncation included."""
    try:
        head = await reader.readexactly(HEADER_SIZE)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise FrameError("the stream ended inside a frame's header") from error
        return None
    header = FrameHeader.decode(head, max_payload)
    try:
        payload = await reader.readexactly(header.length)
    except asyncio.IncompleteReadError as error:
        raise FrameError("the stream ended inside a frame") from error
    return Frame(header.type, payload, header.flags, header.call)
