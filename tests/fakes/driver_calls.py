"""A few driver calls as frames, for tests that talk to a worker without the client library."""

from __future__ import annotations

import struct
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.data_client import FIRST_CALL, MORE, DataClient, frame

ROOT = Path(__file__).resolve().parents[2]
CONTEXT, STREAM, EVENT, MODULE, FUNCTION, ARRAY, BLOB = 1, 2, 3, 4, 5, 12, 15


def _ids() -> dict[str, int]:
    with (ROOT / "remoting/apispec/ids.toml").open("rb") as file:
        document = tomllib.load(file)
    table = document.get("ids", document)
    return {name: int(number) for name, number in table.items() if isinstance(number, int)}


IDS = _ids()


def call_type(name: str) -> int:
    """The frame type of a driver function."""
    return FIRST_CALL + IDS[name]


def handle(kind: int, serial: int = 1) -> int:
    """A handle as a client makes it (PROTOCOL.md section 7.3)."""
    return kind << 40 | serial


@dataclass
class Reply:
    """The final frame of a trip."""

    result: int
    deferred: int
    sticky: int
    fields: bytes
    data: bytes = b""


def trip(client: DataClient, name: str, payload: bytes = b"") -> Reply:
    """A call that is awaited, with what came in frames before its last."""
    client.send_raw(frame(call_type(name), payload, call=77))
    data = b""
    while (got := client.receive()).flags & MORE:
        data += got.payload
    assert (got.type, got.call) == (call_type(name), 77), got
    return Reply(*struct.unpack_from("<iiB", got.payload), got.payload[9:], data)


def send(client: DataClient, name: str, payload: bytes = b"") -> None:
    """A call that nobody awaits."""
    client.send_raw(frame(call_type(name), payload))


def enter_context(client: DataClient, device: int = 0, serial: int = 1) -> int:
    """Retain a device's primary context and make it the one that later calls mean."""
    context = handle(CONTEXT, serial)
    assert trip(client, "cuDevicePrimaryCtxRetain", struct.pack("<Qi", context, device)).result == 0
    client.send_raw(frame(0x0022, struct.pack("<Q", context)))
    return context


def allocate(client: DataClient, size: int) -> tuple[int, int]:
    """Result and address of an allocation."""
    reply = trip(client, "cuMemAlloc_v2", struct.pack("<Q", size))
    address = struct.unpack("<Q", reply.fields)[0] if reply.result == 0 else 0
    return reply.result, address


def upload(client: DataClient, address: int, data: bytes, stream: int = 0) -> None:
    """Copy to the device, at most one frame."""
    payload = struct.pack("<QI", address, len(data)) + data + struct.pack("<Q", stream)
    send(client, "cuMemcpyHtoDAsync_v2", payload)


def download(client: DataClient, address: int, size: int, stream: int = 0) -> Reply:
    """Copy to the host."""
    return trip(client, "cuMemcpyDtoHAsync_v2", struct.pack("<QQQ", address, size, stream))
