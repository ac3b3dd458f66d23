"""Makes certificates of an appliance's CA, good ones and bad ones, and connects with them."""

from __future__ import annotations

import ssl
from pathlib import Path

from appliance.core.sizes import GIB
from remoting.protocol.gen import messages as m
from security.pki import (
    CertificateAuthority,
    SessionIdentity,
    make_key,
    private_pem,
    public_der,
)
from security.pki.authority import IssuedCertificate
from security.pki.keys import PrivateKey
from tests.fakes.appliance import Appliance
from tests.fakes.data_client import ALPN, DataClient, tls_context

CLIENT, USER, HOST = "lab-client-7", "joerg.tester", "lab7.example"


class Visitor:
    """A machine with whatever certificate the test wants it to have."""

    def __init__(self, appliance: Appliance, folder: Path) -> None:
        self.appliance = appliance
        self.authority = CertificateAuthority.load(appliance.state / "ca")
        self._folder = folder
        self._count = 0
        self._contexts: dict[str, ssl.SSLContext] = {}

    def context(
        self, issued: IssuedCertificate | None, key: PrivateKey | None, alpn: str | None = ALPN
    ) -> ssl.SSLContext:
        """TLS settings with a certificate, or without one."""
        files: tuple[Path | None, Path | None] = (None, None)
        if issued and key:
            self._count += 1
            files = (self._folder / f"{self._count}.pem", self._folder / f"{self._count}.key")
            files[0].write_bytes(issued.pem)
            files[1].write_bytes(private_pem(key))
        return tls_context(self.authority.root_pem, *files, alpn)

    def connect(
        self, issued: IssuedCertificate | None, key: PrivateKey | None, alpn: str | None = ALPN
    ) -> DataClient:
        """Connect with a certificate, or without one."""
        return self.through(self.context(issued, key, alpn))

    def through(self, context: ssl.SSLContext) -> DataClient:
        """Connect with these TLS settings."""
        return DataClient.connect(("127.0.0.1", self.appliance.port), context)

    def agent(self, authority: CertificateAuthority | None = None) -> DataClient:
        """Connect as the client, of this pool or of another CA."""
        if authority is None and (known := self._contexts.get("")):
            return self.through(known)
        key = make_key()
        issued = (authority or self.authority).issue_client(CLIENT, key.public_key())
        context = self.context(issued, key)
        if authority is None:
            self._contexts[""] = context
        return self.through(context)

    def session(self, reservation: str) -> DataClient:
        """Connect as a program of a reservation."""
        if reservation not in self._contexts:
            key = make_key()
            identity = SessionIdentity(CLIENT, USER, reservation)
            issued = self.authority.issue_session(identity, key.public_key())
            self._contexts[reservation] = self.context(issued, key)
        return self.through(self._contexts[reservation])


def reserve_request(memory: int = GIB) -> m.ReserveRequest:
    """A good request, with a new key."""
    key = public_der(make_key().public_key())
    return m.ReserveRequest(1, memory, 0, USER, HOST, "python", key)


def reserve(agent: DataClient, memory: int = GIB) -> m.ReserveGrant:
    """Reserve a slice of one GPU."""
    return agent.ask(reserve_request(memory), m.ReserveGrant)
