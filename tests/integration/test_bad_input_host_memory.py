"""Shared host memory (PROTOCOL.md section 7.8) as a worker keeps it, and guests who misuse it."""

from __future__ import annotations

import struct

import pytest

from appliance.core.sizes import MIB
from remoting.protocol.gen import messages as m
from tests.fakes.cuda import NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, Cuda
from tests.fakes.data_client import frame
from tests.fakes.driver_calls import call_type
from tests.fakes.scene import Scene, loud

INVALID_VALUE, NOT_REGISTERED = 1, 713
PAGE = 4096
WINDOW = 0x2F00_0000_0000
ELSEWHERE = 0x2E00_0000_0000


def run_of(line: int, mask: int, data: bytes) -> bytes:
    """One changed line."""
    return struct.pack("<IIQ", line, 1, mask) + data


def register(cuda: Cuda, address: int, size: int) -> int:
    return cuda.ask("cuMemHostRegister_v2", struct.pack("<QQ", address, size)).result


def reserve(cuda: Cuda, address: int, size: int) -> int:
    return cuda.ask("cuMemHostAlloc", struct.pack("<QQ", address, size)).result


def copy_on_device(cuda: Cuda, target: int, source: int, size: int) -> None:
    cuda.send("cuMemcpyDtoDAsync_v2", struct.pack("<QQQQ", target, source, size, 0))


def test_changes_go_both_ways_and_come_before_the_answer(scene: Scene) -> None:
    with scene.guests() as lines, scene.enter("attached") as client:
        cuda = Cuda(client)
        memory = cuda.allocate(PAGE)
        cuda.upload(memory, b"from the device!")
        assert reserve(cuda, WINDOW, 64 * MIB) == SUCCESS
        block = WINDOW + 7 * PAGE
        assert register(cuda, block, 100) == SUCCESS
        client.send(m.HostChanges(block, run_of(1, 0b1001, b"ab")))
        copy_on_device(cuda, memory + 16, block + 64, 4)
        assert cuda.download(memory, 20) == b"from the device!a\0\0b"
        copy_on_device(cuda, block + 70, memory, 16)
        client.send_raw(frame(call_type("cuStreamSynchronize"), bytes(8), call=9))
        changes = client.receive()
        assert changes.type == m.HostChanges.TYPE
        assert m.HostChanges.decode(changes.payload) == m.HostChanges(
            block, run_of(1, 0xFFFF << 6, b"from the device!")
        )
        assert client.receive().call == 9
        # Nothing has changed since, so nothing is told again.
        assert cuda.ask("cuStreamSynchronize", bytes(8)).result == SUCCESS
        cuda.send("cuMemHostUnregister", struct.pack("<Q", block))
        assert cuda.ask("cuCtxSynchronize").deferred == SUCCESS
        client.send(m.Close(0, ""))
    assert loud(lines) == []


def test_ranges_and_blocks_that_cannot_be_are_refused(scene: Scene) -> None:
    with scene.guests() as lines, scene.enter("attached") as client:
        cuda = Cuda(client)
        for address, size in (
            (WINDOW + 1, MIB),
            (WINDOW, MIB + 1),
            (WINDOW, 0),
            (0, MIB),
            (WINDOW, 1 << 46),
            (2**64 - MIB, MIB),
        ):
            assert reserve(cuda, address, size) == INVALID_VALUE
        memory = cuda.allocate(4 * MIB)
        assert reserve(cuda, memory, MIB) == OUT_OF_MEMORY  # something is there
        assert reserve(cuda, WINDOW, 64 * MIB) == SUCCESS
        assert reserve(cuda, ELSEWHERE, 64 * MIB) == INVALID_VALUE  # one a session
        for address, size in ((64, 64), (2**47 - 64, 128), (2**64 - 64, 128), (WINDOW, 0)):
            assert register(cuda, address, size) == INVALID_VALUE
        assert register(cuda, memory + 64, 64) == NOT_SUPPORTED
        assert register(cuda, WINDOW - 64, 128) == NOT_SUPPORTED  # half of it in the range
        assert register(cuda, ELSEWHERE, 1 << 45) == OUT_OF_MEMORY
        # Neighbours that share a page, then overlaps of all kinds.
        assert register(cuda, ELSEWHERE + 100, PAGE) == SUCCESS
        assert register(cuda, ELSEWHERE + 100 + PAGE, PAGE) == SUCCESS
        for start, size in ((0, 101), (200, 10), (100, PAGE), (PAGE, 4 * PAGE)):
            assert register(cuda, ELSEWHERE + start, size) == INVALID_VALUE
        for _ in range(2):
            cuda.send("cuMemHostUnregister", struct.pack("<Q", ELSEWHERE + 100))
        assert cuda.ask("cuCtxSynchronize").deferred == NOT_REGISTERED
        # Of a block that is not there (any more) changes are passed over.
        client.send(m.HostChanges(ELSEWHERE + 100, run_of(0, 1, b"x")))
        client.send(m.HostChanges(WINDOW, b"anything"))
        neighbour = ELSEWHERE + 100 + PAGE
        client.send(m.HostChanges(neighbour, run_of(0, 1 << neighbour % 64, b"y")))
        copy_on_device(cuda, memory, neighbour, 1)
        assert cuda.download(memory, 1) == b"y"
        client.send(m.Close(0, ""))
    assert loud(lines) == []


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(b"\0", id="short"),
        pytest.param(run_of(0, 1, b""), id="a byte too few"),
        pytest.param(run_of(0, 1, b"ab"), id="a byte too many"),
        pytest.param(run_of(0, 0, b""), id="nothing in a line"),
        pytest.param(run_of(64, 1, b"a"), id="a line too far"),
        pytest.param(run_of(2**32 - 1, 1, b"a"), id="the last line of all"),
        pytest.param(struct.pack("<II", 0, 2**32 - 1) + b"\xff" * 720, id="very many lines"),
        pytest.param(run_of(63, 1 << 63, b"a"), id="the byte after the block"),
    ],
)
def test_changes_outside_their_block_end_the_connection(scene: Scene, lines: bytes) -> None:
    words = "HostChanges does not fit its block"
    with scene.ends_with(words), scene.enter("attached") as client:
        cuda = Cuda(client)
        assert reserve(cuda, WINDOW, MIB) == SUCCESS
        assert register(cuda, WINDOW, PAGE - 1) == SUCCESS
        client.send(m.HostChanges(WINDOW, lines))
        assert client.closing().text == words


def test_changes_that_do_not_decode_end_the_connection(scene: Scene) -> None:
    words = "HostChanges does not decode"
    with scene.ends_with(words), scene.enter("attached") as client:
        Cuda(client)
        client.send_raw(frame(m.HostChanges.TYPE, bytes(8) + b"\xff" * 4))
        assert client.closing().text == words


def test_blocks_end_with_their_context(scene: Scene) -> None:
    with scene.guests() as lines, scene.enter("attached") as client:
        cuda = Cuda(client)
        assert register(cuda, ELSEWHERE, PAGE) == SUCCESS
        assert cuda.ask("cuDevicePrimaryCtxRelease_v2", struct.pack("<i", 0)).result == SUCCESS
        again = Cuda(client)
        assert register(again, ELSEWHERE, 2 * PAGE) == SUCCESS
        client.send(m.Close(0, ""))
    assert loud(lines) == []
