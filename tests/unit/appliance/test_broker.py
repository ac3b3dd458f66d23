"""The broker: what it grants to a well-behaved worker, and that a bad one ends alone."""

from __future__ import annotations

import asyncio
import io
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.broker import Broker, GrantPolicy
from appliance.broker.permits import PERMITS, Phase
from appliance.core.gpu import Gpu
from appliance.core.ids import GpuId, ReservationId, WorkerPid
from appliance.core.pool import MemoryStore, Pool
from appliance.core.reservation import EndReason
from appliance.core.sizes import GIB, GRANULE, MIB
from appliance.telemetry import open_log
from remoting.protocol.codec import Message
from remoting.protocol.frames import REPLY, Frame, FrameError, FrameHeader
from remoting.protocol.gen import messages as m
from security.identity import Kind, Pseudonyms
from security.pki import (
    CertificateAuthority,
    ClientIdentity,
    SessionIdentity,
    check_peer,
    make_key,
    public_der,
    utc_now,
)
from tests.fakes.broker_client import BrokerClient, reserve_request, session_certificate

POLICY = GrantPolicy(
    server="gpu1.lab:7444",
    port=7444,
    hosts=("gpu1.lab", "127.0.0.1"),
    driver_library="/opt/libcuda.so.1",
    software=True,
    environment={"HEADRACE_SOFTGPU": "2x4GiB"},
    handshake_seconds=5,
    stop_seconds=5,
)


class NoWorkers:
    """The processes of workers that the spawner did not start."""

    def __init__(self) -> None:
        self.trusted: list[WorkerPid] = []
        self.finishing: asyncio.Event | None = None

    def local_address(self, pid: WorkerPid) -> str | None:
        return None

    def connected(self, pid: WorkerPid) -> None: ...
    def disconnected(self, pid: WorkerPid) -> None: ...
    def explained(self, pid: WorkerPid) -> None: ...

    def authenticated(self, pid: WorkerPid) -> None:
        self.trusted.append(pid)

    async def finish(self, pid: WorkerPid, grace_seconds: float) -> None:
        if self.finishing:
            await self.finishing.wait()


@dataclass
class Setup:
    """A broker that runs, and what is around it."""

    path: Path
    authority: CertificateAuthority
    pseudonyms: Pseudonyms
    pool: Pool
    broker: Broker
    workers: NoWorkers
    text: io.StringIO
    clients: list[BrokerClient] = field(default_factory=list)

    async def client(self) -> BrokerClient:
        client = await BrokerClient.connect(self.path)
        self.clients.append(client)
        return client

    async def agent(self, name: str = "lab-3") -> BrokerClient:
        return await (await self.client()).as_agent(self.authority, name)

    def log(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.text.getvalue().splitlines()]
        return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("ca"))


@pytest.fixture
async def setup(authority: CertificateAuthority, tmp_path: Path) -> AsyncIterator[Setup]:
    async with running(authority, tmp_path) as made:
        yield made


@asynccontextmanager
async def running(
    authority: CertificateAuthority,
    folder: Path,
    policy: GrantPolicy = POLICY,
    reservation_seconds: float = 3600,
) -> AsyncIterator[Setup]:
    gpus = [
        Gpu(GpuId(f"GPU-{i}"), bytes([i] * 16), "Test GPU", 4 * GIB, 0, "1.0", 13000, True)
        for i in range(2)
    ]
    pool = Pool(
        gpus, MemoryStore(), time.time, reservation_seconds=reservation_seconds, max_sessions=4
    )
    pseudonyms, workers, text = Pseudonyms(bytes(32)), NoWorkers(), io.StringIO()
    log = open_log("json", "info", text)
    broker = Broker(pool, authority, pseudonyms, workers, policy, time.time, log)
    path = folder / "b.sock"
    await broker.start(path)
    made = Setup(path, authority, pseudonyms, pool, broker, workers, text)
    try:
        yield made
    finally:
        for client in made.clients:
            await client.close()
        broker.say_goodbye()
        await broker.stop()


# ---------------------------------------------------------------------- what is granted


async def test_a_worker_gets_a_server_certificate_of_minutes(setup: Setup) -> None:
    identity = await (await setup.client()).hello()
    certificate = x509.load_der_x509_certificate(identity.certificate)
    certificate.verify_directly_issued_by(x509.load_der_x509_certificate(identity.chain))
    assert identity.trust == setup.authority.trust_der
    assert certificate.not_valid_after_utc - utc_now() <= timedelta(minutes=10)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gpu1.lab"]


async def test_an_agent_lists_reserves_and_releases(setup: Setup) -> None:
    agent = await setup.agent()
    before = await agent.ask(m.ListRequest(), m.ListReply)
    assert [gpu.free_bytes for gpu in before.gpus] == [4 * GIB, 4 * GIB]
    grant = await agent.reserve(2, 3 * GIB)
    assert [entry.memory_bytes for entry in grant.slices] == [3 * GIB] * 2
    assert len({entry.slice_uuid for entry in grant.slices}) == 2
    assert grant.server == "gpu1.lab:7444"
    identity = check_peer(grant.certificate, setup.authority.issuing, utc_now())
    assert identity == SessionIdentity("lab-3", "joerg", grant.reservation)
    during = await agent.ask(m.ListRequest(), m.ListReply)
    assert [gpu.free_bytes for gpu in during.gpus] == [GIB, GIB]
    await agent.ask(m.ReleaseRequest(grant.reservation), m.ReleaseReply)
    after = await agent.ask(m.ListRequest(), m.ListReply)
    assert [gpu.free_bytes for gpu in after.gpus] == [4 * GIB, 4 * GIB]


async def test_a_reservation_ends_with_its_connection(setup: Setup) -> None:
    agent = await setup.agent()
    await agent.reserve()
    await agent.close()
    other = await setup.agent()
    # Same event loop: the broker has seen the end before it answers a later connection.
    reply = await other.ask(m.ListRequest(), m.ListReply)
    assert [gpu.reservations for gpu in reply.gpus] == [0, 0]
    assert setup.log("reservation_ended")[0]["reason"] == EndReason.HOLDER_GONE.value


async def test_a_session_gets_its_slices_and_one_account(setup: Setup) -> None:
    agent = await setup.agent()
    grant = await agent.reserve(1, GIB)
    one, two = await setup.client(), await setup.client()
    first, second = await one.attach(grant.certificate), await two.attach(grant.certificate)
    assert first.session != second.session
    assert first.devices == second.devices
    (device,) = first.devices
    assert device.slice_uuid == grant.slices[0].slice_uuid
    assert device.physical_uuid != device.slice_uuid
    assert first.driver_library == "/opt/libcuda.so.1"
    assert first.environment == [m.Setting("HEADRACE_SOFTGPU", "2x4GiB")]
    assert (await one.ask(m.MemoryRequest(0, 600 * MIB), m.MemoryReply)).granted
    refused = await two.ask(m.MemoryRequest(0, 600 * MIB), m.MemoryReply)
    assert refused == m.MemoryReply(False, 600 * MIB, GIB)
    await one.close()
    await two.ask(m.Ping(1), m.Pong)
    again = await two.ask(m.MemoryRequest(0, GIB), m.MemoryReply)
    assert again == m.MemoryReply(True, GIB, GIB)


async def test_memory_of_a_session_is_free_only_when_its_process_is_gone(setup: Setup) -> None:
    agent = await setup.agent()
    grant = await agent.reserve(1, 4 * GIB)
    session = await setup.client()
    await session.attach(grant.certificate)
    setup.workers.finishing = asyncio.Event()
    await session.close()
    await agent.ask(m.ReleaseRequest(grant.reservation), m.ReleaseReply)
    other = await setup.agent()
    reply = await other.ask(m.ListRequest(), m.ListReply)
    assert sorted(gpu.free_bytes for gpu in reply.gpus) == [0, 4 * GIB]
    setup.workers.finishing.set()
    await other.ask(m.Ping(1), m.Pong)
    reply = await other.ask(m.ListRequest(), m.ListReply)
    assert [gpu.free_bytes for gpu in reply.gpus] == [4 * GIB, 4 * GIB]


async def test_sessions_end_when_the_reservation_ends(setup: Setup) -> None:
    agent = await setup.agent()
    grant = await agent.reserve()
    session = await setup.client()
    await session.attach(grant.certificate)
    await agent.close()
    end = await session.next(m.EndSession)
    assert end.code == 3
    assert EndReason.HOLDER_GONE.value in end.text
    late = await setup.client()
    await late.hello()
    refused = await late.ask(m.PeerCheck(grant.certificate, 2), m.Refuse)
    assert refused.code == 3


async def test_time_ends_a_reservation_and_all_are_told(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    async with running(authority, tmp_path, reservation_seconds=1.2) as setup:
        agent = await setup.agent()
        grant = await agent.reserve()
        session = await setup.client()
        await session.attach(grant.certificate)
        for each in (session, agent):
            assert EndReason.EXPIRED.value in (await each.next(m.EndSession)).text
        assert grant.expires <= time.time() + 1


async def test_the_administrator_ends_a_reservation(setup: Setup) -> None:
    agent = await setup.agent()
    grant = await agent.reserve()
    setup.broker.end_reservation(ReservationId(grant.reservation), EndReason.ADMINISTRATOR)
    assert EndReason.ADMINISTRATOR.value in (await agent.next(m.EndSession)).text


async def test_a_worker_that_does_not_end_is_cut_off(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    async with running(authority, tmp_path, replace(POLICY, stop_seconds=0.05)) as setup:
        agent = await setup.agent()
        grant = await agent.reserve()
        session = await setup.client()
        await session.attach(grant.certificate)
        setup.broker.end_reservation(ReservationId(grant.reservation), EndReason.ADMINISTRATOR)
        assert await session.ended()
        assert await agent.ended()


# ---------------------------------------------------------------------- what is refused


async def test_not_enough_says_what_is_free_and_the_connection_goes_on(setup: Setup) -> None:
    agent = await setup.agent()
    refused = await agent.ask(reserve_request(1, 5 * GIB), m.Refuse)
    assert refused.code == 10
    assert "4 GiB" in refused.text
    assert "-m" in refused.hint
    assert await agent.reserve(1, 4 * GIB)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"count": 0}, "count"),
        ({"count": 65}, "count"),
        ({"compute_percent": 101}, "compute_percent"),
        ({"memory_bytes": 1 << 63}, "memory_bytes"),
        ({"user": ""}, "user"),
        ({"user": "a\nb"}, "user"),
        ({"host": "\x00"}, "host"),
        ({"public_key": b"nonsense"}, "public_key"),
    ],
)
async def test_an_invalid_request_is_refused_by_field(
    setup: Setup, change: dict[str, Any], field: str
) -> None:
    agent = await setup.agent()
    refused = await agent.ask(replace(reserve_request(1, GIB), **change), m.Refuse)
    assert refused.code == 12
    assert field in refused.text
    assert setup.pool.reservations() == ()


async def test_another_connections_reservation_cannot_be_released(setup: Setup) -> None:
    mine, other = await setup.agent(), await setup.agent("lab-4")
    grant = await mine.reserve()
    assert (await other.ask(m.ReleaseRequest(grant.reservation), m.Refuse)).code == 11
    assert setup.pool.reservations()[0].id == grant.reservation


async def test_certificates_are_checked_again_by_the_daemon(setup: Setup, tmp_path: Path) -> None:
    key = make_key().public_key()
    other = CertificateAuthority.create(tmp_path / "other")
    past = CertificateAuthority(
        setup.authority.root,
        setup.authority.issuing,
        setup.authority._key,
        lambda: utc_now() - timedelta(days=1),
    )
    future = CertificateAuthority(
        setup.authority.root,
        setup.authority.issuing,
        setup.authority._key,
        lambda: utc_now() + timedelta(days=1),
    )
    grant = await (await setup.agent()).reserve()
    session = session_certificate(setup.authority, grant.reservation)
    client = setup.authority.issue_client("lab-3", key).der
    cases = [
        (other.issue_client("lab-3", key).der, 1, "another CA"),
        (past.issue_client("lab-3", key, timedelta(hours=1)).der, 1, "expired"),
        (future.issue_client("lab-3", key).der, 1, "not yet valid"),
        (setup.authority.issue_server(["lab-3"], key).der, 1, "purpose"),
        (b"", 1, "malformed"),
        (session, 1, "cannot reserve"),
        (client, 2, "reserve first"),
        (client, 3, "role"),
        (session_certificate(setup.authority, "r-unknown"), 2, "over"),
        (session_certificate(setup.authority, grant.reservation, client="lab-4"), 2, "holder"),
        (session_certificate(setup.authority, grant.reservation, user="eve"), 2, "holder"),
    ]
    for certificate, role, words in cases:
        worker = await setup.client()
        await worker.hello()
        refused = await worker.ask(m.PeerCheck(certificate, role), m.Refuse)
        assert refused.code == 3
        assert words in refused.text
        assert words in setup.log("connection_failed")[-1]["reason"]
    assert len(setup.log("connection_failed")) == len(cases)
    assert len(setup.workers.trusted) == 1


# ---------------------------------------------------------------------- what ends a worker


def garbled(message: Message, **header: int) -> bytes:
    payload = message.encode()
    values = {"length": len(payload), "type": message.TYPE, "flags": 0, "call": 1, "ack": 0}
    values |= header
    sizes = {"length": 4, "type": 2, "flags": 2, "call": 4, "ack": 4}
    head = b"".join(values[name].to_bytes(size, "little") for name, size in sizes.items())
    return head + payload


HELLO = m.WorkerHello(1, "192.0.2.7:50000", public_der(make_key().public_key()), "test")

BAD_BYTES = {
    "oversized": garbled(HELLO, length=65_537),
    "enormous": garbled(HELLO, length=0xFFFFFFFF),
    "unknown flag": garbled(HELLO, flags=8),
    "compressed": garbled(HELLO, flags=4),
    "reply to nothing": garbled(HELLO, flags=REPLY),
    "more": garbled(HELLO, flags=2),
    "ack": garbled(HELLO, ack=1),
    "no call": garbled(HELLO, call=0),
    "unknown type": garbled(HELLO, type=0x0777),
    "driver call": garbled(HELLO, type=0x1001),
    "out of phase": Frame(m.PeerCheck.TYPE, m.PeerCheck(b"", 1).encode(), 0, 1).encode(),
    "wrong direction": Frame(m.PeerPermit.TYPE, m.PeerPermit("", "").encode(), 0, 1).encode(),
    "payload too short": Frame(m.WorkerHello.TYPE, HELLO.encode()[:20], 0, 1).encode(),
    "string length lies": Frame(
        m.WorkerHello.TYPE, b"\0\0\0\0\xff\xff\xff\x7f" + b"x" * 100, 0, 1
    ).encode(),
    "not UTF-8": Frame(
        m.WorkerHello.TYPE, b"\0\0\0\0\x01\0\0\0\xff" + HELLO.encode()[-20:], 0, 1
    ).encode(),
    "key of another kind": Frame(
        m.WorkerHello.TYPE, replace(HELLO, public_key=b"key").encode(), 0, 1
    ).encode(),
    "plain text": b"GET / HTTP/1.1\r\nHost: gpu1.lab\r\n\r\n",
    "nothing but zeros": bytes(4096),
}


@pytest.mark.parametrize("name", BAD_BYTES)
async def test_bad_bytes_end_that_connection_with_one_line(setup: Setup, name: str) -> None:
    good = await setup.agent()
    bad = await setup.client()
    bad.writer.write(BAD_BYTES[name])
    assert await bad.ended()
    (line,) = setup.log("connection_failed")
    assert line["kind"] == "broker"
    assert line["level"] == "warning"
    assert await good.reserve()


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 60])
async def test_a_truncated_frame_ends_that_connection_with_one_line(setup: Setup, cut: int) -> None:
    bad = await setup.client()
    bad.writer.write(garbled(HELLO)[:cut])
    bad.writer.write_eof()
    assert await bad.ended()
    (line,) = setup.log("connection_failed")
    assert "inside a frame" in line["reason"]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(noise=st.binary(min_size=1, max_size=200), hello_first=st.booleans())
def test_random_bytes_end_only_their_own_connection(
    authority: CertificateAuthority, tmp_path: Path, noise: bytes, hello_first: bool
) -> None:
    async def scenario() -> None:
        async with running(authority, tmp_path) as setup:
            bad = await setup.client()
            if hello_first:
                await bad.hello()
            bad.writer.write(noise)
            bad.writer.write_eof()
            assert await bad.ended()
            assert await (await setup.agent()).reserve()
            assert setup.log("internal_error") == []

    asyncio.run(scenario())


async def test_every_message_out_of_its_phase_ends_the_connection(setup: Setup) -> None:
    grant = await (await setup.agent()).reserve()

    async def reach(phase: Phase) -> BrokerClient:
        client = await setup.client()
        if phase is Phase.IDENTIFIED:
            await client.hello()
        elif phase is Phase.AGENT:
            await client.as_agent(setup.authority)
        elif phase is Phase.SESSION:
            await client.hello()
            await client.ask(m.PeerCheck(grant.certificate, 2), m.PeerPermit)
        elif phase is Phase.ATTACHED:
            await client.attach(grant.certificate)
        return client

    for phase in Phase:
        for kind in m.MESSAGES.values():
            if kind in PERMITS[phase]:
                continue
            client = await reach(phase)
            client.writer.write(Frame(kind.TYPE, b"", 0, 1).encode())
            assert await client.ended(), (phase, kind)
            assert (
                f"{kind.__name__} is not permitted" in setup.log("connection_failed")[-1]["reason"]
            )
            await client.close()


@pytest.mark.parametrize("request_", [m.MemoryRequest(0, -1), m.MemoryRequest(7, GRANULE)])
async def test_a_worker_that_cannot_count_is_ended(setup: Setup, request_: m.MemoryRequest) -> None:
    grant = await (await setup.agent()).reserve()
    session = await setup.client()
    await session.attach(grant.certificate)
    await session.send(request_, call=9)
    assert await session.ended()
    assert "MemoryRequest" in setup.log("connection_failed")[0]["reason"]


async def test_only_one_reservation_a_connection(setup: Setup) -> None:
    agent = await setup.agent()
    await agent.reserve()
    await agent.send(reserve_request(1, GIB), call=9)
    assert await agent.ended()
    assert setup.pool.reservations() == ()


async def test_a_silent_worker_is_ended(authority: CertificateAuthority, tmp_path: Path) -> None:
    async with running(authority, tmp_path, replace(POLICY, handshake_seconds=0.05)) as setup:
        silent, half = await setup.client(), await setup.client()
        await half.hello()
        assert await silent.ended()
        assert await half.ended()
        phases = {line["phase"] for line in setup.log("connection_failed")}
        assert phases == {Phase.NEW, Phase.IDENTIFIED}


async def test_a_worker_that_does_not_wait_for_its_answers_is_no_failure(setup: Setup) -> None:
    grant = await (await setup.agent()).reserve()
    session = await setup.client()
    await session.attach(grant.certificate)
    for call in range(1, 200):
        session.writer.write(
            Frame(m.MemoryRequest.TYPE, m.MemoryRequest(0, GRANULE).encode(), 0, call).encode()
        )
    session.writer.transport.abort()
    await (await setup.agent()).ask(m.Ping(1), m.Pong)
    while setup.log("session_detached") == []:
        await asyncio.sleep(0)  # let the broker's tasks run
    assert setup.log("connection_failed") == []


async def test_too_many_workers_are_refused(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    async with running(authority, tmp_path, replace(POLICY, max_connections=1)) as setup:
        good = await setup.agent()
        assert await (await setup.client()).ended()
        assert setup.log("worker_refused")[0]["reason"] == "too many connections"
        assert await good.reserve()


async def test_workers_of_another_user_are_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert await (await setup.client()).ended()
    assert setup.log("worker_refused")[0]["reason"] == "another user"


# ---------------------------------------------------------------------- what the log says


async def test_a_report_is_one_line_and_names_nobody(setup: Setup) -> None:
    agent = await setup.agent("lab-3")
    await agent.reserve(user="joerg")
    text = "client 192.0.2.7 closed without notice"
    await agent.send(m.WorkerReport("connection-lost", text))
    await agent.close()
    await (await setup.agent("lab-9")).ask(m.Ping(1), m.Pong)
    (line,) = setup.log("connection_failed")
    assert line["kind"] == "connection-lost"
    assert line["principal"] == setup.pseudonyms.of(Kind.CLIENT, "lab-3")
    assert line["peer"] == setup.pseudonyms.of(Kind.ADDRESS, "192.0.2.7")
    for name in ("lab-3", "joerg", "192.0.2.7", "lab-3.example"):
        assert name not in setup.text.getvalue()


async def test_a_flood_of_reports_ends_the_worker(setup: Setup) -> None:
    worker = await setup.client()
    await worker.hello()
    for _ in range(20):
        await worker.send(m.WorkerReport("noise", "x"))
    assert await worker.ended()
    assert len(setup.log("connection_failed")) == 1


async def test_a_shutdown_tells_everybody(authority: CertificateAuthority, tmp_path: Path) -> None:
    async with running(authority, tmp_path) as setup:
        agent = await setup.agent()
        grant = await agent.reserve()
        session = await setup.client()
        await session.attach(grant.certificate)
        setup.broker.say_goodbye()
        for each in (agent, session):
            assert (await each.next(m.EndSession)).code == 6
            await each.close()
        await setup.broker.stop()
        assert setup.pool.reservations() == ()


# ---------------------------------------------------------------------- frames


@given(st.binary(min_size=16, max_size=16))
def test_a_header_is_read_or_refused(header: bytes) -> None:
    try:
        read = FrameHeader.decode(header, 65_536)
    except FrameError:
        return
    assert read.length <= 65_536
    assert read.flags in (0, 1, 2, 3)


def test_a_clients_identity_is_what_the_certificate_says(authority: CertificateAuthority) -> None:
    der = authority.issue_client("lab 3/ü", make_key().public_key()).der
    assert check_peer(der, authority.issuing, utc_now()) == ClientIdentity("lab 3/ü")
