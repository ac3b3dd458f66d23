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

_TYPES = ".b8|.u8|.s8|.b16|.u16|.s16|.b32|.u32|.s32|.b64|.u64|.s64|.f32|.f64|.b128"
_VECTOR = "{vec:.v2|.v4|.v8|}"
_SCOPE = "{.cta|.cluster|.gpu|.sys}"
_SPACES = "{space:.global|.shared|.shared::cta|.local|.const|.param|.param::entry|}"
_STORE_SPACES = "{space:.global|.shared|.shared::cta|.local|}"
_EVICT = (
    "{.L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate|}"
)
_EVICT2 = "{.L2::evict_normal|.L2::evict_first|.L2::evict_last|}"
_PREFETCH = "{.L2::64B|.L2::128B|.L2::256B|}"


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
    total = count * type_bits(slots["type"]) // 8
    if total > 32 or (total > 16 and slots.get("space", "") not in ("global", "")):
        raise g.unsupported(g.instr.form if g.instr else "")
    return items


@form(
    f"ld{{strong:.weak|}}{_SPACES}{{.ca|.cg|.cs|.lu|.cv|}}{_EVICT}{_EVICT2}{_PREFETCH}{_VECTOR}{{type:{_TYPES}}}",
    f"ld{{strong:.volatile}}{_SPACES}{_PREFETCH}{_VECTOR}{{type:{_TYPES}}}",
    f"ld{{strong:.relaxed|.acquire}}{_SCOPE}{_SPACES}{_EVICT}{_EVICT2}{_PREFETCH}{_VECTOR}{{type:{_TYPES}}}",
    f"ld{{strong:.mmio}}.relaxed.sys{{space:.global|}}{{type:{_TYPES}}}",
    f"ld{{space:.global}}{{.ca|.cg|.cs|}}.nc{_EVICT}{_EVICT2}{_PREFETCH}{_VECTOR}{{type:{_TYPES}}}",
    f"ldu{{space:.global|}}{_VECTOR}{{type:{_TYPES}}}",
    operands=2,
)
def load(g: Generator, i: Instr, f: Slots) -> None:
    items = _items(g, i.ops[0], f)
    space = f["space"]
    strong = f.get("strong", "") not in ("", "weak")
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


@form(
    f"st{{strong:.weak|}}{_STORE_SPACES}{{.wb|.cg|.cs|.wt|}}{_EVICT}{_EVICT2}{_VECTOR}{{type:{_TYPES}}}",
    f"st{{strong:.volatile}}{_STORE_SPACES}{_VECTOR}{{type:{_TYPES}}}",
    f"st{{strong:.relaxed|.release}}{_SCOPE}{_STORE_SPACES}{_EVICT}{_EVICT2}{_VECTOR}{{type:{_TYPES}}}",
    f"st{{strong:.mmio}}.relaxed.sys{{space:.global|}}{{type:{_TYPES}}}",
    operands=2,
    writes=False,
)
def store(g: Generator, i: Instr, f: Slots) -> None:
    items = _items(g, i.ops[1], f)
    strong = f["strong"] not in ("", "weak")
    window, lanes = address(g, i.ops[0], f["space"])
    elem = _int_elem(f["type"])
    values = [g.b.bitcast(g.read(item, f["type"], chop=True), elem) for item in items]
    store_values(g, window, lanes, values, strong)
