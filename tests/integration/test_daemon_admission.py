"""Daemon and worker together: who gets in, what the log says about those who do not.

Real TLS, the real worker, the software GPU. Every connection that fails is one line in the
daemon's log, under a pseudonym, and nobody else notices.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from appliance.core.sizes import GIB
from remoting.protocol.gen import messages as m
from security.pki import (
    CertificateAuthority,
    SessionIdentity,
    load_public_der,
    make_key,
    private_pem,
    public_der,
    utc_now,
)
from security.pki.authority import IssuedCertificate
from security.pki.keys import PrivateKey, PublicKey
from tests.fakes.appliance import BUILD, Appliance
from tests.fakes.data_client import ROLE_AGENT, ROLE_SESSION, DataClient, tls_context

CLIENT, USER, HOST = "lab-client-7", "joerg.tester", "lab7.example"


@pytest.fixture
def appliance(tmp_path: Path) -> Appliance:
    for built in ("bin/headrace-worker", "lib/softgpu/libcuda.so.1"):
        if not (BUILD / built).exists():
            pytest.fail(f"there is no {BUILD / built}: run 'make build' first")
    return Appliance(tmp_path / "appliance", client=CLIENT)


class Visitor:
    """Makes certificates and connects with them."""

    def __init__(self, appliance: Appliance, folder: Path) -> None:
        self.appliance = appliance
        self.authority = CertificateAuthority.load(appliance.state / "ca")
        self._folder = folder
        self._count = 0

    def connect(
        self, issued: IssuedCertificate | None, key: PrivateKey | None, alpn: str = "headrace/1"
    ) -> DataClient:
        files: tuple[Path | None, Path | None] = (None, None)
        if issued and key:
            self._count += 1
            files = (self._folder / f"{self._count}.pem", self._folder / f"{self._count}.key")
            files[0].write_bytes(issued.pem)
            files[1].write_bytes(private_pem(key))
        context = tls_context(self.authority.root_pem, *files, alpn)
        return DataClient.connect(("127.0.0.1", self.appliance.port), context)

    def agent(self, authority: CertificateAuthority | None = None) -> DataClient:
        key = make_key()
        return self.connect(
            (authority or self.authority).issue_client(CLIENT, key.public_key()), key
        )

    def session(self, reservation: str) -> DataClient:
        key = make_key()
        identity = SessionIdentity(CLIENT, USER, reservation)
        return self.connect(self.authority.issue_session(identity, key.public_key()), key)


@pytest.fixture
def visitor(tmp_path: Path) -> Callable[[Appliance], Visitor]:
    return lambda appliance: Visitor(appliance, tmp_path)


def reserve(agent: DataClient, memory: int = GIB) -> m.ReserveGrant:
    key = public_der(make_key().public_key())
    return agent.ask(m.ReserveRequest(1, memory, 0, USER, HOST, "python", key), m.ReserveGrant)


def test_a_client_reserves_and_a_program_attaches(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            (gpu,) = agent.ask(m.ListRequest(), m.ListReply).gpus
            assert gpu.software
            assert gpu.free_bytes == 4 * GIB
            grant = reserve(agent)
            assert grant.server == appliance.address
            with visit.session(grant.reservation) as program:
                attached = program.attach()
                (device,) = attached.devices
                assert device.total_memory == GIB
                assert device.uuid == grant.slices[0].slice_uuid
                assert attached.driver_version == 13000
                program.send(m.Close(0, ""))
            agent.ask(m.ReleaseRequest(grant.reservation), m.ReleaseReply)
            agent.send(m.Close(0, ""))
    events = [line["event"] for line in appliance.log()]
    assert "connection_failed" not in events
    assert {"reservation_granted", "session_attached", "reservation_ended"} <= set(events)


def test_the_worker_s_certificate_is_for_the_address_that_was_called(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance, visitor(appliance).agent() as agent:
        certificate = agent.socket.getpeercert()  # checked against 127.0.0.1 by the context
        assert certificate
        assert ("IP Address", "127.0.0.1") in certificate["subjectAltName"]
        assert agent.socket.version() == "TLSv1.3"


def test_a_session_ends_with_its_reservation(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            grant = reserve(agent)
            with visit.session(grant.reservation) as program:
                program.attach()
                agent.socket.close()
                close = program.closing()
                assert close.code == 3
                assert "the reservation is over" in close.text
        with visit.session(grant.reservation) as late:
            refused = m.Refuse.decode(late.request(m.Hello(1, 1, 0, ROLE_SESSION, "")).payload)
            assert refused.code == 3
    (line,) = appliance.log("connection_failed")
    assert "over" in line["reason"]


def test_a_shutdown_says_so_to_clients(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            with visit.session(reserve(agent).reservation) as program:
                program.attach()
                os.kill(appliance.pid, signal.SIGTERM)
                assert program.closing().code == 6
    assert appliance.log("connection_failed") == []


# ---------------------------------------------------------------------- those who do not get in


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """The handshake, or the first read after it, fails."""
    with pytest.raises((ssl.SSLError, OSError)):
        yield


def come_in(client: DataClient) -> None:
    """With TLS 1.3 the client learns only now whether its certificate is accepted."""
    with client:
        client.send(m.Hello(1, 1, 0, ROLE_AGENT, ""))
        if not client.socket.recv(1):
            raise ConnectionError("closed")


def at(authority: CertificateAuthority, shift: timedelta) -> CertificateAuthority:
    """The same CA with a clock that is wrong."""
    return CertificateAuthority(
        authority.root, authority.issuing, authority._key, lambda: utc_now() + shift
    )


def of_another_ca(visit: Visitor, folder: Path) -> None:
    come_in(visit.agent(CertificateAuthority.create(folder / "other")))


def expired(visit: Visitor, folder: Path) -> None:
    key = make_key()
    past = at(visit.authority, timedelta(days=-2))
    come_in(visit.connect(past.issue_client(CLIENT, key.public_key(), timedelta(hours=1)), key))


def not_yet_valid(visit: Visitor, folder: Path) -> None:
    come_in(visit.agent(at(visit.authority, timedelta(days=2))))


def none_at_all(visit: Visitor, folder: Path) -> None:
    come_in(visit.connect(None, None))


def for_servers(visit: Visitor, folder: Path) -> None:
    key = make_key()
    public: PublicKey = load_public_der(public_der(key.public_key()))
    come_in(visit.connect(visit.authority.issue_server(["localhost"], public), key))


def enrolment(visit: Visitor, folder: Path) -> None:
    key = make_key()
    issued = visit.authority.issue_client(CLIENT, key.public_key())
    come_in(visit.connect(issued, key, "headrace-enroll/1"))


def plaintext(visit: Visitor, folder: Path) -> None:
    with socket.create_connection(("127.0.0.1", visit.appliance.port)) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: appliance\r\n\r\n")
        answer = b""
        while part := plain.recv(4096):
            answer += part
        # At most an alert in a TLS record: nothing of the protocol, nothing of HTTP.
        assert len(answer) <= 7
        raise ConnectionError("closed")


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (of_another_ca, "another CA"),
        (expired, "expired"),
        (not_yet_valid, "not valid before"),
        (none_at_all, "certificate"),
        (for_servers, "not for clients"),
        (enrolment, "enrolment, which is closed"),
        (plaintext, "plaintext"),
    ],
)
def test_who_does_not_get_in_is_one_line_under_a_pseudonym(
    appliance: Appliance,
    visitor: Callable[[Appliance], Visitor],
    tmp_path: Path,
    attempt: Callable[[Visitor, Path], None],
    words: str,
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            with visit.session(reserve(agent).reservation) as program:
                program.attach()
                with refused():
                    attempt(visit, tmp_path)
                # The others go on.
                assert agent.ask(m.Ping(7), m.Pong).cookie == 7
                assert program.ask(m.Ping(8), m.Pong).cookie == 8
                program.send(m.Close(0, ""))
    (line,) = appliance.log("connection_failed")
    assert words in line["reason"]
    assert line["peer"].startswith("a-")
    text = appliance.log_file.read_text()
    for name in (CLIENT, USER, HOST, '"127.0.0.1"'):
        assert name not in json.dumps(line), name
        assert name == '"127.0.0.1"' or name not in text, name
