"""Frames between a client and the compile helper (README.md has the contract).

A frame is: header length (u32 LE), attachment length (u32 LE), header (a JSON object), attachment.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, Protocol

PROTOCOL = 1
HEADER_LIMIT = 64 << 20  # a module of a framework lists tens of thousands of parameters
ATTACHMENT_LIMIT = 512 << 20
_LENGTHS = struct.Struct("<II")


class BadFrame(Exception):
    """The peer sent something that is no frame; the connection must end."""


class ByteSource(Protocol):
    """What frames are read from: asyncio.StreamReader has this shape."""

    async def readexactly(self, n: int, /) -> bytes:
        """Return exactly n bytes or raise asyncio.IncompleteReadError."""
        ...


@dataclass(frozen=True)
class Frame:
    """One request or reply."""

    header: dict[str, Any]
    attachment: bytes = field(default=b"", repr=False)


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    header = json.dumps(frame.header, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(header), len(frame.attachment)) + header + frame.attachment


def decode_header(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a frame or raise BadFrame."""
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"the header is no JSON: {error}") from None
    if not isinstance(header, dict):
        raise BadFrame("the header is no JSON object")
    return header


async def read_frame(source: ByteSource) -> Frame:
    """Read one frame; raises BadFrame, or IncompleteReadError at the end of the stream."""
    header_bytes, attachment_bytes = _LENGTHS.unpack(await source.readexactly(_LENGTHS.size))
    if header_bytes > HEADER_LIMIT or attachment_bytes > ATTACHMENT_LIMIT:
        raise BadFrame(f"lengths out of bounds: {header_bytes}, {attachment_bytes}")
    header = decode_header(await source.readexactly(header_bytes))
    attachment = await source.readexactly(attachment_bytes) if attachment_bytes else b""
    return Frame(header, attachment)
