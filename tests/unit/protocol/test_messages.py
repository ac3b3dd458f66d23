"""The messages' codec in Python, against the golden bytes and against values of its own."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.protocol.codec import CodecError, Message
from remoting.protocol.gen import messages

VECTORS = tomllib.loads(
    (Path(__file__).parents[3] / "remoting/protocol/vectors/messages.toml").read_text()
)


def build(kind: Any, fields: dict[str, Any]) -> Any:
    """Make a message or structure from a vector's fields."""
    hints = typing.get_type_hints(kind)
    return kind(**{name: value_of(hints[name], value) for name, value in fields.items()})


def value_of(hint: Any, value: Any) -> Any:
    if isinstance(hint, types.GenericAlias):
        (element,) = typing.get_args(hint)
        return [value_of(element, one) for one in value]
    if hint is bytes:
        return bytes.fromhex(value)
    if hint is int and isinstance(value, str):
        return int(value, 0)
    return build(hint, value) if dataclasses.is_dataclass(hint) else value


def message_class(name: str) -> type[Message]:
    found = getattr(messages, name)
    assert issubclass(found, Message)
    return found


def title(entry: dict[str, Any]) -> str:
    return f"{entry['message']}-{entry.get('about') or entry.get('why') or 'plain'}"


@pytest.mark.parametrize("entry", VECTORS["vector"], ids=title)
def test_fields_and_golden_bytes_agree(entry: dict[str, Any]) -> None:
    kind = message_class(entry["message"])
    message = build(kind, entry.get("fields", {}))
    assert message.encode().hex() == entry["hex"]
    assert kind.decode(bytes.fromhex(entry["hex"])) == message


@pytest.mark.parametrize("entry", VECTORS["vector"], ids=title)
def test_nothing_of_the_golden_bytes_is_missing_unnoticed(entry: dict[str, Any]) -> None:
    payload = bytes.fromhex(entry["hex"])
    for length in range(len(payload)):
        with pytest.raises(CodecError):
            message_class(entry["message"]).decode(payload[:length])


@pytest.mark.parametrize("entry", VECTORS["later"], ids=title)
def test_what_a_later_version_appends_is_passed_over(entry: dict[str, Any]) -> None:
    message = message_class(entry["message"]).decode(bytes.fromhex(entry["hex"]))
    assert message.encode().hex() == entry["same_as"]


@pytest.mark.parametrize("entry", VECTORS["refused"], ids=title)
def test_refused_bytes_do_not_decode(entry: dict[str, Any]) -> None:
    payload = bytes.fromhex(entry["hex"]) + bytes(entry.get("pad", 0))
    with pytest.raises(CodecError):
        message_class(entry["message"]).decode(payload)


def test_every_message_has_a_golden_vector() -> None:
    covered = {entry["message"] for entry in VECTORS["vector"]}
    assert covered == {kind.__name__ for kind in messages.MESSAGES.values()}


@given(st.sampled_from(sorted(messages.MESSAGES)), st.binary(max_size=200))
def test_random_bytes_decode_to_what_encodes_back_or_not_at_all(
    number: int, payload: bytes
) -> None:
    kind = messages.MESSAGES[number]
    try:
        message = kind.decode(payload)
    except CodecError:
        return
    again = message.encode()
    assert payload == again or (kind.OPEN and payload.startswith(again))


@given(st.text(max_size=128))
def test_any_text_within_the_limit_survives(text: str) -> None:
    wanted = messages.Refuse(code=5, text=text, hint="")
    assert messages.Refuse.decode(wanted.encode()) == wanted


@pytest.mark.parametrize(
    "message",
    [
        messages.Close(code=0, text="x" * 513),
        messages.Close(code=65536, text=""),
        messages.Close(code=-1, text=""),
        messages.Close(code=0, text="\udc80"),
        messages.Ping(cookie=2**64),
        messages.MemoryRequest(device=0, delta=2**63),
        messages.ListReply(gpus=[None] * 1025),  # type: ignore[list-item]
        messages.GrantedDevice(b"", b"", 0, 0, 0, "", 0, 0),
    ],
)
def test_a_value_that_the_other_side_would_refuse_is_not_encoded(message: Any) -> None:
    if not isinstance(message, Message):
        message = messages.SessionGrant("", "", False, [], [message])
    with pytest.raises(CodecError):
        message.encode()


def test_messages_know_their_phase_and_answer() -> None:
    assert messages.Hello.PHASE == "hello"
    assert messages.Hello.ANSWER == messages.Welcome.TYPE
    assert messages.MESSAGES[0x0001] is messages.Hello
