"""What a hostile or broken client sends ends its own connection, with one line that says why."""

from __future__ import annotations

import contextlib
import os
import random
import struct
from collections.abc import Callable, Iterator

import pytest

from remoting.protocol.gen import messages as m
from tests.fakes.data_client import (
    MORE,
    REPLY,
    ROLE_AGENT,
    ROLE_SESSION,
    ConnectionEnded,
    DataClient,
    frame,
)
from tests.fakes.driver_calls import (
    BLOB,
    allocate,
    call_type,
    download,
    enter_context,
    handle,
    trip,
    upload,
)
from tests.fakes.stub_appliance import BUILD, StubAppliance

MIB = 1 << 20
HELLO = m.Hello(min_version=1, max_version=1, features=0, role=ROLE_SESSION, build="test")


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    if not (BUILD / "bin/headrace-worker").exists():
        pytest.fail(f"there is no worker in {BUILD}: run 'make build' first")
    with StubAppliance(handshake_seconds=5) as running:
        yield running


@pytest.fixture
def bystander(stub: StubAppliance) -> Iterator[DataClient]:
    """Another session, which must notice nothing."""
    with stub.client() as client:
        client.attach()
        enter_context(client)
        result, address = allocate(client, 4096)
        assert result == 0
        upload(client, address, b"undisturbed")
        yield client
        assert download(client, address, 11).data == b"undisturbed"


def hello(client: DataClient) -> None:
    client.hello(ROLE_SESSION)


def agent(client: DataClient) -> None:
    client.hello(ROLE_AGENT)


def attached(client: DataClient) -> None:
    client.attach()
    enter_context(client)


def nothing(_: DataClient) -> None:
    pass


ALLOC = struct.pack("<Q", 512)

CASES: dict[str, tuple[Callable[[DataClient], None], bytes, str]] = {
    "attach before hello": (
        nothing,
        frame(m.Attach.TYPE, m.Attach(1, "x").encode(), call=1),
        "Attach is not permitted in phase hello",
    ),
    "hello without a number": (
        nothing,
        frame(m.Hello.TYPE, HELLO.encode()),
        "Hello without a call number",
    ),
    "hello cut short": (
        nothing,
        frame(m.Hello.TYPE, HELLO.encode()[:-1], call=1),
        "Hello does not decode",
    ),
    "hello twice": (
        hello,
        frame(m.Hello.TYPE, HELLO.encode(), call=9),
        "Hello is not permitted in phase session",
    ),
    "too long before welcome": (
        nothing,
        frame(m.Hello.TYPE, bytes(65_537), call=1),
        "65537 bytes, allowed are 65536",
    ),
    "a call before attach": (
        hello,
        frame(call_type("cuMemAlloc_v2"), ALLOC, call=9),
        "not permitted in phase session",
    ),
    "a call of an agent": (
        agent,
        frame(call_type("cuMemAlloc_v2"), ALLOC, call=9),
        "not permitted in phase agent",
    ),
    "enrolment": (
        agent,
        frame(m.EnrollRequest.TYPE, m.EnrollRequest("t", "n", b"r").encode(), call=9),
        "EnrollRequest is not permitted",
    ),
    "a reserve request cut short": (
        agent,
        frame(m.ReserveRequest.TYPE, b"\1\0", call=9),
        "ReserveRequest does not decode",
    ),
    "a message of the broker's": (
        attached,
        frame(m.MemoryRequest.TYPE, m.MemoryRequest(0, -4096).encode(), call=9),
        "MemoryRequest is not permitted in phase attached",
    ),
    "a server's message": (
        attached,
        frame(m.Attached.TYPE, b"", call=9),
        "not permitted in phase attached",
    ),
    "too long": (
        attached,
        frame(call_type("cuMemcpyHtoDAsync_v2"), bytes(MIB + 1)),
        "1048577 bytes, allowed are 1048576",
    ),
    "a length of 4 GiB": (
        attached,
        struct.pack("<IHHII", 0xFFFFFFFF, 0x1001, 0, 0, 0),
        "4294967295 bytes, allowed are 1048576",
    ),
    "unknown flags": (attached, frame(0x1001, flags=0x80), "unknown frame flags 128"),
    "compression": (attached, frame(0x1001, flags=4), "unknown frame flags 4"),
    "an ack": (attached, frame(0x1001, ack=1), "ack is reserved"),
    "a reply that nobody asked": (
        attached,
        frame(0x1001, flags=REPLY, call=5),
        "a reply to call 5, which nobody asked",
    ),
    "more of nothing": (attached, frame(0x1001, flags=MORE), "MORE without REPLY"),
    "a call cut short": (
        attached,
        frame(call_type("cuMemAlloc_v2"), ALLOC[:-1], call=9),
        "cuMemAlloc_v2) does not decode",
    ),
    "a call with a tail": (
        attached,
        frame(call_type("cuMemAlloc_v2"), ALLOC + b"!", call=9),
        "cuMemAlloc_v2) does not decode",
    ),
    "a list that claims too much": (
        attached,
        frame(call_type("cuModuleLoadDataEx"), struct.pack("<QQI", 1, 2, 0xFFFFFFFF), call=9),
        "cuModuleLoadDataEx) does not decode",
    ),
    "a blob of nothing": (
        attached,
        frame(m.BlobData.TYPE, m.BlobData(handle(BLOB), 0, b"x").encode()),
        "BlobData: no such blob",
    ),
    "a blob too large": (
        attached,
        frame(m.BlobBegin.TYPE, m.BlobBegin(handle(BLOB), 1 << 62, 1 << 62, 0).encode()),
        "more than 1 GiB of open blobs",
    ),
    "a blob overfilled": (
        attached,
        frame(m.BlobBegin.TYPE, m.BlobBegin(handle(BLOB), 2, 2, 0).encode())
        + frame(m.BlobData.TYPE, m.BlobData(handle(BLOB), 0, b"xyz").encode()),
        "BlobData: not the next piece",
    ),
    "a blob of another kind": (
        attached,
        frame(m.BlobBegin.TYPE, m.BlobBegin(handle(2), 2, 2, 0).encode()),
        "not a new blob handle",
    ),
    "five blobs": (
        attached,
        b"".join(
            frame(m.BlobBegin.TYPE, m.BlobBegin(handle(BLOB, i), 2, 2, 0).encode())
            for i in range(1, 6)
        ),
        "too many open blobs",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_frame_that_must_not_come(stub: StubAppliance, bystander: DataClient, case: str) -> None:
    prepare, data, why = CASES[case]
    with stub.client() as client:
        prepare(client)
        client.send_raw(data)
        close = client.closing()
    assert close.code == 1
    assert why in close.text
    expect_report(stub, why)


def expect_report(stub: StubAppliance, why: str) -> None:
    """One line on standard error and one report to the daemon, both with the reason."""
    stub.wait_for_worker(-1)
    (report,) = stub.reports
    assert why in report.text
    lines = [line for line in stub.stderr_so_far().splitlines() if line]
    assert len(lines) == 1
    assert why in lines[0]


def test_rubbish_inside_tls(stub: StubAppliance, bystander: DataClient) -> None:
    random.seed(4711)
    for _ in range(25):
        with stub.client() as client:
            client.attach()
            # A length that is permitted, so that the rest is looked at, too.
            head = struct.pack(
                "<IHHII",
                random.randrange(200),
                random.choice((random.randrange(1 << 16), 0x1000 + random.randrange(120))),
                random.choice((0, 0, 0, random.randrange(1 << 16))),
                random.randrange(1 << 32),
                0,
            )
            try:
                client.send_raw(head + random.randbytes(200))
                client.socket.unwrap()
            except (OSError, ConnectionEnded):
                continue
        assert trip(bystander, "cuStreamQuery", struct.pack("<Q", 0)).result == 0


def test_a_client_that_vanishes_in_the_middle_of_a_copy(
    stub: StubAppliance, bystander: DataClient
) -> None:
    held = stub.used[0]
    for way in ("up", "down"):
        client = stub.client()
        attached(client)
        result, address = allocate(client, 256 * MIB)
        assert result == 0
        if way == "up":
            whole = frame(call_type("cuMemcpyHtoDAsync_v2"), bytes(1_000_000))
            client.send_raw(whole[: len(whole) // 2])
        else:
            copy = struct.pack("<QQQ", address, 256 * MIB, 0)
            client.send_raw(frame(call_type("cuMemcpyDtoHAsync_v2"), copy, call=3))
            assert client.receive().flags & MORE
        os.close(client.socket.detach())
        stub.wait_for_worker(-1)
        assert stub.used[0] == held
    assert [report.event for report in stub.reports] == ["lost", "lost"]


def test_a_number_that_is_still_awaited(stub: StubAppliance) -> None:
    with stub.client() as client:
        attached(client)
        _, address = allocate(client, 256 * MIB)
        copy = frame(
            call_type("cuMemcpyDtoHAsync_v2"), struct.pack("<QQQ", address, 256 * MIB, 0), call=3
        )
        client.send_raw(copy + copy)
        with contextlib.suppress(ConnectionEnded):
            while client.receive().type != m.Close.TYPE:
                pass
    expect_report(stub, "call number 3 is used twice")


def test_silence_ends_a_connection(stub: StubAppliance) -> None:
    stub.handshake_seconds = 1
    with stub.client() as client:
        close = client.closing()
    assert close.code == 4
    expect_report(stub, "nothing came in time in phase hello")


def test_a_second_reservation_on_one_connection(stub: StubAppliance) -> None:
    request = m.ReserveRequest(1, 0, 0, "u", "h", "p", b"k")
    with stub.client(session=False) as client:
        agent(client)
        client.request(request)  # the stub refuses it; once is once all the same
        client.send(request, call=9)
        assert "second ReserveRequest" in client.closing().text
