"""Loads and stores.

A warp whose 32 lanes are all active and access consecutive places is one range check and one
vector access, inline.  Everything else goes to ``sgrt_load``/``sgrt_store`` (exec/device), which
check each lane.  Addresses: .shared, .local and .param count from 0 in their window; all others
are host addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value
from ..forms import Slots, form
from ..generator import ELEM, type_bits
from ..model import Addr, Instr, Int, Operand, Reg, Sym, Vec

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
    """(space of the helpers, address of each lane in it as i64)."""
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
        return window, b.cast("zext", value, "i64")
    else:
        raise g.invalid(f"register {op.base.name} cannot hold this address")
    return window, b.bini("add", value, op.offset) if op.offset else value


def spec(window: str, size: int, count: int) -> int:
    """The helpers' description of an access."""
    return abi.SPACES[window] | (size.bit_length() - 1) << 4 | count << 8


class _FastPath:
    """The inline check "all lanes active, consecutive, aligned, in range" and its two branches."""

    def __init__(self, g: Generator, window: str, lanes: Value, bytes_: int) -> None:
        b = self.b = g.b
        self.fast, self.slow, self.done = b.new_label(), b.new_label(), b.new_label()
        first = b.raw(f"extractelement {lanes.typed}, i32 0")
        steps = b.table("i64", [bytes_ * k for k in range(32)])
        follows = b.icmp("eq", lanes, b.bin("add", b.splat(first, "i64"), steps))
        all_ok = b.raw(f"icmp eq i32 {b.raw(f'and i32 {b.to_mask(follows)}, {g.mask}')}, -1")
        total = 32 * bytes_
        if window == "shared":
            b.declare("i32 @llvm.usub.sat.i32(i32, i32)")
            limit = b.raw(f"call i32 @llvm.usub.sat.i32(i32 %shared_bytes, i32 {total - 1})")
            in_range = b.raw(f"icmp ult i64 {first}, {b.raw(f'zext i32 {limit} to i64')}")
            base, offset = "%shared", first
        else:
            b.declare("i64 @llvm.usub.sat.i64(i64, i64)")
            limit = b.raw(f"call i64 @llvm.usub.sat.i64(i64 %arena_size, i64 {total - 1})")
            offset = b.raw(f"sub i64 {first}, %arena_lo")
            in_range = b.raw(f"icmp ult i64 {offset}, {limit}")
            base, offset = "null", first
        ok = b.raw(f"and i1 {all_ok}, {in_range}")
        if bytes_ > 1:
            low = b.raw(f"and i64 {first}, {bytes_ - 1}")
            ok = b.raw(f"and i1 {ok}, {b.raw(f'icmp eq i64 {low}, 0')}")
        b.branch(ok, self.fast, self.slow)
        b.label(self.fast)
        if base == "null":
            self.pointer = b.raw(f"inttoptr i64 {first} to ptr")
        else:
            self.pointer = b.raw(f"getelementptr i8, ptr {base}, i64 {offset}")


def _barrier(g: Generator, strong: bool) -> None:
    """Keeps the compiler from moving or merging accesses that other threads can see."""
    if strong:
        g.b.emit('call void asm sideeffect "", "~{memory}"()')


def load_values(
    g: Generator, window: str, lanes: Value, elem: str, count: int, strong: bool
) -> list[Value]:
    """``count`` neighbouring elements of each lane."""
    b = g.b
    size = b.const(elem, 0).bits // 8
    result = g.temp(elem, count)
    shape = b.const(elem, 0)
    _barrier(g, strong)
    fast: _FastPath | None = None
    if window in ("generic", "shared") and count <= 4 and size <= 8:
        fast = _FastPath(g, window, lanes, size * count)
        whole = b.load(elem, fast.pointer, 32 * count, align=size)
        for k in range(count):
            part = (
                b.shuffle(whole, None, [lane * count + k for lane in range(32)])
                if count > 1
                else whole
            )
            b.store(part, g.part(result, shape, k), 64)
        b.jump(fast.done)
        b.label(fast.slow)
    g.helper(
        "load",
        "ptr %env",
        f"i32 {spec(window, size, count)}",
        f"i32 {g.memory.param_bytes}",
        f"ptr {g.spill(lanes)}",
        f"i32 {g.mask}",
        f"ptr {result}",
    )
    if fast is not None:
        b.jump(fast.done)
        b.label(fast.done)
    _barrier(g, strong)
    return [b.load(elem, g.part(result, shape, k), align=64) for k in range(count)]


def store_values(
    g: Generator, window: str, lanes: Value, values: list[Value], strong: bool
) -> None:
    """Neighbouring elements of each active lane."""
    b = g.b
    count, size = len(values), values[0].bits // 8
    _barrier(g, strong)
    fast: _FastPath | None = None
    if window in ("generic", "shared") and count <= 4 and size <= 8:
        fast = _FastPath(g, window, lanes, size * count)
        whole = values[0]
        if count > 1:
            joined = b.join(values)
            whole = b.shuffle(
                joined, None, [k * 32 + lane for lane in range(32) for k in range(count)]
            )
        b.store(whole, fast.pointer, size)
        b.jump(fast.done)
        b.label(fast.slow)
    g.helper(
        "store",
        "ptr %env",
        f"i32 {spec(window, size, count)}",
        f"ptr {g.spill(lanes)}",
        f"i32 {g.mask}",
        f"ptr {g.spill(*values)}",
    )
    if fast is not None:
        b.jump(fast.done)
        b.label(fast.done)
    _barrier(g, strong)


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
