"""A relay in front of the data port that keeps what goes over the wire, as TLS records."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
CLIENT_HELLO, SERVER_HELLO = 1, 2
SUPPORTED_VERSIONS, TLS_1_3 = 43, b"\x03\x04"


class Record(NamedTuple):
    """One TLS record: its type, the version in its header, its bytes."""

    type: int
    version: bytes
    body: bytes


def records(data: bytes) -> list[Record]:
    """Cut a direction of a connection into records. Bytes that are none raise ValueError."""
    found = []
    at = 0
    while at < len(data):
        kind, version = data[at], data[at + 1 : at + 3]
        size = int.from_bytes(data[at + 3 : at + 5], "big")
        if kind not in (CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA):
            raise ValueError(f"no TLS record at byte {at}: {data[at : at + 16].hex()}")
        if version not in (b"\x03\x01", b"\x03\x03") or size > 16_384 + 256:
            raise ValueError(f"no TLS 1.3 record at byte {at}: {data[at : at + 16].hex()}")
        if len(data) - at < 5 + size:
            break  # cut off at the end of the connection
        found.append(Record(kind, version, data[at + 5 : at + 5 + size]))
        at += 5 + size
    return found


def hello_extensions(record: Record, kind: int) -> dict[int, bytes]:
    """The extensions of a ClientHello or ServerHello."""
    body = record.body
    if record.type != HANDSHAKE or body[0] != kind:
        raise ValueError(f"no hello of kind {kind}: {body[:8].hex()}")
    at = 4 + 2 + 32
    at += 1 + body[at]  # session id
    if kind == CLIENT_HELLO:
        at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
        at += 1 + body[at]  # compression methods
    else:
        at += 2 + 1
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    at += 2
    found = {}
    while at < end:
        name, size = (int.from_bytes(body[at + i : at + i + 2], "big") for i in (0, 2))
        found[name] = body[at + 4 : at + 4 + size]
        at += 4 + size
    return found


@dataclass
class Direction:
    """What one side sent on one connection."""

    data: bytearray = field(default_factory=bytearray)


@dataclass
class WireTap:
    """A context manager; `address` is where to connect instead of `target`."""

    target: tuple[str, int]
    connections: list[tuple[Direction, Direction]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._threads:
            self._threads.pop(0).join()
        for end in self._sockets:
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            pair = (Direction(), Direction())
            self.connections.append(pair)
            self._sockets += (client, server)
            for source, sink, direction in ((client, server, pair[0]), (server, client, pair[1])):
                thread = threading.Thread(target=self._relay, args=(source, sink, direction))
                thread.start()
                self._threads.append(thread)

    @staticmethod
    def _relay(source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                direction.data += data
                sink.sendall(data)
        for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
            with contextlib.suppress(OSError):
                end.shutdown(how)
