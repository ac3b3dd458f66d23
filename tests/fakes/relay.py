"""A relay between client and data port that records what passes, and a reader of TLS records.

What a tap on the wire would see, without the rights that a tap needs.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

CHANGE_CIPHER_SPEC, ALERT, HANDSHAKE, APPLICATION_DATA = 20, 21, 22, 23
CLIENT_HELLO, SERVER_HELLO = 1, 2
SUPPORTED_VERSIONS = 43
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
_RECORD = struct.Struct(">BHH")


@dataclass
class Recorded:
    """One connection: what each side sent, and how much the server had sent when."""

    from_client: bytearray = field(default_factory=bytearray)
    from_server: bytearray = field(default_factory=bytearray)
    chunks: list[tuple[str, bytes]] = field(default_factory=list)


class Relay:
    """Listens on one address, forwards to another. A context manager."""

    def __init__(self, listen: tuple[str, int], target: tuple[str, int]) -> None:
        self._listen = listen
        self._target = target
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.connections: list[Recorded] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server(self._listen)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.finish()

    def finish(self) -> None:
        """Wait until every connection so far has ended."""
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a connection does not end"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            recorded = Recorded()
            self.connections.append(recorded)
            thread = threading.Thread(target=self._serve, args=(client, recorded))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket, recorded: Recorded) -> None:
        with client, socket.create_connection(self._target) as server:
            back = threading.Thread(
                target=self._copy, args=(server, client, recorded, "server", recorded.from_server)
            )
            back.start()
            self._copy(client, server, recorded, "client", recorded.from_client)
            back.join()

    def _copy(
        self,
        source: socket.socket,
        sink: socket.socket,
        recorded: Recorded,
        who: str,
        kept: bytearray,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with self._lock:
                    kept += data
                    recorded.chunks.append((who, data))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Record(NamedTuple):
    """One TLS record."""

    kind: int
    version: int
    body: bytes


def records(data: bytes) -> list[Record]:
    """All records of one direction; there must be nothing else, and nothing broken off."""
    found = []
    at = 0
    while at < len(data):
        kind, version, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        assert at + size <= len(data), "a record is broken off"
        found.append(Record(kind, version, data[at : at + size]))
        at += size
    return found


def supported_versions(hello: Record) -> list[int]:
    """The TLS versions that a ClientHello offers, or the one that a ServerHello chose."""
    assert hello.kind == HANDSHAKE
    message, body = hello.body[0], hello.body[4:]
    assert message in (CLIENT_HELLO, SERVER_HELLO)
    at = 2 + 32  # legacy version, random
    at += 1 + body[at]  # session id
    if message == CLIENT_HELLO:
        at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
        at += 1 + body[at]  # compression methods
    else:
        at += 3  # cipher suite, compression method
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    at += 2
    while at < end:
        kind, size = struct.unpack_from(">HH", body, at)
        value = body[at + 4 : at + 4 + size]
        at += 4 + size
        if kind == SUPPORTED_VERSIONS:
            value = value[1:] if message == CLIENT_HELLO else value
            return [int.from_bytes(value[i : i + 2], "big") for i in range(0, len(value), 2)]
    return []
