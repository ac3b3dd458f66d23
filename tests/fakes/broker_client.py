"""What a worker says to the daemon, spoken by a test."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Self, TypeVar

from remoting.protocol.codec import Message
from remoting.protocol.frames import MAX_PAYLOAD, REPLY, Frame, read_frame
from remoting.protocol.gen import messages as m
from security.pki import CertificateAuthority, SessionIdentity, make_key, public_der

M = TypeVar("M", bound=Message)


class BrokerClient:
    """A connection to the broker, through the Unix socket or a relaying worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._call = 0

    @classmethod
    async def connect(cls, path: Path) -> Self:
        """Through the Unix socket: the worker is this process."""
        return cls(*await asyncio.open_unix_connection(path))

    @classmethod
    async def through_worker(cls, port: int, command: str = "relay") -> Self:
        """Through tests/fakes/worker.py, which the spawner starts."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(command.encode() + b"\n")
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def send(self, message: Message, call: int = 0, flags: int = 0) -> None:
        """Send without awaiting anything."""
        self.writer.write(Frame(message.TYPE, message.encode(), flags, call).encode())
        await self.writer.drain()

    async def ask(self, message: Message, want: type[M]) -> M:
        """Send, and take the answer, which must be of the wanted kind."""
        self._call += 1
        await self.send(message, self._call)
        frame = await read_frame(self.reader, MAX_PAYLOAD)
        assert frame is not None, "the connection ended instead of an answer"
        assert (frame.flags, frame.call) == (REPLY, self._call)
        answer = m.MESSAGES[frame.type].decode(frame.payload)
        assert isinstance(answer, want), answer
        return answer

    async def next(self, want: type[M]) -> M:
        """Something that the daemon says by itself."""
        frame = await read_frame(self.reader, MAX_PAYLOAD)
        assert frame is not None, f"the connection ended instead of {want.__name__}"
        assert (frame.flags, frame.call) == (0, 0)
        message = m.MESSAGES[frame.type].decode(frame.payload)
        assert isinstance(message, want), message
        return message

    async def ended(self) -> bool:
        """Wait for the end; whatever comes before it is not looked at."""
        try:
            while await self.reader.read(65536):
                pass
        except OSError:
            pass
        return True

    # ------------------------------------------------------------------ the usual steps

    async def hello(self, peer: str = "192.0.2.7:50000") -> m.WorkerIdentity:
        """Identify as a worker with a new key."""
        key = public_der(make_key().public_key())
        return await self.ask(m.WorkerHello(1, peer, key, "test"), m.WorkerIdentity)

    async def as_agent(self, authority: CertificateAuthority, name: str = "lab-3") -> Self:
        """Come as far as the agent phase, as a client of this name."""
        await self.hello()
        certificate = authority.issue_client(name, make_key().public_key())
        await self.ask(m.PeerCheck(certificate.der, 1), m.PeerPermit)
        return self

    async def reserve(
        self, count: int = 1, memory: int = 1 << 30, user: str = "joerg"
    ) -> m.ReserveGrant:
        """Reserve, with a new key for the session certificate."""
        return await self.ask(reserve_request(count, memory, user), m.ReserveGrant)

    async def attach(self, certificate: bytes) -> m.SessionGrant:
        """Come as far as an open session."""
        await self.hello()
        await self.ask(m.PeerCheck(certificate, 2), m.PeerPermit)
        return await self.ask(m.SessionRequest(1, "program"), m.SessionGrant)


def reserve_request(count: int, memory: int, user: str = "joerg") -> m.ReserveRequest:
    """A request with a new key."""
    key = public_der(make_key().public_key())
    return m.ReserveRequest(count, memory, 0, user, "lab-3.example", "python", key)


def session_certificate(
    authority: CertificateAuthority, reservation: str, client: str = "lab-3", user: str = "joerg"
) -> bytes:
    """A session certificate that the CA signs for whoever asks."""
    identity = SessionIdentity(client, user, reservation)
    return authority.issue_session(identity, make_key().public_key()).der
