"""The golden vectors as C++, so that the test of the C++ codec needs no parser of its own."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoting.codegen.emit.environment import environment
from remoting.codegen.model import Api, Protocol, WireStruct, WireType


@dataclass(frozen=True)
class _Vector:
    type: str
    about: str
    hex: str
    statements: tuple[str, ...]


def vector_file(protocol: Protocol, api: Api, folder: Path) -> str:
    """gen/test_vectors.inc."""
    messages = _load(folder / "messages.toml")
    calls = _load(folder / "calls.toml")
    message_structs = {s.name: s for s in protocol.structs}
    message_bodies = {m.name: m.body for m in protocol.messages}
    call_bodies = {s.name: s for f in api.carried for s in (f.call, f.reply) if s is not None}
    call_structs = {s.name: s for s in api.structs}
    return (
        environment()
        .get_template("test_vectors.inc.j2")
        .render(
            messages=_vectors(messages["vector"], message_bodies, message_structs),
            calls=_vectors(calls["vector"], call_bodies, call_structs),
            later=messages["later"],
            refused=messages["refused"],
            refused_calls=calls["refused"],
        )
    )


def _load(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return tomllib.load(file)


def _vectors(
    entries: Sequence[Mapping[str, Any]],
    bodies: Mapping[str, WireStruct],
    structs: Mapping[str, WireStruct],
) -> list[_Vector]:
    return [
        _Vector(
            type=entry["message"],
            about=entry.get("about", ""),
            hex=entry["hex"],
            statements=tuple(
                _assign("value", bodies[entry["message"]], entry.get("fields", {}), structs)
            ),
        )
        for entry in entries
    ]


def _assign(
    target: str,
    struct: WireStruct,
    fields: Mapping[str, Any],
    structs: Mapping[str, WireStruct],
) -> list[str]:
    """Statements that set every field; all must be given, so that a new one is not forgotten."""
    names = [field.name for field in struct.fields]
    if sorted(names) != sorted(fields):
        raise ValueError(f"vector of {struct.name}: fields {sorted(fields)}, wanted {names}")
    lines: list[str] = []
    for field in struct.fields:
        place, value = f"{target}.{field.name}", fields[field.name]
        lines += _set(place, field.type, value, structs)
    return lines


def _set(
    place: str, wire: WireType, value: Any, structs: Mapping[str, WireStruct], depth: int = 0
) -> list[str]:
    match wire.kind:
        case "bool":
            return [f"{place} = {'true' if value else 'false'};"]
        case "string":
            return [f"{place} = {json.dumps(value, ensure_ascii=False)};"]
        case "array":
            return [f"{place} = {{{_bytes(value)}}};"]
        case "bytes":
            # Static, because a call's field is a view.
            held = "held_" + place.rpartition(".")[2]
            return [
                f"static const std::vector<std::uint8_t> {held}{{{_bytes(value)}}};",
                f"{place} = {{{held}.begin(), {held}.end()}};",
            ]
        case "list":
            lines: list[str] = []
            for element in value:
                lines += _append(place, wire, element, structs, depth)
            return lines
    return [f"{place} = {_number(wire.kind, value)};"]


def _append(
    place: str, wire: WireType, element: Any, structs: Mapping[str, WireStruct], depth: int
) -> list[str]:
    assert wire.element is not None
    if wire.element.kind != "struct":
        return [f"{place}.push_back({_number(wire.element.kind, element)});"]
    name = f"element{depth}"
    lines = ["{", f"{wire.element.name} {name};"]
    for field in structs[wire.element.name].fields:
        lines += _set(f"{name}.{field.name}", field.type, element[field.name], structs, depth + 1)
    return [*lines, f"{place}.push_back({name});", "}"]


def _bytes(value: str) -> str:
    return ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(value))


def _number(kind: str, value: Any) -> str:
    if kind in ("f32", "f64"):
        return repr(float(value)) + ("f" if kind == "f32" else "")
    number = int(value, 0) if isinstance(value, str) else int(value)
    return f"{number}{'u' if kind.startswith('u') else ''}{'ll' if kind.endswith('64') else ''}"
