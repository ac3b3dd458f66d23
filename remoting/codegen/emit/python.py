"""The messages' codec for Python."""

from __future__ import annotations

from collections.abc import Mapping

from remoting.codegen.emit.environment import environment
from remoting.codegen.model import Protocol, WireField, WireStruct, WireType
from remoting.codegen.wire import minimum_size

_REALS = ("f32", "f64")
_METHODS = {"bytes": "block", "string": "text", "array": "raw"}
"""Methods of the codec's writer and reader that take a limit."""


def python_codec(protocol: Protocol) -> str:
    """remoting/protocol/gen/messages.py."""
    structs = {struct.name: struct for struct in protocol.structs}
    return (
        environment()
        .get_template("messages.py.j2")
        .render(
            protocol=protocol,
            answers={m.name: m.type for m in protocol.messages},
            structs=[_class(struct, structs) for struct in protocol.structs],
            messages=[(m, _class(m.body, structs)) for m in protocol.messages],
        )
    )


def _class(struct: WireStruct, structs: Mapping[str, WireStruct]) -> dict[str, object]:
    return {
        "name": struct.name,
        "fields": [
            {
                "name": field.name,
                "type": _type(field.type),
                "write": _write(field),
                "read": _read(field.type, structs),
            }
            for field in struct.fields
        ],
    }


def _type(wire: WireType) -> str:
    match wire.kind:
        case "bool":
            return "bool"
        case "bytes" | "array":
            return "bytes"
        case "string":
            return "str"
        case "struct":
            return wire.name
        case "list":
            assert wire.element is not None
            return f"list[{_type(wire.element)}]"
    return "float" if wire.kind in _REALS else "int"


def _write(field: WireField) -> str:
    value, wire = f"self.{field.name}", field.type
    match wire.kind:
        case "bool":
            return f"writer.flag({value})"
        case "bytes" | "string" | "array":
            return f"writer.{_METHODS[wire.kind]}({value}, {wire.limit})"
        case "list":
            assert wire.element is not None
            if wire.element.kind == "struct":
                one = "lambda element: element.write(writer)"
            else:
                one = f'lambda element: writer.scalar("{wire.element.kind}", element)'
            return f"writer.items({value}, {wire.limit}, {one})"
    return f'writer.scalar("{wire.kind}", {value})'


def _read(wire: WireType, structs: Mapping[str, WireStruct]) -> str:
    match wire.kind:
        case "bool":
            return "reader.flag()"
        case "bytes" | "string" | "array":
            return f"reader.{_METHODS[wire.kind]}({wire.limit})"
        case "struct":
            return f"{wire.name}.read(reader)"
        case "list":
            assert wire.element is not None
            smallest = minimum_size(wire.element, structs)
            return f"reader.items({wire.limit}, {smallest}, lambda: {_read(wire.element, structs)})"
    return f'reader.{"real" if wire.kind in _REALS else "integer"}("{wire.kind}")'
