"""The C++ files: what each target of the build gets, by file name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from remoting.codegen.emit.codec import CppStruct, Style, cpp_struct
from remoting.codegen.emit.environment import environment
from remoting.codegen.emit.texts import error_text
from remoting.codegen.model import Api, CallClass, CFunction, Function, Param, Protocol, Role
from remoting.codegen.wire import PHASES, SENDERS

_CALLS = Style(views=True, utf8=False)
_OWNED = Style(views=False, utf8=False)
_MESSAGES = Style(views=False, utf8=True)


@dataclass(frozen=True)
class _Call:
    symbol: str
    type: int
    call_class: str
    call: CppStruct
    reply: CppStruct


@dataclass(frozen=True)
class _Export:
    c: CFunction
    declaration: str
    body: str
    arguments: str
    scope: bool
    reason: str


def message_files(protocol: Protocol) -> dict[str, str]:
    """The messages' codec."""
    templates = environment()
    known = {struct.name: struct for struct in protocol.structs}
    values = {
        "protocol": protocol,
        "phases": PHASES,
        "senders": SENDERS,
        "structs": [cpp_struct(struct, known, _MESSAGES) for struct in protocol.structs],
        "messages": [(m, cpp_struct(m.body, known, _MESSAGES)) for m in protocol.messages],
    }
    return {
        name: templates.get_template(f"{name}.j2").render(values)
        for name in ("messages.h", "messages.cc")
    }


def type_list(protocol: Protocol, api: Api) -> str:
    """gen/type_list.inc."""
    return (
        environment()
        .get_template("type_list.inc.j2")
        .render(messages=protocol.messages, calls=[f.struct_name for f in api.carried])
    )


def cpp_files(api: Api) -> dict[str, str]:
    """Everything that follows from the driver API."""
    templates = environment()
    plain = [f for f in api.functions if f.row.call_class is not CallClass.REFUSED]
    values: dict[str, object] = {
        "functions": api.functions,
        "structs": [cpp_struct(s, {}, _OWNED) for s in api.structs],
        "calls": [_call(f, api) for f in api.carried],
        "procs": api.procs,
        "symbols": sorted(api.header.functions),
        "errors": [
            {"name": name, "number": number, "text": error_text(name)}
            for name, number in api.header.error_codes
        ],
    }
    files = {
        name: templates.get_template(f"{name}.j2").render(values)
        for name in (
            "calls.h", "calls.cc", "driver_table.h", "driver_table.cc", "proc_table.h",
            "proc_table.inc", "error_names.inc", "implicit_stream.h",
        )
    }  # fmt: skip
    files["client.map"] = templates.get_template("exports.map.j2").render(values)
    files |= _client(api, plain)
    files |= _worker(api)
    for library in ("softgpu", "nullgpu"):
        name = "null_exports.cc" if library == "nullgpu" else f"{library}_exports.cc"
        space = f"headrace::{library}"
        exports = [_export(f, api, refuse=False) for f in api.header.functions.values()]
        files[name] = templates.get_template("exports.cc.j2").render(
            namespace=space, hooks=space, bodies=api.functions, exports=exports, refusals=False
        )
    return files


def _call(function: Function, api: Api) -> _Call:
    assert function.call is not None
    assert function.reply is not None
    assert function.wire_id is not None
    known = {struct.name: struct for struct in api.structs}
    return _Call(
        symbol=function.c.symbol,
        type=0x1000 + function.wire_id,
        call_class=function.call_class.value,
        call=cpp_struct(function.call, known, _CALLS),
        reply=cpp_struct(function.reply, known, _OWNED),
    )


def _client(api: Api, plain: list[Function]) -> dict[str, str]:
    templates = environment()
    by_hand = [f for f in plain if not f.client_generated]
    generated = [f for f in plain if f.client_generated]
    ordered = sorted(by_hand, key=lambda f: (f.row.family, f.c.symbol))
    families = [(name, list(group)) for name, group in groupby(ordered, lambda f: f.row.family)]
    exports = [_export(f, api, refuse=True) for f in api.header.functions.values()]
    bodies = [
        {
            "c": f.c,
            "row": f.row,
            "params": f.params,
            "struct_name": f.struct_name,
            "call_class": f.call_class,
            "via_arguments": _via_arguments(f, api),
        }
        for f in generated
    ]
    return {
        "client_families.h": templates.get_template("client_families.h.j2").render(
            families=families, generated=generated
        ),
        "client_calls.cc": templates.get_template("client_calls.cc.j2").render(functions=bodies),
        "client_exports.cc": templates.get_template("exports.cc.j2").render(
            namespace="headrace::client::families",
            hooks="headrace::client",
            bodies=plain,
            exports=exports,
            refusals=True,
        ),
    }


def _via_arguments(function: Function, api: Api) -> str:
    """The target's arguments by position; a stream that this form lacks is the implicit one."""
    if not function.row.via:
        return ""
    names = [param.name for param in function.c.params]
    wanted = len(api.header.functions[function.row.via].params)
    return ", ".join([*names, *["gen::implicit_stream()"] * (wanted - len(names))])


def _export(c: CFunction, api: Api, *, refuse: bool) -> _Export:
    function = next(f for f in api.functions if f.c.symbol == c.base)
    arguments = [param.name for param in c.params]
    streams = [p.name for p in c.params if p.ctype.base == "CUstream" and p.ctype.depth == 0]
    if c.thread_form == "ptsz":
        arguments = [
            f"headrace::gen::or_per_thread({name})" if name in streams else name
            for name in arguments
        ]
    refused = refuse and function.row.call_class is CallClass.REFUSED
    return _Export(
        c=c,
        declaration=_unnamed(c) if refused else c.declaration,
        body=c.base,
        arguments=", ".join(arguments),
        scope=bool(c.thread_form) and not streams,
        reason=_quote(function.row.reason) if refused else "",
    )


def _unnamed(c: CFunction) -> str:
    """The parameter list of a body that uses none of them."""
    return ", ".join(f"[[maybe_unused]] {param.declaration}" for param in c.params)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _worker(api: Api) -> dict[str, str]:
    templates = environment()
    functions = [
        {
            "c": f.c,
            "row": f.row,
            "params": f.params,
            "reply": f.reply,
            "struct_name": f.struct_name,
            "driver_arguments": ", ".join(_driver_arguments(f.params)),
        }
        for f in api.carried
    ]
    by_id = {f.wire_id: f for f in api.carried}
    return {
        "worker_dispatch.h": templates.get_template("worker_dispatch.h.j2").render(
            custom=[f for f in api.carried if f.row.worker == "custom"],
            deferred=[f for f in api.carried if f.row.worker == "deferred"],
        ),
        "worker_dispatch.cc": templates.get_template("worker_dispatch.cc.j2").render(
            functions=functions,
            slots=[by_id.get(number) for number in range(1, max(i or 0 for i in by_id) + 1)],
        ),
    }


def _driver_arguments(params: Iterable[Param]) -> list[str]:
    arguments: list[str] = []
    for param in params:
        name = param.c.name
        match param.role:
            case Role.CREATE | Role.OUT:
                arguments.append(f"&{name}")
            case Role.STRING:
                arguments.append(f"{name}.c_str()")
            case Role.POINTEE:
                arguments.append(f"&call.{name}")
            case Role.BYTES:
                arguments.append(f"call.{name}.data()")
            case Role.VALUE:
                arguments.append(f"static_cast<{param.c.ctype.base}>(call.{name})")
            case _:
                arguments.append(name)
    return arguments
