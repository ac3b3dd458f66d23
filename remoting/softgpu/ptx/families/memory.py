"""Loads and stores: the forms.

Addresses of .shared, .local and .param count from 0 in their window; all others are host addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builder import Value
from ..forms import Slots, form
from ..generator import ELEM, type_bits
from ..model import Addr, Instr, Int, Operand, Reg, Sym, Vec
from .access import load_values, store_values

if TYPE_CHECKING:
    from ..generator import Generator

_SMALL = ".b8|.u8|.s8|.b16|.u16|.s16|.b32|.u32|.s32|.f32"
_DOUBLE = ".b64|.u64|.s64|.f64"
#: How much a lane moves: every space takes up to 16 bytes.
_SHAPES = (
    f"{{vec:}}{{type:{_SMALL}|{_DOUBLE}|.b128}}",
    f"{{vec:.v2}}{{type:{_SMALL}|{_DOUBLE}}}",
    f"{{vec:.v4}}{{type:{_SMALL}}}",
)
#: Global memory takes 32.
_WIDE_SHAPES = (
    *_SHAPES,
    f"{{vec:.v4}}{{type:{_DOUBLE}}}",
    "{vec:.v8}{type:.b32|.u32|.s32|.f32}",
)
_SCOPE = "{.cta|.cluster|.gpu|.sys}"
_OUTER = "{space:.global|}"
_SHARED = "{space:.shared}{::cta|}"
#: Spaces with windows of their own, and what may be written of them.
_INNER = (_SHARED, "{space:.local|.const}", "{space:.param}{::entry|}")
_INNER_WRITTEN = (_SHARED, "{space:.local}")
_EVICT_FIRST_LEVEL = (
    ".L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate"
)
_EVICT_SECOND_LEVEL = ".L2::evict_normal|.L2::evict_first|.L2::evict_last"
#: Words about caches, which have no effect: none, the first level's or both, the second's alone.
_EVICTIONS = (
    "",
    f"{{{_EVICT_FIRST_LEVEL}}}{{{_EVICT_SECOND_LEVEL}|}}",
    f"{{{_EVICT_SECOND_LEVEL}}}",
)
_POLICY = "{hint:.L2::cache_hint|}"
_PREFETCH = "{.L2::64B|.L2::128B|.L2::256B|}"


def _load_forms() -> list[str]:
    caches = "{.ca|.cg|.cs|.lu|.cv|}"
    result = []
    for shape in _SHAPES:
        result += [f"ld{{.weak|}}{inner}{caches}{shape}" for inner in _INNER]
        result.append(f"ldu{_OUTER}{shape}")
    for shape in _WIDE_SHAPES:
        for evictions in _EVICTIONS:
            rest = f"{_POLICY}{_PREFETCH}{shape}"
            result += [
                f"ld{{.weak|}}{_OUTER}{evictions or caches}{rest}",
                f"ld{{space:.global}}{'' if evictions else '{.ca|.cg|.cs|}'}.nc{evictions}{rest}",
            ]
    return result


def _strong_load_forms() -> list[str]:
    result = []
    for shape in _SHAPES:
        result += [f"ld.volatile{inner}{shape}" for inner in _INNER]
        result.append(f"ld{{.relaxed|.acquire}}{_SCOPE}{_SHARED}{shape}")
    for shape in _WIDE_SHAPES:
        result.append(f"ld.volatile{_OUTER}{_PREFETCH}{shape}")
        result += [
            f"ld{{.relaxed|.acquire}}{_SCOPE}{_OUTER}{evictions}{_POLICY}{_PREFETCH}{shape}"
            for evictions in _EVICTIONS
        ]
    return [*result, f"ld.mmio.relaxed.sys{_OUTER}{{vec:}}{{type:{_SMALL}|{_DOUBLE}}}"]


def _store_forms() -> list[str]:
    caches = "{.wb|.cg|.cs|.wt|}"
    result = []
    for shape in _SHAPES:
        result += [f"st{{.weak|}}{inner}{caches}{shape}" for inner in _INNER_WRITTEN]
    for shape in _WIDE_SHAPES:
        result += [
            f"st{{.weak|}}{_OUTER}{evictions or caches}{_POLICY}{shape}" for evictions in _EVICTIONS
        ]
    return result


def _strong_store_forms() -> list[str]:
    result = []
    for shape in _SHAPES:
        result += [f"st.volatile{inner}{shape}" for inner in _INNER_WRITTEN]
        result.append(f"st{{.relaxed|.release}}{_SCOPE}{_SHARED}{shape}")
    for shape in _WIDE_SHAPES:
        result.append(f"st.volatile{_OUTER}{shape}")
        result += [
            f"st{{.relaxed|.release}}{_SCOPE}{_OUTER}{evictions}{_POLICY}{shape}"
            for evictions in _EVICTIONS
        ]
    return [*result, f"st.mmio.relaxed.sys{_OUTER}{{vec:}}{{type:{_SMALL}|{_DOUBLE}}}"]


def address(g: Generator, op: Operand, space: str) -> tuple[str, Value]:
    """(space of the helpers, address of each lane in it: i64, or i32 offsets in a window)."""
    if not isinstance(op, Addr):
        raise g.invalid("operand must be an address")
    b = g.b
    space = space.removesuffix("::cta").removesuffix("::entry")
    window = space if space in ("shared", "local", "param") else "generic"
    if isinstance(op.base, Sym):
        actual = g.space_of(op.base.name)
        if space and actual != space:
            raise g.invalid(f"{op.base.name} is not in .{space}")
        if not space and actual not in ("global", "const"):
            raise g.invalid(f"{op.base.name} needs its state space here")
        return window, g.symbol(Sym(op.base.name, op.base.offset + op.offset))
    if isinstance(op.base, Int):
        return window, b.const("i64", op.base.value + op.offset)
    assert isinstance(op.base, Reg)
    elem = g.reg_elem(op.base.name)
    if elem == "i64":
        value = g.read(op.base, "b64")
    elif elem == "i32" and window != "generic":
        value = g.read(op.base, "b32")
        if op.offset:
            value = b.bini("add", value, op.offset)
        return window, value
    else:
        raise g.invalid(f"register {op.base.name} cannot hold this address")
    return window, b.bini("add", value, op.offset) if op.offset else value


def _int_elem(type_name: str) -> str:
    return f"i{type_bits(type_name)}" if ELEM[type_name] in ("float", "double") else ELEM[type_name]


def _items(g: Generator, op: Operand, slots: Slots) -> tuple[Operand, ...]:
    count = int(slots.get("vec", "")[1:] or 1)
    items = op.items if isinstance(op, Vec) else (op,)
    if len(items) != count:
        raise g.invalid(f"needs {count} elements")
    return items


def check_policy(g: Generator, i: Instr, f: Slots, operands: int) -> None:
    """A cache policy behind the other operands exactly when the form names one."""
    hint = bool(f.get("hint"))
    if len(i.ops) != operands + hint:
        raise g.invalid("needs a cache policy" if hint else "wrong number of operands")
    if hint:
        g.read(i.ops[operands], "b64")


@form(*_load_forms(), operands=(2, 3))
def load(g: Generator, i: Instr, f: Slots) -> None:
    _load(g, i, f, strong=False)


@form(*_strong_load_forms(), operands=(2, 3))
def strong_load(g: Generator, i: Instr, f: Slots) -> None:
    """Other threads may see the place at the same time."""
    _load(g, i, f, strong=True)


def _load(g: Generator, i: Instr, f: Slots, strong: bool) -> None:
    items = _items(g, i.ops[0], f)
    check_policy(g, i, f, 2)
    space = f["space"]
    op = i.ops[1]
    if space.startswith("param") and isinstance(op, Addr) and isinstance(op.base, Sym):
        values = _parameters(g, op, f["type"], len(items))
    else:
        window, lanes = address(g, op, space)
        values = load_values(g, window, lanes, _int_elem(f["type"]), len(items), strong)
    for item, value in zip(items, values, strict=True):
        g.write(item, f["type"], value, widen=True)


def _parameters(g: Generator, op: Addr, type_name: str, count: int) -> list[Value]:
    """Kernel parameters at a fixed place: the same value in all lanes."""
    assert isinstance(op.base, Sym)
    b = g.b
    if op.base.name not in g.memory.param:
        raise g.invalid(f"{op.base.name} is not a parameter of the kernel")
    start = g.memory.param[op.base.name] + op.base.offset + op.offset
    elem = _int_elem(type_name)
    size = type_bits(type_name) // 8
    if start % (size * count) or not 0 <= start <= g.memory.param_bytes - size * count:
        raise g.invalid("parameter access out of range or misaligned")
    values = []
    for k in range(count):
        slot = b.raw(f"getelementptr i8, ptr %params, i64 {start + k * size}")
        values.append(
            b.splat(b.raw(f"load {elem}, ptr {slot}, align {size}, !invariant.load !0"), elem)
        )
    return values


@form(*_store_forms(), operands=(2, 3), writes=False)
def store(g: Generator, i: Instr, f: Slots) -> None:
    _store(g, i, f, strong=False)


@form(*_strong_store_forms(), operands=(2, 3), writes=False)
def strong_store(g: Generator, i: Instr, f: Slots) -> None:
    """Other threads may see the place at the same time."""
    _store(g, i, f, strong=True)


def _store(g: Generator, i: Instr, f: Slots, strong: bool) -> None:
    items = _items(g, i.ops[1], f)
    check_policy(g, i, f, 2)
    window, lanes = address(g, i.ops[0], f["space"])
    elem = _int_elem(f["type"])
    values = [g.b.bitcast(g.read(item, f["type"], chop=True), elem) for item in items]
    store_values(g, window, lanes, values, strong)
