"""The type words of messages.toml and of the rows' `call` and `reply` lists."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remoting.codegen.errors import SpecError
from remoting.codegen.model import HANDLE_KINDS, Message, Protocol, WireField, WireStruct, WireType

SCALARS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "i32": 4, "i64": 8, "f32": 4, "f64": 8, "bool": 1}
"""Scalar words and their sizes on the wire."""

PHASES = ("hello", "enrolling", "agent", "session", "attached", "broker", "any")
SENDERS = ("client", "server", "both")


def parse_field(name: str, word: str, structs: Mapping[str, WireStruct]) -> WireField:
    """Read `u32`, `bytes:MAX`, `handle:KIND` …; raises ValueError with the reason."""
    head, _, rest = word.partition(":")
    if head == "handle":
        if rest not in HANDLE_KINDS:
            raise ValueError(f"unknown handle kind {rest!r}")
        return WireField(name, WireType("u64"), handle=rest)
    if word == "device":
        return WireField(name, WireType("i32"), handle="device")
    return WireField(name, parse_type(word, structs))


def parse_type(word: str, structs: Mapping[str, WireStruct]) -> WireType:
    """Read the word of a type; raises ValueError with the reason."""
    parts = word.split(":")
    match parts:
        case [scalar] if scalar in SCALARS:
            return WireType(scalar)
        case ["bytes" | "string" | "array" as kind, limit] if limit.isdecimal():
            return WireType(kind, limit=int(limit))
        case ["list", element, limit] if limit.isdecimal():
            return WireType("list", limit=int(limit), element=_element(element, structs))
        case ["pod", name]:
            return WireType("pod", name=name)
    raise ValueError(f"{word!r} is no type")


def _element(word: str, structs: Mapping[str, WireStruct]) -> WireType:
    if word in SCALARS and word != "bool":
        return WireType(word)
    if word in structs:
        return WireType("struct", name=word)
    raise ValueError(f"no structure {word!r} (structures are declared before their use)")


def parse_struct(
    name: str,
    fields: Iterable[Any],
    structs: Mapping[str, WireStruct],
    where: str,
    faults: list[str],
) -> WireStruct:
    """Read a list of `[name, type]` pairs; what is wrong goes to `faults`."""
    parsed: list[WireField] = []
    for pair in fields:
        try:
            field_name, word = pair
            parsed.append(parse_field(field_name, word, structs))
        except (ValueError, TypeError) as error:
            faults.append(f"{where}: field {pair!r}: {error}")
    names = [f.name for f in parsed]
    for twice in sorted({n for n in names if names.count(n) > 1}):
        faults.append(f"{where}: field {twice!r} is there twice")
    return WireStruct(name, tuple(parsed))


def minimum_size(wire: WireType, structs: Mapping[str, WireStruct]) -> int:
    """The fewest bytes of a value: it bounds a list's count by the bytes that are left."""
    if wire.kind in SCALARS:
        return SCALARS[wire.kind]
    if wire.kind == "array":
        return wire.limit
    if wire.kind == "struct":
        return sum(minimum_size(f.type, structs) for f in structs[wire.name].fields)
    return 4 if wire.kind in ("bytes", "string", "list") else 1


def read_protocol(path: Path) -> Protocol:
    """Read messages.toml."""
    with path.open("rb") as file:
        document = tomllib.load(file)
    faults: list[str] = []
    structs: dict[str, WireStruct] = {}
    for name, body in document.get("struct", {}).items():
        structs[name] = parse_struct(
            name, body["fields"], structs, f"{path.name}: struct {name}", faults
        )
    messages = [
        _message(name, body, structs, f"{path.name}: message {name}", faults)
        for name, body in document.get("message", {}).items()
    ]
    types: dict[int, str] = {}
    for message in messages:
        if message.type in types:
            faults.append(
                f"{path.name}: {message.name} and {types[message.type]} "
                f"both have type {message.type:#06x}"
            )
        types[message.type] = message.name
    known = {message.name for message in messages}
    faults += [
        f"{path.name}: message {m.name}: answer {m.answer!r} is no message"
        for m in messages
        if m.answer and m.answer not in known
    ]
    if faults:
        raise SpecError(faults)
    return Protocol(int(document["version"]), tuple(structs.values()), tuple(messages))


def _message(
    name: str,
    body: Mapping[str, Any],
    structs: Mapping[str, WireStruct],
    where: str,
    faults: list[str],
) -> Message:
    unknown = set(body) - {"type", "phase", "from", "answer", "open", "fields"}
    faults += [f"{where}: unknown key {key!r}" for key in sorted(unknown)]
    missing = {"type", "phase", "from", "fields"} - set(body)
    faults += [f"{where}: {key!r} is missing" for key in sorted(missing)]
    number = int(body.get("type", 0))
    if not 0 < number < 0x1000:
        faults.append(f"{where}: type {number:#06x} is outside 0x0001 to 0x0fff")
    if body.get("phase") not in PHASES:
        faults.append(f"{where}: phase {body.get('phase')!r} is none of {', '.join(PHASES)}")
    if body.get("from") not in SENDERS:
        faults.append(f"{where}: from {body.get('from')!r} is none of {', '.join(SENDERS)}")
    return Message(
        name=name,
        type=number,
        phase=str(body.get("phase", "")),
        sender=str(body.get("from", "")),
        answer=str(body.get("answer", "")),
        open=bool(body.get("open", False)),
        body=parse_struct(name, body.get("fields", ()), structs, where, faults),
    )
