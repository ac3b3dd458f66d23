"""A client of the data port for tests: TLS by Python's ssl, frames and messages by our codec."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from remoting.protocol.codec import Message
from remoting.protocol.gen import messages as m

HEADER = struct.Struct("<IHHII")
REPLY, MORE = 1, 2
FIRST_CALL = 0x1000
ALPN = "headrace/1"
ROLE_AGENT, ROLE_SESSION = 1, 2

M = TypeVar("M", bound=Message)


class Frame(NamedTuple):
    """A frame as it came."""

    type: int
    flags: int
    call: int
    payload: bytes


class ConnectionEnded(Exception):
    """The server has closed; the text says how."""


def frame(kind: int, payload: bytes = b"", flags: int = 0, call: int = 0, ack: int = 0) -> bytes:
    """The bytes of a frame."""
    return HEADER.pack(len(payload), kind, flags, call, ack) + payload


def tls_context(
    trust: bytes, certificate: Path | None, key: Path | None, alpn: str | None = ALPN
) -> ssl.SSLContext:
    """A client's TLS settings; without a certificate where none is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=trust.decode())
    if certificate is not None and key is not None:
        context.load_cert_chain(certificate, key)
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    return context


class DataClient:
    """One connection. Blocking, with a timeout on everything."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._next_call = 1

    @classmethod
    def connect(
        cls, address: tuple[str, int], context: ssl.SSLContext, timeout: float = 20.0
    ) -> Self:
        """Connect and shake hands."""
        plain = socket.create_connection(address, timeout)
        try:
            return cls(context.wrap_socket(plain, server_hostname=address[0]))
        except BaseException:
            plain.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, message: Message, call: int = 0, flags: int = 0) -> None:
        """Send a message."""
        self.send_raw(frame(message.TYPE, message.encode(), flags, call))

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def receive(self) -> Frame:
        """The next frame; ConnectionEnded when there is none."""
        size, kind, flags, call, _ = HEADER.unpack(self._exactly(HEADER.size))
        return Frame(kind, flags, call, self._exactly(size))

    def ask(self, message: Message, want: type[M]) -> M:
        """Send a request and decode the answer, which must be of the wanted type."""
        reply = self.request(message)
        if reply.type == m.Refuse.TYPE:
            raise AssertionError(f"refused: {m.Refuse.decode(reply.payload)}")
        assert reply.type == want.TYPE, reply
        return want.decode(reply.payload)

    def request(self, message: Message) -> Frame:
        """Send a request; the answer as a frame."""
        return self.request_raw(message.TYPE, message.encode())

    def request_raw(self, kind: int, payload: bytes) -> Frame:
        """The same with a payload of the caller's making."""
        call = self._next_call
        self._next_call += 1
        self.send_raw(frame(kind, payload, call=call))
        reply = self.receive()
        assert (reply.call, reply.flags & REPLY) == (call, REPLY), reply
        return reply

    def hello(self, role: int) -> m.Welcome:
        """Open the conversation."""
        return self.ask(
            m.Hello(min_version=1, max_version=1, features=0, role=role, build="test"), m.Welcome
        )

    def attach(self) -> m.Attached:
        """Hello as a session, then Attach."""
        self.hello(ROLE_SESSION)
        return self.ask(m.Attach(process=1, program="test"), m.Attached)

    def closing(self) -> m.Close:
        """Read until the server's Close, and check that nothing comes after it."""
        while (got := self.receive()).type != m.Close.TYPE:
            pass
        close = m.Close.decode(got.payload)
        try:
            extra = self.receive()
        except ConnectionEnded:
            return close
        raise AssertionError(f"a frame after Close: {extra}")

    def say_done(self) -> None:
        """End this direction as TLS wants it, and read whatever still comes."""
        self.socket.settimeout(20.0)
        with contextlib.suppress(OSError):  # the server may have closed without waiting for ours
            self.socket = (
                self.socket.unwrap() if isinstance(self.socket, ssl.SSLSocket) else self.socket
            )

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except (ConnectionError, ssl.SSLError) as error:
                raise ConnectionEnded(str(error)) from error
            if not part:
                raise ConnectionEnded("closed")
            data += part
        return data
