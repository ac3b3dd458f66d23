"""Guests who do not get in, and guests who say nothing: one line each, and nobody else notices."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from appliance.core.sizes import MIB
from remoting.protocol.gen import messages as m
from security.pki import (
    CertificateAuthority,
    SessionIdentity,
    load_public_der,
    make_key,
    public_der,
    utc_now,
)
from security.pki.authority import IssuedCertificate
from security.pki.keys import PublicKey
from tests.fakes.appliance import Appliance
from tests.fakes.cuda import Cuda
from tests.fakes.data_client import ROLE_AGENT, ROLE_SESSION, ConnectionEnded, DataClient, frame
from tests.fakes.scene import LOG_FLAGS, Scene, loud
from tests.fakes.visitor import CLIENT, USER, Visitor, reserve

# ---------------------------------------------------------------------- refused by TLS


def at(authority: CertificateAuthority, shift: timedelta) -> CertificateAuthority:
    """The same CA with a clock that is wrong."""
    return CertificateAuthority(
        authority.root, authority.issuing, authority._key, lambda: utc_now() + shift
    )


def of_another_ca(visit: Visitor, folder: Path) -> DataClient:
    return visit.agent(CertificateAuthority.create(folder / "other"))


def expired(visit: Visitor, folder: Path) -> DataClient:
    key = make_key()
    past = at(visit.authority, timedelta(days=-2))
    return visit.connect(past.issue_client(CLIENT, key.public_key(), timedelta(hours=1)), key)


def not_yet_valid(visit: Visitor, folder: Path) -> DataClient:
    return visit.agent(at(visit.authority, timedelta(days=2)))


def none_at_all(visit: Visitor, folder: Path) -> DataClient:
    return visit.connect(None, None)


def for_servers(visit: Visitor, folder: Path) -> DataClient:
    key = make_key()
    public: PublicKey = load_public_der(public_der(key.public_key()))
    return visit.connect(visit.authority.issue_server(["localhost"], public), key)


def for_nothing(visit: Visitor, folder: Path) -> DataClient:
    """As a client's, but without any extended key usage."""
    key = make_key()
    good = visit.authority.issue_client(CLIENT, key.public_key()).certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(good.subject)
        .issuer_name(good.issuer)
        .public_key(key.public_key())
        .serial_number(good.serial_number)
        .not_valid_before(good.not_valid_before_utc)
        .not_valid_after(good.not_valid_after_utc)
    )
    for extension in good.extensions:
        if not isinstance(extension.value, x509.ExtendedKeyUsage):
            builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(visit.authority._key, hashes.SHA256())
    return visit.connect(IssuedCertificate(signed, visit.authority.issuing), key)


def enrolment(visit: Visitor, folder: Path) -> DataClient:
    return with_alpn(visit, "headrace-enroll/1")


def another_protocol(visit: Visitor, folder: Path) -> DataClient:
    return with_alpn(visit, "h2")


def no_protocol(visit: Visitor, folder: Path) -> DataClient:
    return with_alpn(visit, None)


def with_alpn(visit: Visitor, alpn: str | None) -> DataClient:
    key = make_key()
    return visit.connect(visit.authority.issue_client(CLIENT, key.public_key()), key, alpn)


def an_older_tls(visit: Visitor, folder: Path) -> DataClient:
    key = make_key()
    context = visit.context(visit.authority.issue_client(CLIENT, key.public_key()), key)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    return visit.through(context)


@pytest.mark.parametrize(
    ("attempt", "alert", "words"),
    [
        (of_another_ca, "unknown ca", "another CA"),
        (expired, "certificate expired", "expired"),
        (not_yet_valid, "certificate expired", "not valid before"),
        (none_at_all, "certificate required", "showed no certificate"),
        (for_servers, "unsupported certificate", "not for clients"),
        (for_nothing, "unsupported certificate", "not for clients"),
        (enrolment, "no application protocol", "enrolment, which is closed"),
        (another_protocol, "no application protocol", "no protocol that is spoken here"),
        (no_protocol, "no application protocol", "offered no protocol"),
        (an_older_tls, "protocol version", "does not speak TLS 1.3"),
    ],
)
def test_who_is_refused_gets_an_alert_and_no_more(
    scene: Scene,
    tmp_path: Path,
    attempt: Callable[[Visitor, Path], DataClient],
    alert: str,
    words: str,
) -> None:
    def come_in() -> None:
        # With TLS 1.3 the client learns only after its own part whether it is accepted.
        with attempt(scene.visitor, tmp_path) as guest:
            guest.send(m.Hello(1, 1, 0, ROLE_AGENT, ""), call=1)
            guest.receive()

    with scene.ends_with(words):
        with pytest.raises((ssl.SSLError, ConnectionEnded)) as refused:
            come_in()
        assert alert in str(refused.value).lower().replace("_", " ")


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: appliance\r\n\r\n", id="HTTP"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="SSH"),
        pytest.param(frame(m.Hello.TYPE, m.Hello(1, 1, 0, 1, "").encode(), call=1), id="a frame"),
        pytest.param(random.Random(1).randbytes(4096), id="noise"),
        pytest.param(b"\x16\x03\x01\x10\x00" + random.Random(2).randbytes(4096), id="noisy record"),
        pytest.param(b"\x16\x03\x01\xff\xff" + bytes(100), id="a record too long"),
        pytest.param(b"\x80\x2e\x01\x00\x02" + bytes(50), id="SSL 2"),
    ],
)
def test_what_is_no_tls_gets_nothing_but_an_alert(scene: Scene, said: bytes) -> None:
    with scene.ends_with("TLS"):
        address = ("127.0.0.1", scene.appliance.port)
        with socket.create_connection(address, timeout=20) as plain:
            plain.sendall(said)
            answer = b""
            try:
                while part := plain.recv(4096):
                    answer += part
            except ConnectionResetError:
                pass
            assert answer == b"" or (answer[0] == 21 and len(answer) == 7)


# ---------------------------------------------------------------------- refused by the daemon


def hello_refused(guest: DataClient, role: int) -> m.Refuse:
    refuse = m.Refuse.decode(guest.request(m.Hello(1, 1, 0, role, "")).payload)
    assert refuse.code in (3, 11)
    return refuse


def test_a_session_certificate_does_not_reserve(scene: Scene) -> None:
    words = "a session certificate cannot reserve"
    with scene.ends_with(words), scene.visitor.session(scene.guest_reservation) as guest:
        assert words in hello_refused(guest, ROLE_AGENT).text


def test_a_client_certificate_does_not_attach(scene: Scene) -> None:
    words = "a client certificate attaches to nothing"
    with scene.ends_with(words), scene.visitor.agent() as guest:
        assert words in hello_refused(guest, ROLE_SESSION).text


def test_a_session_whose_reservation_is_over_is_refused(scene: Scene) -> None:
    with scene.guests() as lines, scene.visitor.agent() as agent:
        agent.hello(ROLE_AGENT)
        reservation = reserve(agent, MIB).reservation
        agent.ask(m.ReleaseRequest(reservation), m.ReleaseReply)
        agent.send(m.Close(0, ""))
    assert loud(lines) == []
    with scene.ends_with("over"), scene.visitor.session(reservation) as late:
        assert "over" in hello_refused(late, ROLE_SESSION).text


@pytest.mark.parametrize(
    ("client", "user", "mine", "words"),
    [
        (CLIENT, "somebody.else", True, "not of this reservation's holder"),
        ("another-client", USER, True, "not of this reservation's holder"),
        (CLIENT, USER, False, "r-none"),
    ],
)
def test_a_session_certificate_is_for_its_holder_and_its_reservation(
    scene: Scene, client: str, user: str, mine: bool, words: str
) -> None:
    key = make_key()
    identity = SessionIdentity(client, user, scene.guest_reservation if mine else "r-none")
    issued = scene.visitor.authority.issue_session(identity, key.public_key())
    with scene.ends_with(words), scene.visitor.connect(issued, key) as guest:
        hello_refused(guest, ROLE_SESSION)


# ---------------------------------------------------------------------- who says nothing


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """An appliance that waits a second where others wait longer."""
    folder = tmp_path_factory.mktemp("impatient")
    flags = [*LOG_FLAGS, "--handshake-time", "1s", "--idle-time", "1s"]
    flags += ["--worker-environment", "HEADRACE_STALL_SECONDS"]
    with (
        Appliance(
            folder / "appliance",
            client=CLIENT,
            flags=flags,
            environment={"HEADRACE_STALL_SECONDS": "1"},
        ) as appliance,
        Scene(appliance, folder) as scene,
    ):
        yield scene


def test_silence_ends_a_connection_in_every_phase(impatient: Scene) -> None:
    address = ("127.0.0.1", impatient.appliance.port)
    begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # of a ClientHello
    half = frame(m.Hello.TYPE, m.Hello(1, 1, 0, 1, "").encode(), call=1)[:20]
    with impatient.guests(7) as lines:
        guests = [socket.create_connection(address) for _ in range(2)]
        guests[1].sendall(begun)
        for phase in ("hello", "hello", "agent", "session"):
            guests.append(impatient.enter(phase).socket)
        guests[2].sendall(half)
        # A ping is no progress.
        pinging = impatient.enter("session")
        assert pinging.ask(m.Ping(3), m.Pong).cookie == 3
        guests.append(pinging.socket)
    for guest in guests:
        guest.close()
    silent = "nothing came in time in phase"
    assert sorted(line["reason"] for line in loud(lines)) == [
        *["TLS handshake: not done in time"] * 2,
        f"{silent} agent",
        *[f"{silent} hello"] * 2,
        *[f"{silent} session"] * 2,
    ]


def test_a_client_that_does_not_read_is_cut_off(impatient: Scene) -> None:
    with impatient.ends_with("has read nothing for 1 s"), impatient.enter("attached") as guest:
        cuda = Cuda(guest)
        size = 256 * MIB
        cuda.request_download(cuda.allocate(size), size, call=5)
        impatient.check_the_others()
        # The end comes without a Close: there is no room for one.
        impatient.wait_for("connection_failed")
