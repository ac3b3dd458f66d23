"""C++ of the codec: members, checks, writes and reads of one structure, as template data.

Neighbouring fields of fixed size become one run, so that a call without strings is one bounds
check and a handful of moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from remoting.codegen.model import WireField, WireStruct, WireType
from remoting.codegen.wire import SCALARS, minimum_size

_CPP_SCALARS = {
    "u8": "std::uint8_t",
    "u16": "std::uint16_t",
    "u32": "std::uint32_t",
    "u64": "std::uint64_t",
    "i32": "std::int32_t",
    "i64": "std::int64_t",
    "f32": "float",
    "f64": "double",
    "bool": "bool",
}


@dataclass(frozen=True)
class Style:
    """How variable fields are held: as views into the frame, or owned."""

    views: bool
    utf8: bool
    """Whether strings are checked to be UTF-8 (messages), or are bytes to the codec (calls)."""


@dataclass(frozen=True)
class CppStruct:
    """What a template needs to write one structure."""

    name: str
    members: tuple[str, ...]
    fits: tuple[str, ...]
    writes: tuple[str, ...]
    reads: tuple[str, ...]
    fixed: bool


def cpp_struct(struct: WireStruct, structs: Mapping[str, WireStruct], style: Style) -> CppStruct:
    """Turn a structure into lines of C++."""
    writes: list[str] = []
    reads: list[str] = []
    for run in _runs(struct.fields):
        if len(run) > 1 or _fixed(run[0].type):
            writes += _write_run(run)
            reads += _read_run(run)
        else:
            writes += _write_one(run[0])
            reads += _read_one(run[0], structs, style)
    return CppStruct(
        name=struct.name,
        members=tuple(f"{_cpp_type(f.type, style)} {f.name}{{}};" for f in struct.fields),
        fits=tuple(line for f in struct.fields for line in _fits(f, structs, style)),
        writes=tuple(writes),
        reads=tuple(reads),
        fixed=all(_fixed(f.type) for f in struct.fields),
    )


def _fixed(wire: WireType) -> bool:
    return wire.kind in SCALARS or wire.kind in ("array", "pod")


def _runs(fields: tuple[WireField, ...]) -> list[list[WireField]]:
    runs: list[list[WireField]] = []
    for field in fields:
        if runs and _fixed(field.type) and _fixed(runs[-1][0].type):
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _cpp_type(wire: WireType, style: Style) -> str:
    match wire.kind:
        case "bytes":
            return "std::span<const std::uint8_t>" if style.views else "std::vector<std::uint8_t>"
        case "string":
            return "std::string_view" if style.views else "std::string"
        case "array":
            return f"std::array<std::uint8_t, {wire.limit}>"
        case "list":
            assert wire.element is not None
            return f"std::vector<{_cpp_type(wire.element, style)}>"
        case "struct" | "pod":
            return wire.name
    return _CPP_SCALARS[wire.kind]


def _size(wire: WireType) -> str:
    if wire.kind == "pod":
        return f"sizeof({wire.name})"
    return str(wire.limit if wire.kind == "array" else SCALARS[wire.kind])


def _sum(run: list[WireField]) -> str:
    known = sum(int(_size(f.type)) for f in run if f.type.kind != "pod")
    pods = [_size(f.type) for f in run if f.type.kind == "pod"]
    return " + ".join([str(known), *pods])


def _write_run(run: list[WireField]) -> list[str]:
    lines = ["{", f"  std::uint8_t* at = writer.extend({_sum(run)});"]
    for field in run:
        value = f"std::uint8_t{{{field.name}}}" if field.type.kind == "bool" else field.name
        lines.append(f"  codec::store(at, {value});")
    return [*lines, "}"]


def _read_run(run: list[WireField]) -> list[str]:
    size = _sum(run)
    lines = [
        "{",
        f"  std::span<const std::uint8_t> run = reader.raw({size});",
        "  if (!reader.ok()) return;",
        "  const std::uint8_t* at = run.data();",
    ]
    for field in run:
        if field.type.kind == "bool":
            lines.append(f"  if (!codec::load_bool(at, {field.name})) return reader.fail();")
        else:
            lines.append(f"  codec::load(at, {field.name});")
    return [*lines, "}"]


def _write_one(field: WireField) -> list[str]:
    name = field.name
    match field.type.kind:
        case "bytes" | "string" as kind:
            return [f"writer.{kind}({name});"]
        case "list" if field.type.element is not None and field.type.element.kind == "struct":
            return [
                f"writer.u32(static_cast<std::uint32_t>({name}.size()));",
                f"for (const {field.type.element.name}& element : {name}) element.write(writer);",
            ]
    return [f"codec::write_scalars(writer, {name});"]


def _read_one(field: WireField, structs: Mapping[str, WireStruct], style: Style) -> list[str]:
    name, limit = field.name, field.type.limit
    match field.type.kind:
        case "bytes" if style.views:
            return [f"{name} = reader.bytes({limit});"]
        case "bytes":
            return [
                "{",
                f"  std::span<const std::uint8_t> view = reader.bytes({limit});",
                f"  {name}.assign(view.begin(), view.end());",
                "}",
            ]
        case "string":
            lines = [f"{name} = reader.string({limit});"]
            if style.utf8:
                lines.append(f"if (!codec::valid_utf8({name})) return reader.fail();")
            return lines
        case "list" if field.type.element is not None and field.type.element.kind == "struct":
            element = field.type.element
            size = minimum_size(element, structs)
            return [
                f"{name}.resize(codec::read_count(reader, {limit}, {size}));",
                f"for ({element.name}& element : {name}) {{",
                "  element.read(reader);",
                "  if (!reader.ok()) return;",
                "}",
            ]
    return [f"codec::read_scalars(reader, {limit}, {name});"]


def _fits(field: WireField, structs: Mapping[str, WireStruct], style: Style) -> list[str]:
    if field.type.kind not in ("bytes", "string", "list"):
        return []
    lines = [f"if ({field.name}.size() > {field.type.limit}) return false;"]
    if field.type.kind == "string" and style.utf8:
        lines.append(f"if (!codec::valid_utf8({field.name})) return false;")
    element = field.type.element
    if element is not None and element.kind == "struct":
        inner = structs[element.name].fields
        if any(f.type.kind in ("bytes", "string", "list") for f in inner):
            lines += [
                f"for (const {element.name}& element : {field.name}) {{",
                "  if (!element.fits()) return false;",
                "}",
            ]
    return lines
