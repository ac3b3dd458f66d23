"""Reads remoting/apispec: one TOML table per driver function, and the wire ids."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoting.codegen.errors import SpecError
from remoting.codegen.model import CallClass, ParamSpec, Row, WireStruct
from remoting.codegen.wire import parse_struct

_ROW_KEYS = (
    "class", "via", "reason", "note", "client", "worker", "frame", "cache", "params", "call",
    "reply",
)  # fmt: skip
_PARAM_KEYS = ("dir", "handle", "ownership", "length", "string", "limit")
_CHOICES = {
    "client": ("generated", "custom"),
    "worker": ("generated", "custom", "deferred"),
    "dir": ("in", "out", "none"),
    "ownership": ("use", "create", "destroy"),
}
IDS = "ids.toml"
STRUCTS = "structs.toml"


@dataclass(frozen=True)
class Spec:
    """All rows, wire ids and the structures that rows use."""

    rows: dict[str, Row]
    ids: dict[str, int]
    structs: dict[str, WireStruct]


def read_spec(folder: Path) -> Spec:
    """Read every family file; all faults are reported together."""
    faults: list[str] = []
    rows: dict[str, Row] = {}
    for path in sorted(folder.glob("*.toml")):
        if path.name in (IDS, STRUCTS):
            continue
        for name, body in _load(path, faults).items():
            where = f"{path.name}: [{name}]"
            if name in rows:
                faults.append(f"{where}: there is a row already in {rows[name].family}.toml")
            rows[name] = _row(name, path.stem, body, where, faults)
    ids = _ids(folder / IDS, faults)
    structs: dict[str, WireStruct] = {}
    for name, body in _load(folder / STRUCTS, faults).items():
        structs[name] = parse_struct(name, body["fields"], structs, f"{STRUCTS}: [{name}]", faults)
    if faults:
        raise SpecError(faults)
    return Spec(rows, ids, structs)


def append_ids(folder: Path) -> list[str]:
    """Give every row with a frame an id; ids that exist never change. Returns the new names."""
    spec = read_spec(folder)
    fresh = sorted(n for n, row in spec.rows.items() if row.frame and n not in spec.ids)
    number = max(spec.ids.values(), default=0)
    with (folder / IDS).open("a") as file:
        for name in fresh:
            number += 1
            file.write(f"{name} = {number}\n")
    return fresh


def _load(path: Path, faults: list[str]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        faults.append(f"{path.name}: {error}")
        return {}


def _ids(path: Path, faults: list[str]) -> dict[str, int]:
    ids: dict[str, int] = _load(path, faults)
    owners: dict[int, str] = {}
    for name, number in ids.items():
        if not 0 < number < 0xF000:
            faults.append(f"{IDS}: {name} = {number}: ids go from 1 to {0xEFFF}")
        if number in owners:
            faults.append(f"{IDS}: {name} and {owners[number]} share the id {number}")
        owners[number] = name
    if list(ids.values()) != sorted(ids.values()):
        faults.append(f"{IDS}: ids must ascend: new names are appended, and none is ever taken out")
    return ids


def _row(name: str, family: str, body: Mapping[str, Any], where: str, faults: list[str]) -> Row:
    _unknown(body, _ROW_KEYS, where, faults)
    _choices(body, where, faults)
    word = body.get("class", "")
    call_class: CallClass | None = None
    if word:
        try:
            call_class = CallClass(word)
        except ValueError:
            faults.append(f"{where}: class {word!r} is none of {', '.join(CallClass)}")
    if bool(word) == ("via" in body):
        faults.append(
            f"{where}: give either a class or, for another name of a carried function, via"
        )
    if call_class is CallClass.REFUSED and not body.get("reason"):
        faults.append(f"{where}: a refused function needs a reason")
    if call_class is not CallClass.REFUSED and body.get("reason"):
        faults.append(f"{where}: only a refused function has a reason (use note)")
    carried = call_class in (CallClass.SEND, CallClass.TRIP, CallClass.CALLBACK)
    if not carried:
        faults += [
            f"{where}: {key!r} belongs to carried functions only"
            for key in ("client", "worker", "frame", "cache", "params", "call", "reply")
            if key in body
        ]
    frame = carried and bool(body.get("frame", True))
    return Row(
        name=name,
        family=family,
        call_class=call_class,
        via=str(body.get("via", "")),
        reason=str(body.get("reason", "")),
        note=str(body.get("note", "")),
        client=str(body.get("client", "generated" if frame else "custom")),
        worker=str(body.get("worker", "generated")) if frame else "",
        frame=frame,
        cache=bool(body.get("cache", False)),
        params={
            param: _param(spec, f"{where}: {param}", faults)
            for param, spec in body.get("params", {}).items()
        },
        call=tuple(tuple(pair) for pair in body.get("call", ())),
        reply=tuple(tuple(pair) for pair in body.get("reply", ())),
    )


def _param(body: Mapping[str, Any], where: str, faults: list[str]) -> ParamSpec:
    _unknown(body, _PARAM_KEYS, where, faults)
    _choices(body, where, faults)
    return ParamSpec(
        dir=str(body.get("dir", "")),
        handle=str(body.get("handle", "")),
        ownership=str(body.get("ownership", "")),
        length=str(body.get("length", "")),
        string=bool(body.get("string", False)),
        limit=int(body.get("limit", 0)),
    )


def _choices(body: Mapping[str, Any], where: str, faults: list[str]) -> None:
    for key, choices in _CHOICES.items():
        if key in body and body[key] not in choices:
            faults.append(f"{where}: {key} {body[key]!r} is none of {', '.join(choices)}")


def _unknown(
    body: Mapping[str, Any], known: tuple[str, ...], where: str, faults: list[str]
) -> None:
    for key in body:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            faults.append(f"{where}: unknown key {key!r}{hint}")
