"""Bad guests who have got as far as a session: what they call, name, upload and leave half done."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest

from appliance.core.sizes import MIB
from remoting.protocol.gen import messages as m
from tests.fakes.cuda import (
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_IMAGE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    SUCCESS,
    Cuda,
    upload_payload,
)
from tests.fakes.data_client import MORE, DataClient, frame
from tests.fakes.driver_calls import BLOB, CONTEXT, EVENT, MODULE, STREAM, call_type, handle
from tests.fakes.scene import Scene, loud

GIB = 1024 * MIB
UNKNOWN_CALL = 0x1FFF


@contextlib.contextmanager
def well_behaved(scene: Scene) -> Iterator[Cuda]:
    """A guest whose connection goes on to a good end, whatever it calls."""
    with scene.guests() as lines:
        with scene.enter("attached") as client:
            cuda = Cuda(client)
            yield cuda
            assert client.ask(m.Ping(11), m.Pong).cookie == 11
            client.send(m.Close(0, ""))
        assert loud(lines) == []
    assert loud(lines) == []


def end_told(client: DataClient) -> str:
    close = client.closing()
    assert close.code == 1
    return close.text


# ---------------------------------------------------------------------- calls


def test_an_unknown_call_is_not_supported_and_no_more(scene: Scene) -> None:
    with well_behaved(scene) as cuda:
        for payload in (b"", b"\xff" * 64):
            got = cuda.client.request_raw(UNKNOWN_CALL, payload).payload
            assert struct.unpack("<iib", got) == (NOT_SUPPORTED, SUCCESS, 0)
        cuda.client.send_raw(frame(UNKNOWN_CALL, b"\xff"))
        first, second = (cuda.ask("cuCtxSynchronize") for _ in range(2))
        assert (first.result, first.deferred) == (SUCCESS, NOT_SUPPORTED)
        assert (second.result, second.deferred) == (SUCCESS, SUCCESS)


def test_an_answer_for_a_function_that_does_not_run_ends_the_connection(scene: Scene) -> None:
    with scene.ends_with("function 7, which is not under way"), scene.enter("attached") as guest:
        guest.send(m.CallbackDone(7))
        assert "not under way" in end_told(guest)


def test_a_client_that_knows_no_callbacks_gets_none(scene: Scene) -> None:
    with well_behaved(scene) as cuda:
        for name in ("cuLaunchHostFunc", "cuStreamAddCallback"):
            cuda.client.send_raw(frame(call_type(name), struct.pack("<QQ", 0, 1)))
            assert cuda.ask("cuCtxSynchronize").deferred == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        pytest.param("cuMemAlloc_v2", bytes(7), id="short"),
        pytest.param("cuMemAlloc_v2", bytes(9), id="long"),
        pytest.param("cuCtxSynchronize", b"\0", id="not empty"),
        pytest.param("cuMemcpyHtoDAsync_v2", bytes(8) + b"\xff" * 4, id="length over the frame"),
        pytest.param(
            "cuMemcpyHtoDAsync_v2",
            upload_payload(0, bytes(1_048_001)),
            id="more than a copy's piece",
        ),
        pytest.param(
            "cuModuleLoadDataEx",
            struct.pack("<QQI", handle(MODULE), handle(BLOB), 65) + bytes(65 * 12),
            id="list over its limit",
        ),
        pytest.param(
            "cuModuleLoadDataEx",
            struct.pack("<QQI", handle(MODULE), handle(BLOB), 2**32 - 1),
            id="list of 4 billion",
        ),
    ],
)
def test_a_call_that_does_not_decode_ends_the_connection(
    scene: Scene, name: str, payload: bytes
) -> None:
    words = f"call {call_type(name)} ({name}) does not decode"
    with scene.ends_with(words), scene.enter("attached") as guest:
        guest.send_raw(frame(call_type(name), payload, call=7))
        assert end_told(guest) == words


def test_a_call_number_in_use_cannot_be_used_again(scene: Scene) -> None:
    with scene.ends_with("call number 5 is used twice"), scene.enter("attached") as guest:
        cuda = Cuda(guest)
        size = 64 * MIB
        address = cuda.allocate(size)
        # More than fits in all buffers on the way, so it stays unanswered until it is read.
        cuda.request_download(address, size, call=5)
        cuda.request_download(address, 1, call=5)
        end_told(guest)


# ---------------------------------------------------------------------- handles


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        pytest.param("cuStreamSynchronize", struct.pack("<Q", handle(STREAM, 99)), id="unknown"),
        pytest.param("cuStreamSynchronize", struct.pack("<Q", handle(EVENT)), id="another kind"),
        pytest.param("cuStreamSynchronize", struct.pack("<Q", 2**64 - 1), id="no kind"),
        pytest.param("cuStreamSynchronize", struct.pack("<Q", 3), id="a small number"),
        pytest.param("cuModuleUnload", struct.pack("<Q", handle(STREAM)), id="no module"),
        pytest.param(
            "cuEventRecord", struct.pack("<QQ", handle(STREAM), 0), id="a stream as an event"
        ),
    ],
)
def test_a_handle_that_is_none_is_an_error_of_the_call(
    scene: Scene, name: str, payload: bytes
) -> None:
    with well_behaved(scene) as cuda:
        cuda.send("cuStreamCreate", struct.pack("<QI", handle(STREAM), 0))
        got = cuda.ask(name, payload)
        assert (got.result, got.deferred) == (INVALID_HANDLE, SUCCESS)


def test_handles_and_addresses_of_another_session_are_worth_nothing(scene: Scene) -> None:
    theirs = handle(STREAM, 7)
    secret = b"the neighbour's" * 100
    scene.neighbour.send("cuStreamCreate", struct.pack("<QI", theirs, 0))
    address = scene.neighbour.allocate(8 * MIB)
    scene.neighbour.upload(address, secret)
    assert scene.neighbour.download(address, len(secret)) == secret
    with scene.guests(), scene.enter("attached") as guest:
        cuda = Cuda(guest)
        assert cuda.ask("cuStreamSynchronize", struct.pack("<Q", theirs)).result == INVALID_HANDLE
        stolen = cuda.try_download(address, len(secret))
        assert (stolen.result, stolen.data) != (SUCCESS, secret)
        cuda.upload(address, b"overwritten")
        cuda.ask("cuCtxSynchronize")
        guest.send(m.Close(0, ""))
    assert scene.neighbour.download(address, len(secret)) == secret
    freed = scene.neighbour.ask("cuMemFree_v2", struct.pack("<Q", address))
    assert freed.result == SUCCESS


def test_a_name_cannot_be_given_twice(scene: Scene) -> None:
    with well_behaved(scene) as cuda:
        for wanted in (SUCCESS, INVALID_HANDLE):
            got = cuda.ask("cuStreamCreate", struct.pack("<QI", handle(STREAM), 0))
            assert got.result == wanted
        for bad in (handle(EVENT, 2), handle(STREAM, 0), 0, 1, 2):
            got = cuda.ask("cuStreamCreate", struct.pack("<QI", bad, 0))
            assert got.result == INVALID_HANDLE


def test_a_context_that_is_none_is_a_deferred_error(scene: Scene) -> None:
    with well_behaved(scene) as cuda:
        for bad in (handle(CONTEXT, 9), handle(STREAM), 5):
            cuda.client.send(m.SetContext(bad))
            got = cuda.ask("cuMemAlloc_v2", struct.pack("<Q", 4096))
            assert (got.result, got.deferred) == (INVALID_CONTEXT, INVALID_CONTEXT)
        cuda.client.send(m.SetContext(cuda.context))
        cuda.allocate(4096)


def test_memory_beyond_the_slice_is_refused_and_sizes_do_not_wrap(scene: Scene) -> None:
    with well_behaved(scene) as cuda:
        for size in (513 * MIB, 2**63, 2**64 - 1, 2**64 - 511):
            got = cuda.ask("cuMemAlloc_v2", struct.pack("<Q", size))
            assert got.result == OUT_OF_MEMORY, size
        for size in (2**47, 2**63, 2**64 - 1):
            failed = cuda.try_download(cuda.allocate(4096), size)
            assert failed.result != SUCCESS
            assert len(failed.data) <= 4096


# ---------------------------------------------------------------------- blobs


def elf(program_headers: int, sections: int) -> bytes:
    """An ELF header whose tables have no entry and lie where it says."""
    numbers = (2, 190, 1, 0, program_headers, sections, 0x500550, 64, 56, 0, 64, 0, 0)
    return b"\x7fELF\2\1\1\x33\7" + bytes(7) + struct.pack("<HHIQQQIHHHHHH", *numbers)


def begin(blob: int = handle(BLOB), size: int = 100, raw: int = 100, encoding: int = 0) -> bytes:
    return frame(m.BlobBegin.TYPE, m.BlobBegin(blob, size, raw, encoding).encode())


def piece(offset: int, data: bytes, blob: int = handle(BLOB)) -> bytes:
    return frame(m.BlobData.TYPE, m.BlobData(blob, offset, data).encode())


@pytest.mark.parametrize(
    ("words", "frames"),
    [
        pytest.param("not a new blob handle", [begin(handle(STREAM))], id="another kind"),
        pytest.param("not a new blob handle", [begin(), begin()], id="begun twice"),
        pytest.param("unknown encoding", [begin(encoding=2)], id="unknown encoding"),
        pytest.param("sizes differ", [begin(raw=101)], id="plain of two sizes"),
        pytest.param("more than 1 GiB", [begin(size=GIB + 1, raw=GIB + 1)], id="too large"),
        pytest.param(
            "more than 1 GiB", [begin(size=2**64 - 1, raw=2**64 - 1)], id="too large for 64 bits"
        ),
        pytest.param("more than 1 GiB", [begin(raw=GIB + 1, encoding=1)], id="too large unpacked"),
        pytest.param(
            "more than 1 GiB",
            [begin(handle(BLOB, i), 400 * MIB, 400 * MIB) for i in (1, 2, 3)],
            id="too large together",
        ),
        pytest.param(
            "too many open blobs", [begin(handle(BLOB, i)) for i in range(1, 6)], id="too many"
        ),
        pytest.param("no such blob", [piece(0, b"x")], id="data of none"),
        pytest.param("not the next piece", [begin(), piece(1, b"x")], id="gap at the start"),
        pytest.param(
            "not the next piece", [begin(), piece(0, b"x"), piece(2, b"x")], id="gap inside"
        ),
        pytest.param(
            "not the next piece", [begin(), piece(0, b"xx"), piece(1, b"x")], id="overlap"
        ),
        pytest.param("not the next piece", [begin(), piece(0, bytes(101))], id="overrun"),
        pytest.param(
            "not the next piece", [begin(), piece(0, bytes(100)), piece(100, b"x")], id="one more"
        ),
        pytest.param(
            "not the next piece", [begin(), piece(2**64 - 1, b"xx")], id="an offset that wraps"
        ),
    ],
)
def test_a_blob_that_lies_ends_the_connection(
    scene: Scene, words: str, frames: list[bytes]
) -> None:
    with scene.ends_with(words), scene.enter("attached") as guest:
        guest.send_raw(b"".join(frames))
        assert words in end_told(guest)


@pytest.mark.parametrize(
    ("wanted", "frames"),
    [
        pytest.param(INVALID_HANDLE, [], id="no blob"),
        pytest.param(INVALID_HANDLE, [begin(), piece(0, bytes(99))], id="not complete"),
        pytest.param(INVALID_IMAGE, [begin(), piece(0, b"\xff" * 100)], id="noise"),
        pytest.param(INVALID_IMAGE, [begin(size=0, raw=0)], id="empty"),
        pytest.param(
            INVALID_IMAGE,
            [begin(size=64, raw=64), piece(0, elf(1 << 40, 1 << 39))],
            id="an ELF that seems larger than it is",
        ),
        pytest.param(
            INVALID_IMAGE,
            [begin(size=64, raw=64), piece(0, elf(0, 64))],
            id="an ELF whose sections are counted behind it",
        ),
        pytest.param(
            INVALID_HANDLE, [begin(encoding=1), piece(0, b"\xff" * 100)], id="not compressed"
        ),
        pytest.param(
            INVALID_HANDLE,
            [
                begin(size=13, raw=GIB - 1, encoding=1),
                piece(0, b"\x28\xb5\x2f\xfd\x04\x58" + bytes(7)),
            ],
            id="unpacks to less than it says",
        ),
    ],
)
def test_an_image_that_is_none_is_an_error_of_the_call(
    scene: Scene, wanted: int, frames: list[bytes]
) -> None:
    with well_behaved(scene) as cuda:
        cuda.client.send_raw(b"".join(frames))
        call = struct.pack("<QQI", handle(MODULE), handle(BLOB), 0)
        got = cuda.ask("cuModuleLoadDataEx", call)
        # The load's own result comes first among the fields where the driver was asked.
        result = got.result or struct.unpack("<i", got.fields[:4])[0]
        assert result == wanted


# ---------------------------------------------------------------------- killed in the middle


def kill(client: DataClient) -> None:
    """As the kernel does with a process that is killed: what was not read makes it a reset."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


@pytest.mark.parametrize("direction", ["to the device", "to the host"])
@pytest.mark.parametrize("reset", [True, False], ids=["reset", "end"])
def test_a_client_killed_in_mid_copy_leaves_nothing(
    scene: Scene, direction: str, reset: bool
) -> None:
    most = 500 * MIB  # of the reservation's 512 MiB: the next guest gets it only when it is free
    with scene.ends_with("connection lost"), scene.enter("attached") as guest:
        cuda = Cuda(guest)
        address = cuda.allocate(most)
        if direction == "to the device":
            payload = upload_payload(address, bytes(1_000_000))
            whole = frame(call_type("cuMemcpyHtoDAsync_v2"), payload)
            guest.send_raw(whole * 3 + whole[:500_000])
        else:
            cuda.request_download(address, 64 * MIB, call=5)
            assert guest.receive().flags & MORE
        if reset:
            kill(guest)


def test_memory_of_ended_sessions_is_free_again(scene: Scene) -> None:
    for _ in range(3):
        with well_behaved(scene) as cuda:
            cuda.allocate(500 * MIB)
