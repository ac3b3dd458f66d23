"""Frames that must end a connection, in every phase: the daemon and the others go on.

What is permitted where is read from PROTOCOL.md §3, so that the text is what is tested.
"""

from __future__ import annotations

import random
import re
import socket
import struct
from pathlib import Path

import pytest

from remoting.protocol.codec import Message
from remoting.protocol.gen import messages as m
from tests.fakes.data_client import HEADER, MORE, REPLY, DataClient, frame
from tests.fakes.driver_calls import call_type
from tests.fakes.scene import PHASES, Scene, loud
from tests.fakes.visitor import reserve_request

PROTOCOL = Path(__file__).parents[2] / "remoting" / "protocol" / "PROTOCOL.md"
DRIVER_CALLS = "every carried driver call"
RESERVED = (0x0000, 0x0007, 0x0008, 0x000A, 0x000B, 0x000D, 0x0FFF)


def permits() -> dict[str, set[str]]:
    """What a client may send, by phase: the table of §3."""
    section = PROTOCOL.read_text().partition("## 3.")[2].partition("\n## ")[0]
    rows = (line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| "))
    table = {
        cells[0].strip(): {word.strip() for word in re.sub(r"\(.*?\)", "", cells[2]).split(",")}
        for cells in rows
    }
    return {phase: table[phase] for phase in PHASES}


PERMITS = permits()
LIMITS = {"hello": 65_536, "agent": 1_048_576, "session": 1_048_576, "attached": 1_048_576}


def end_told(client: DataClient, code: int = 1) -> str:
    """The server says why in a Close, and nothing after it."""
    close = client.closing()
    assert close.code == code
    return close.text


def test_the_table_of_the_text_is_what_it_looks_like() -> None:
    names = set().union(*PERMITS.values()) - {DRIVER_CALLS}
    assert {"Hello", "Attach", "SetContext", "Ping"} <= names
    assert names <= {kind.__name__ for kind in m.MESSAGES.values()}


@pytest.mark.parametrize("phase", PHASES)
def test_a_frame_out_of_phase_ends_the_connection(scene: Scene, phase: str) -> None:
    forbidden = [
        (number, kind.__name__)
        for number, kind in m.MESSAGES.items()
        if kind.__name__ not in PERMITS[phase]
    ]
    forbidden += [(number, f"frame of type {number}") for number in RESERVED]
    if DRIVER_CALLS not in PERMITS[phase]:
        number = call_type("cuMemAlloc_v2")
        forbidden.append((number, f"frame of type {number}"))
    assert len(forbidden) >= 30
    for number, name in forbidden:
        expected = f"{name} is not permitted in phase {phase}"
        with scene.ends_with(expected), scene.enter(phase) as guest:
            guest.send_raw(frame(number, call=7))
            assert end_told(guest) == expected


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize(
    ("header", "words"),
    [
        pytest.param(
            (None, m.Ping.TYPE, 0, 1, 0), "allowed are {limit}", id="longer than is allowed"
        ),
        pytest.param((2**32 - 1, m.Ping.TYPE, 0, 1, 0), "allowed are {limit}", id="4 GiB long"),
        pytest.param((0, m.Ping.TYPE, 8, 1, 0), "unknown frame flags 8", id="unknown flag"),
        pytest.param((0, m.Ping.TYPE, 4, 1, 0), "unknown frame flags 4", id="reserved flag"),
        pytest.param((0, m.Ping.TYPE, MORE, 1, 0), "MORE without REPLY", id="more of nothing"),
        pytest.param((0, m.Ping.TYPE, 0, 1, 1), "ack is reserved", id="ack"),
        pytest.param((0, m.Pong.TYPE, REPLY, 0, 0), "a reply to call 0", id="reply to call 0"),
        pytest.param(
            (8, m.Pong.TYPE, REPLY, 9, 0), "a reply to call 9, which nobody", id="reply to nothing"
        ),
    ],
)
def test_a_header_that_is_wrong_ends_the_connection(
    scene: Scene, phase: str, header: tuple[int | None, int, int, int, int], words: str
) -> None:
    length, *rest = header
    expected = words.format(limit=LIMITS[phase])
    with scene.ends_with(expected), scene.enter(phase) as guest:
        if length is None:
            length = LIMITS[phase] + 1
        guest.send_raw(HEADER.pack(length, *rest) + bytes(min(length, 8)))
        assert expected in end_told(guest)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_random_bytes_end_the_connection(scene: Scene, phase: str, seed: int) -> None:
    noise = random.Random(f"{phase} {seed}").randbytes(4096)
    with scene.ends_with(), scene.enter(phase) as guest:
        guest.send_raw(noise)
        assert end_told(guest)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("size", [1, 23])
@pytest.mark.parametrize("goodbye", [True, False], ids=["goodbye", "cut"])
def test_a_frame_that_breaks_off_is_a_lost_connection(
    scene: Scene, phase: str, size: int, goodbye: bool
) -> None:
    words = "in the middle of a frame" if goodbye else "closed without goodbye"
    with scene.ends_with(words), scene.enter(phase) as guest:
        guest.send_raw(frame(m.Ping.TYPE, bytes(8), call=1)[:size])
        if goodbye:
            guest.say_done()


@pytest.mark.parametrize("phase", PHASES)
def test_an_end_between_frames_is_no_failure(scene: Scene, phase: str) -> None:
    with scene.guests() as lines, scene.enter(phase) as guest:
        guest.say_done()
    assert loud(lines) == []


def hello(build: bytes = b"test", tail: bytes = b"") -> bytes:
    return struct.pack("<HHQBI", 1, 1, 0, 1, len(build)) + build + tail


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def reservation(**changes: bytes) -> bytes:
    parts = {"user": b"u", "host": b"h", "program": b"p", "key": b"k", **changes}
    return struct.pack("<IQI", 1, 1 << 20, 0) + b"".join(text(part) for part in parts.values())


@pytest.mark.parametrize(
    ("phase", "kind", "payload"),
    [
        pytest.param("hello", m.Hello, hello()[:-1], id="hello is short"),
        pytest.param("hello", m.Hello, b"", id="hello is empty"),
        pytest.param("hello", m.Hello, hello(b"x" * 65), id="build is too long"),
        pytest.param("hello", m.Hello, hello(b"\xff\xfe"), id="build is not UTF-8"),
        pytest.param("hello", m.Hello, hello(b"\xed\xa0\x80"), id="build has a surrogate"),
        pytest.param("agent", m.Ping, bytes(9), id="ping is long"),
        pytest.param("agent", m.Ping, bytes(7), id="ping is short"),
        pytest.param("agent", m.Close, b"\0\0" + text(b"x" * 513), id="close is too long"),
        pytest.param("agent", m.ReserveRequest, reservation(user=b"x" * 257), id="user too long"),
        pytest.param("agent", m.ReserveRequest, reservation(host=b"\xc0\x80"), id="host overlong"),
        pytest.param("agent", m.ReserveRequest, reservation(key=bytes(1025)), id="key too long"),
        pytest.param("agent", m.ReserveRequest, reservation()[:-1], id="request is short"),
        pytest.param("agent", m.ReleaseRequest, text(b"r") + b"x", id="bytes are left over"),
        pytest.param("session", m.Attach, b"\0\0\0\0" + text(b"x" * 257), id="program too long"),
        pytest.param("session", m.Attach, struct.pack("<II", 0, 2**32 - 1), id="length of 4 GiB"),
        pytest.param("attached", m.SetContext, bytes(7), id="context is short"),
        pytest.param("attached", m.BlobBegin, bytes(26), id="blob is long"),
        pytest.param(
            "attached", m.BlobData, bytes(16) + text(bytes(1_048_545)), id="blob data too long"
        ),
        pytest.param("attached", m.Ping, b"", id="ping is empty"),
    ],
)
def test_a_payload_that_does_not_decode_ends_the_connection(
    scene: Scene, phase: str, kind: type[Message], payload: bytes
) -> None:
    expected = f"{kind.__name__} does not decode"
    with scene.ends_with(expected), scene.enter(phase) as guest:
        guest.send_raw(frame(kind.TYPE, payload, call=7))
        assert end_told(guest) == expected


def test_what_is_appended_to_an_open_message_is_passed_over(scene: Scene) -> None:
    with scene.guests() as lines, scene.enter("hello") as guest:
        welcome = guest.request_raw(m.Hello.TYPE, hello(tail=b"of a later version"))
        assert welcome.type == m.Welcome.TYPE
        guest.say_done()
    assert loud(lines) == []


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("hello", m.Hello(1, 1, 0, 1, "")),
        ("agent", m.ListRequest()),
        ("session", m.Attach(1, "")),
    ],
)
def test_a_request_that_awaits_no_answer_ends_the_connection(
    scene: Scene, phase: str, message: Message
) -> None:
    expected = f"{type(message).__name__} without a call number"
    with scene.ends_with(expected), scene.enter(phase) as guest:
        guest.send(message)
        assert end_told(guest) == expected


def test_a_second_reservation_ends_the_connection(scene: Scene) -> None:
    with scene.ends_with("a second ReserveRequest"), scene.enter("agent") as guest:
        guest.ask(reserve_request(1 << 20), m.ReserveGrant)
        guest.send(reserve_request(1 << 20), call=9)
        end_told(guest)


@pytest.mark.parametrize(
    ("low", "high", "hint"), [(2, 9, "upgrade the appliance"), (0, 0, "upgrade the client")]
)
def test_another_version_is_told_which_side_to_upgrade(
    scene: Scene, low: int, high: int, hint: str
) -> None:
    with scene.ends_with("protocol versions"), scene.enter("hello") as guest:
        reply = guest.request(m.Hello(low, high, 0, 1, ""))
        refuse = m.Refuse.decode(reply.payload)
        assert (refuse.code, refuse.hint) == (2, hint)


def test_an_unknown_role_is_refused(scene: Scene) -> None:
    with scene.ends_with("role 3"), scene.enter("hello") as guest:
        refuse = m.Refuse.decode(guest.request(m.Hello(1, 1, 0, 3, "")).payload)
        assert refuse.code == 12


@pytest.mark.parametrize("phase", PHASES)
def test_a_reset_connection_is_a_lost_one(scene: Scene, phase: str) -> None:
    with scene.ends_with("connection lost"), scene.enter(phase) as guest:
        guest.send_raw(frame(m.Ping.TYPE, bytes(8), call=1)[:20])
        linger = struct.pack("ii", 1, 0)
        guest.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
