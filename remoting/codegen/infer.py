"""How each parameter of a carried function travels, from its C type and what its row adds."""

from __future__ import annotations

from remoting.codegen.model import (
    HANDLE_TYPES,
    CParam,
    CType,
    Function,
    Header,
    Param,
    ParamSpec,
    Role,
    WireField,
    WireType,
)

_FUNDAMENTAL = {
    "char": "u8",
    "unsigned char": "u8",
    "unsigned short": "u16",
    "int": "i32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "uint32_t": "u32",
    "unsigned long long": "u64",
    "uint64_t": "u64",
    "size_t": "u64",
    "float": "f32",
    "double": "f64",
}
_STRING_LIMIT = 65536


def wire_params(function: Function, header: Header, where: str, faults: list[str]) -> list[Param]:
    """Give every parameter a role and a field; what cannot be inferred is a fault."""
    params: list[Param] = []
    for c in function.c.params:
        spec = function.row.params.get(c.name, ParamSpec())
        try:
            params.append(_param(c, spec, header))
        except ValueError as error:
            faults.append(f"{where} {c.declaration}: {error}")
    generated = {function.row.client, function.row.worker} & {"generated"}
    for param in params:
        if param.role is Role.CREATE and function.row.client == "generated":
            faults.append(f"{where} {param.c.name}: only a custom client body can make a handle")
        if param.role is Role.NONE and generated:
            faults.append(f"{where} {param.c.name} is not carried: both bodies must be custom")
    return params


def _param(c: CParam, spec: ParamSpec, header: Header) -> Param:
    if spec.dir == "none":
        return Param(c, Role.NONE)
    if spec.string:
        return Param(
            c, Role.STRING, WireField(c.name, WireType("string", spec.limit or _STRING_LIMIT))
        )
    if spec.length:
        wire = WireField(c.name, WireType("bytes", spec.limit or _STRING_LIMIT))
        return Param(c, Role.BYTES_OUT if spec.dir == "out" else Role.BYTES, wire, spec.length)
    kind = spec.handle or _handle_kind(c.ctype, header)
    if c.ctype.depth == 0:
        return _by_value(c, kind, spec, header)
    if c.ctype.depth == 1 and c.ctype.base == "char" and c.ctype.const:
        return Param(c, Role.STRING, WireField(c.name, WireType("string", _STRING_LIMIT)))
    if c.ctype.depth > 1 or c.ctype.base == "void":
        raise ValueError('say what is behind this pointer (string, length, or dir = "none")')
    return _by_pointer(c, kind, spec, header)


def _by_value(c: CParam, kind: str, spec: ParamSpec, header: Header) -> Param:
    if kind == "device":
        return Param(c, Role.DEVICE, WireField(c.name, WireType("i32"), handle=kind))
    if kind:
        role = Role.DESTROY if spec.ownership == "destroy" else Role.HANDLE
        return Param(c, role, WireField(c.name, WireType("u64"), handle=kind))
    return Param(c, Role.VALUE, WireField(c.name, _value_type(c.ctype, header)))


def _by_pointer(c: CParam, kind: str, spec: ParamSpec, header: Header) -> Param:
    if kind and kind != "device":
        if spec.ownership != "create":
            raise ValueError('say ownership = "create", or dir = "none"')
        return Param(c, Role.CREATE, WireField(c.name, WireType("u64"), handle=kind))
    wire = WireField(c.name, _value_type(CType(c.ctype.base), header))
    if c.ctype.const or spec.dir == "in":
        if wire.type.kind != "pod":
            raise ValueError("say how many there are (length)")
        return Param(c, Role.POINTEE, wire)
    if wire.type.kind == "pod" and spec.dir != "out":
        raise ValueError('say dir = "in" or "out"')
    return Param(c, Role.OUT, wire)


def _chain(ctype: CType, header: Header) -> list[CType]:
    """The type and what its typedefs stand for, outermost first."""
    chain = [ctype]
    while chain[-1].base in header.typedefs and len(chain) < 16:
        last = chain[-1]
        target = header.typedefs[last.base]
        chain.append(CType(target.base, last.depth + target.depth, last.const or target.const))
    return chain


def _handle_kind(ctype: CType, header: Header) -> str:
    for step in _chain(CType(ctype.base), header):
        if step.base == "CUdevice":
            return "device"
        if step.base in HANDLE_TYPES:
            return HANDLE_TYPES[step.base]
    return ""


def _value_type(ctype: CType, header: Header) -> WireType:
    last = _chain(ctype, header)[-1]
    if last.depth == 0:
        if last.base in _FUNDAMENTAL:
            return WireType(_FUNDAMENTAL[last.base])
        if last.base in header.enums or last.base == "CUresult":
            return WireType("i32")
        if last.base in header.structs or f"struct {last.base}" in header.structs:
            return WireType("pod", name=ctype.base)
    raise ValueError(f'no rule for {ctype.base}: give the handle kind, or dir = "none"')
