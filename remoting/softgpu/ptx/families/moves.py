"""Moves: mov with packing, call parameters, address conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..call_parameters import LOAD_PARAM, STORE_PARAM
from ..forms import Slots, form
from ..model import Instr, Sreg, Sym, Vec

if TYPE_CHECKING:
    from ..generator import Generator

_TYPES = ".b16|.u16|.s16|.b32|.u32|.s32|.b64|.u64|.s64|.f32|.f64|.pred|.f16|.bf16|.f16x2|.bf16x2"


@form(f"mov{{type:{_TYPES}|.b128}}", operands=2)
def mov(g: Generator, i: Instr, f: Slots) -> None:
    dest, source = i.ops
    if isinstance(dest, Vec):
        _unpack(g, dest, i, f["type"])
    elif isinstance(source, Vec):
        _pack(g, source, i, f["type"])
    else:
        if (
            isinstance(source, Sreg)
            and f["type"][0] in "fb"
            and f["type"] not in ("b32", "b64", "b16")
        ):
            raise g.invalid("special register as a float")
        g.write(dest, f["type"], g.read(source, f["type"]))


def _part_width(g: Generator, vector: Vec, type_name: str) -> int:
    width = int(type_name[1:]) if type_name[0] in "bus" else 0
    if width < 16 or len(vector.items) not in (2, 4, 8):
        raise g.unsupported(f"mov.{type_name} with {len(vector.items)} elements")
    part = width // len(vector.items)
    if part < 8:
        raise g.invalid("elements narrower than a byte")
    return part


def _unpack(g: Generator, dest: Vec, i: Instr, type_name: str) -> None:
    part = _part_width(g, dest, type_name)
    value = g.read(i.ops[1], type_name)
    for k, item in enumerate(dest.items):
        piece = g.b.bini("lshr", value, k * part) if k else value
        g.write(item, f"b{part}", g.b.cast("trunc", piece, f"i{part}"))


def _pack(g: Generator, source: Vec, i: Instr, type_name: str) -> None:
    part = _part_width(g, source, type_name)
    elem = f"i{part * len(source.items)}"
    whole: Value | None = None
    for k, item in enumerate(source.items):
        piece = g.b.cast("zext", g.read(item, f"b{part}"), elem)
        if k:
            piece = g.b.bini("shl", piece, k * part)
        whole = piece if whole is None else g.b.bin("or", whole, piece)
    assert whole is not None
    g.write(i.ops[0], type_name, whole)


_MEMORY = ".b8|.u8|.s8|.b16|.u16|.s16|.b32|.u32|.s32|.b64|.u64|.s64|.f32|.f64|.b128"


@form(f"{LOAD_PARAM[:-1]}{{type:{_MEMORY}}}", operands=2)
def load_parameter(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], f["type"], g.read(i.ops[1], f["type"]), widen=True)


@form(f"{STORE_PARAM[:-1]}{{type:{_MEMORY}}}", operands=2)
def store_parameter(g: Generator, i: Instr, f: Slots) -> None:
    g.write(i.ops[0], f["type"], g.read(i.ops[1], f["type"], chop=True))


_WINDOWS = {
    "shared": "%shared.i",
    "shared::cta": "%shared.i",
    "param": "%params.i",
    "param::entry": "%params.i",
}


def window_base(g: Generator, space: str) -> Value | None:
    """Generic address of offset 0 of a space; None where addresses are generic already."""
    b = g.b
    if space == "local":
        size = b.splat(b.raw("zext i32 %local_bytes to i64"), "i64")
        lane = b.cast("zext", Value("%lane", "i32"), "i64")
        return b.bin("add", b.splat("%local.i", "i64"), b.bin("mul", lane, size))
    if space in _WINDOWS:
        return b.splat(_WINDOWS[space], "i64")
    return None


_CVTA = ".global|.const|.shared|.shared::cta|.local|.param|.param::entry"


@form(f"cvta{{to:.to|}}{{space:{_CVTA}}}.u64", operands=2)
def cvta(g: Generator, i: Instr, f: Slots) -> None:
    if f["to"] and isinstance(i.ops[1], Sym):
        raise g.invalid("variable as a generic address")
    value = g.read(i.ops[1], "u64")
    base = window_base(g, f["space"])
    if base is not None:
        value = g.b.bin("sub" if f["to"] else "add", value, base)
    g.write(i.ops[0], "u64", value)


@form("isspacep{space:.global|.const|.shared|.shared::cta|.local|.param|.param::entry}", operands=2)
def isspacep(g: Generator, i: Instr, f: Slots) -> None:
    b = g.b
    value = g.read(i.ops[1], "u64")

    def inside(base: str, size: str) -> Value:
        return b.icmp("ult", b.bin("sub", value, b.splat(base, "i64")), b.splat(size, "i64"))

    shared_size = b.raw("zext i32 %shared_bytes to i64")
    local_size = b.raw(f"shl i64 {b.raw('zext i32 %local_bytes to i64')}, 5")
    param_size = str(g.memory.param_bytes)
    windows = {
        "shared": ("%shared.i", shared_size),
        "local": ("%local.i", local_size),
        "param": ("%params.i", param_size),
    }
    space = f["space"].removesuffix("::cta").removesuffix("::entry")
    if space == "const":
        result = _in_constants(g, value)
    elif space == "global":
        result = b.const("i1", 1)
        for base, size in windows.values():
            result = b.bin("and", result, b.invert(inside(base, size)))
        result = b.bin("and", result, b.invert(_in_constants(g, value)))
    else:
        result = inside(*windows[space])
    g.write(i.ops[0], "pred", result)


def _in_constants(g: Generator, value: Value) -> Value:
    """Does the address lie in one of the module's .const variables?"""
    b = g.b
    result = b.const("i1", 0)
    for name, offset in g.globals.offsets.items():
        var = g.module.variables[name]
        if var.space == "const":
            start = b.splat(b.raw(f"add i64 %globals.i, {offset}"), "i64")
            result = b.bin(
                "or", result, b.icmp("ult", b.bin("sub", value, start), b.const("i64", var.size))
            )
    return result
