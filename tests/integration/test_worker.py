"""The worker by itself: a stub around it, the null backend in it, our own frames to it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pytest

from remoting.protocol.gen import messages as m
from tests.fakes.data_client import DataClient, frame
from tests.fakes.driver_calls import (
    ARRAY,
    BLOB,
    CONTEXT,
    FUNCTION,
    MODULE,
    STREAM,
    allocate,
    call_type,
    download,
    enter_context,
    handle,
    send,
    trip,
    upload,
)
from tests.fakes.stub_appliance import BUILD, Slice, StubAppliance

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, INVALID_HANDLE = 1, 2, 201, 400
NOT_SUPPORTED = 801
MIB = 1 << 20


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    if not (BUILD / "bin/headrace-worker").exists():
        pytest.fail(f"there is no worker in {BUILD}: run 'make build' first")
    with StubAppliance() as running:
        yield running


@pytest.fixture
def client(stub: StubAppliance) -> Iterator[DataClient]:
    with stub.client() as connected:
        connected.attach()
        yield connected


def test_a_session_is_told_its_slice(stub: StubAppliance) -> None:
    with stub.client() as client:
        attached = client.attach()
    (device,) = attached.devices
    assert attached.session == "s-1"
    assert attached.driver_version == 13000
    assert device.name == "Stub GPU"
    assert device.total_memory == stub.slices[0].memory
    assert device.uuid == bytes([1] * 16)
    assert {pair.key: pair.value for pair in device.attributes}[75] == 8  # compute capability


def test_an_unknown_call_is_no_error_of_the_connection(client: DataClient) -> None:
    for _ in range(2):
        reply = client.request_raw(0x1FFF, b"")
        assert struct.unpack("<iiB", reply.payload) == (NOT_SUPPORTED, 0, 0)
    client.send_raw(frame(0x1FFF))
    assert trip(client, "cuStreamQuery", struct.pack("<Q", 0)).deferred == NOT_SUPPORTED


def test_a_ping_is_answered(client: DataClient) -> None:
    assert client.ask(m.Ping(cookie=99), m.Pong).cookie == 99


def test_data_comes_back_as_it_was_sent(client: DataClient) -> None:
    enter_context(client)
    size = 20 * MIB + 12345  # more than what is copied at once
    data = os.urandom(MIB // 2) * (size // (MIB // 2) + 1)
    result, address = allocate(client, size)
    assert result == 0
    for offset in range(0, size, 1_000_000):
        upload(client, address + offset, data[offset : min(offset + 1_000_000, size)])
    reply = download(client, address, size)
    assert (reply.result, reply.deferred) == (0, 0)
    assert reply.data == data[:size]
    small = download(client, address + 5, 4)
    assert small.data == data[5:9]


def test_blocks_of_rows_come_packed(client: DataClient) -> None:
    enter_context(client)
    _, address = allocate(client, 4096)
    upload(client, address, bytes(range(256)) * 16)
    block = struct.pack(
        "<QBQQQQQQQQQ64xI", 0, 2, address + 3, 64, 4, 0, 5, 2, 5, 2, 2, 0
    )  # no arrays; 5 bytes of 2 rows of 2 slices, rows 64 apart, 4 rows a slice
    reply = trip(client, "cuMemcpy3DAsync_v2", block)
    rows = [bytes(range(start, start + 5)) for start in (3, 67)]
    assert reply.result == 0
    assert reply.data == b"".join(rows) * 2


def test_packed_rows_go_to_their_places(client: DataClient) -> None:
    enter_context(client)
    _, address = allocate(client, 4096)
    upload(client, address, bytes(1024))
    data = bytes(range(1, 21))  # 2 slices of 2 rows of 5 bytes
    block = (
        struct.pack("<QBQQQQQQQQQ64xI", 0, 1, 0, 5, 2, address + 3, 64, 4, 5, 2, 2, len(data))
        + data
    )
    send(client, "cuMemcpy3DAsync_v2", block)
    reply = download(client, address, 1024)
    assert (reply.result, reply.deferred) == (0, 0)
    expected = bytearray(1024)
    for row in range(4):
        at = 3 + (row // 2) * 256 + (row % 2) * 64
        expected[at : at + 5] = data[row * 5 : row * 5 + 5]
    assert reply.data == bytes(expected)


def test_a_copy_needs_arrays_of_this_session(client: DataClient) -> None:
    enter_context(client)
    _, address = allocate(client, 4096)
    for source, destination in ((handle(ARRAY), 0), (0, handle(ARRAY)), (handle(MODULE), 0)):
        block = struct.pack(
            "<QB9Q8QI", 0, 0, address, 4, 1, address, 4, 1, 4, 1, 1,
            source, 0, 0, 0, destination, 0, 0, 0, 0,
        )  # fmt: skip
        assert trip(client, "cuMemcpy3DAsync_v2", block).result == INVALID_HANDLE


def test_a_launch_needs_handles_of_this_session(client: DataClient) -> None:
    enter_context(client)
    blob, module, function = handle(BLOB), handle(MODULE), handle(FUNCTION)
    image = b".version 7.0 .target sm_80 .address_size 64"
    client.send(m.BlobBegin(blob=blob, size=len(image), raw_size=len(image), encoding=0))
    client.send(m.BlobData(blob=blob, offset=0, data=image))
    loaded = trip(client, "cuModuleLoadDataEx", struct.pack("<QQI", module, blob, 0))
    assert (loaded.result, loaded.fields[:4]) == (0, bytes(4))
    name = b"kernel"
    found = trip(
        client,
        "cuModuleGetFunction",
        struct.pack("<QQI", function, module, len(name)) + name,
    )
    assert found.result == 0
    launch = struct.pack("<Q7IQI", function, 1, 1, 1, 32, 1, 1, 0, 0, 0)
    send(client, "cuLaunchKernel", launch)
    assert trip(client, "cuStreamSynchronize", struct.pack("<Q", 0)).deferred == 0
    wrong = struct.pack("<Q7IQI", handle(FUNCTION, 9), 1, 1, 1, 32, 1, 1, 0, 0, 0)
    send(client, "cuLaunchKernel", wrong)
    send(client, "cuMemFree_v2", struct.pack("<Q", 4096))  # fails later: the first is told
    assert trip(client, "cuStreamSynchronize", struct.pack("<Q", 0)).deferred == INVALID_HANDLE
    assert trip(client, "cuStreamSynchronize", struct.pack("<Q", 0)).deferred == 0


def test_a_module_s_blob_is_used_once(client: DataClient) -> None:
    enter_context(client)
    load = struct.pack("<QQI", handle(MODULE), handle(BLOB), 0)
    assert trip(client, "cuModuleLoadDataEx", load).result == INVALID_HANDLE


def test_handles_have_kinds_and_one_meaning(client: DataClient) -> None:
    enter_context(client)
    stream = struct.pack("<QI", handle(STREAM), 0)
    send(client, "cuStreamCreate", stream)
    query = struct.pack("<Q", handle(STREAM))
    assert trip(client, "cuStreamQuery", query).deferred == 0
    send(client, "cuStreamCreate", stream)  # the same name again
    assert trip(client, "cuStreamQuery", query).deferred == INVALID_HANDLE
    assert (
        trip(client, "cuStreamQuery", struct.pack("<Q", handle(CONTEXT))).result == INVALID_HANDLE
    )
    send(client, "cuStreamDestroy_v2", query)
    assert trip(client, "cuStreamQuery", query).result == INVALID_HANDLE


def test_calls_need_a_context(client: DataClient) -> None:
    assert allocate(client, 16)[0] == INVALID_CONTEXT
    enter_context(client)
    assert allocate(client, 16)[0] == 0
    client.send_raw(frame(0x0022, struct.pack("<Q", handle(CONTEXT, 5))))
    assert trip(client, "cuMemGetInfo_v2").result == INVALID_CONTEXT


def test_memory_is_the_slice_and_comes_back(stub: StubAppliance) -> None:
    stub.slices[0] = Slice(memory=64 * MIB)
    with stub.client() as one, stub.client() as two:
        for client in (one, two):
            client.attach()
            enter_context(client)

        def info(client: DataClient) -> tuple[int, int]:
            free, total = struct.unpack("<QQ", trip(client, "cuMemGetInfo_v2").fields)
            return free, total

        assert info(one) == (64 * MIB, 64 * MIB)
        result, address = allocate(one, 40 * MIB)
        assert result == 0
        assert info(one) == info(two) == (24 * MIB, 64 * MIB)
        assert allocate(two, 24 * MIB + 1)[0] == OUT_OF_MEMORY
        assert allocate(two, (1 << 64) - 1)[0] == OUT_OF_MEMORY
        pitch = struct.pack("<QQI", 1 << 40, 1 << 40, 4)
        assert trip(two, "cuMemAllocPitch_v2", pitch).result == OUT_OF_MEMORY
        assert allocate(two, 24 * MIB)[0] == 0
        assert allocate(one, 1)[0] == OUT_OF_MEMORY
        send(one, "cuMemFree_v2", struct.pack("<Q", address))
        assert info(one) == (40 * MIB, 64 * MIB)
    stub.stderr()
    assert stub.used[0] == 0


def test_a_context_gives_back_what_was_made_in_it(stub: StubAppliance) -> None:
    with stub.client() as client:
        client.attach()
        context = handle(CONTEXT, 7)
        create = struct.pack("<QIi", context, 0, 0)
        assert trip(client, "cuCtxCreate_v4", create).result == 0
        client.send_raw(frame(0x0022, struct.pack("<Q", context)))
        assert allocate(client, 10 * MIB)[0] == 0
        assert stub.used[0] == 10 * MIB
        assert trip(client, "cuCtxDestroy_v2", struct.pack("<Q", context)).result == 0
        assert trip(client, "cuStreamQuery", struct.pack("<Q", 0)).result in (0, INVALID_CONTEXT)
        assert stub.used[0] == 0


def test_a_session_outlives_its_daemon(stub: StubAppliance) -> None:
    with stub.client() as client:
        client.attach()
        enter_context(client)
        result, address = allocate(client, MIB)
        assert result == 0
        stub.hang_up()
        upload(client, address, b"still here")
        assert download(client, address, 10).data == b"still here"
        assert allocate(client, 64 * MIB)[0] == OUT_OF_MEMORY
        assert allocate(client, 1000)[0] == 0  # within what it holds


def test_a_refusal_of_the_daemon_reaches_the_client(stub: StubAppliance) -> None:
    stub.peer_refusal = m.Refuse(code=3, text="revoked yesterday", hint="enrol again")
    with stub.client() as client:
        reply = client.request(m.Hello(1, 1, 0, 2, "test"))
        assert m.Refuse.decode(reply.payload) == stub.peer_refusal
        assert client.closing().code == 3
    assert "refused: revoked yesterday" in stub.stderr()


def test_versions_that_do_not_meet_say_which_side_is_old(stub: StubAppliance) -> None:
    for low, high, side in ((2, 9, "the appliance"), (0, 0, "the client")):
        with stub.client() as client:
            reply = client.request(m.Hello(low, high, 0, 2, "test"))
            refuse = m.Refuse.decode(reply.payload)
            assert refuse.code == 2
            assert side in refuse.hint


def test_our_own_client_library_is_no_driver(stub: StubAppliance) -> None:
    client_library = BUILD / "lib/client/libcuda.so.1"
    stub.driver = client_library
    with stub.client() as client:
        client.hello(2)
        reply = client.request(m.Attach(process=1, program="test"))
        refuse = m.Refuse.decode(reply.payload)
    assert "own client library" in refuse.text
    assert call_type("cuMemAlloc_v2") > 0x1000
