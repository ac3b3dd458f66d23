"""Memory access of one warp: two inline paths, and the helpers for everything else.

All 32 lanes active and consecutive: one range check and one vector access, inline.  Each half warp
consecutive, or all its lanes at one place (tiles 16 wide): an internal function of the kernel.
Otherwise ``sgrt_load``/``sgrt_store`` (exec/device) check and access lane by lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Builder, Value

if TYPE_CHECKING:
    from ..generator import Generator


def spec(window: str, size: int, count: int) -> int:
    """The helpers' description of an access."""
    return abi.SPACES[window] | (size.bit_length() - 1) << 4 | count << 8


def _limit(b: Builder, window: str, total: int) -> tuple[str, str]:
    """(first offset at which ``total`` bytes no longer fit, start of the window), both i64."""
    if window == "shared":
        b.declare("i32 @llvm.usub.sat.i32(i32, i32)")
        narrow = b.raw(f"call i32 @llvm.usub.sat.i32(i32 %shared_bytes, i32 {total - 1})")
        return b.raw(f"zext i32 {narrow} to i64"), "0"
    b.declare("i64 @llvm.usub.sat.i64(i64, i64)")
    limit = b.raw(f"call i64 @llvm.usub.sat.i64(i64 %arena_size, i64 {total - 1})")
    return limit, "%arena_lo"


def _allowed(b: Builder, window: str, address: str, total: int, align: int) -> str:
    """Are ``total`` bytes from ``address`` (i64) in the window, and is it aligned?  An i1."""
    limit, start = _limit(b, window, total)
    offset = b.raw(f"sub i64 {address}, {start}")
    ok = b.raw(f"icmp ult i64 {offset}, {limit}")
    if align > 1:
        low = b.raw(f"and i64 {address}, {align - 1}")
        ok = b.raw(f"and i1 {ok}, {b.raw(f'icmp eq i64 {low}, 0')}")
    return ok


def _pointer(b: Builder, window: str, address: str) -> str:
    if window == "shared":
        return b.raw(f"getelementptr i8, ptr %shared, i64 {address}")
    return b.raw(f"inttoptr i64 {address} to ptr")


def _scalar64(b: Builder, lanes: Value, index: int) -> str:
    one = b.raw(f"extractelement {lanes.typed}, i32 {index}")
    return one if lanes.elem == "i64" else b.raw(f"zext i32 {one} to i64")


class _FastPath:
    """The check "all lanes active, consecutive, aligned, in range" and its two branches."""

    def __init__(self, g: Generator, window: str, lanes: Value, bytes_: int) -> None:
        b = g.b
        self.fast, self.slow, self.done = b.new_label(), b.new_label(), b.new_label()
        first = b.raw(f"extractelement {lanes.typed}, i32 0")
        steps = b.table(lanes.elem, [bytes_ * k for k in range(32)])
        follows = b.icmp("eq", lanes, b.bin("add", b.splat(first, lanes.elem), steps))
        all_ok = b.raw(f"icmp eq i32 {b.raw(f'and i32 {b.to_mask(follows)}, {g.mask}')}, -1")
        address = first if lanes.elem == "i64" else b.raw(f"zext i32 {first} to i64")
        in_range = _allowed(b, window, address, 32 * bytes_, bytes_)
        b.branch(b.raw(f"and i1 {all_ok}, {in_range}"), self.fast, self.slow)
        b.label(self.fast)
        self.pointer = _pointer(b, window, address)


_ENVIRONMENT = "ptr %env, ptr %shared, i32 %shared_bytes, i64 %arena_lo, i64 %arena_size"


class _Halves:
    """An internal function that handles half warps; it is made once for a kernel."""

    def __init__(self, g: Generator, window: str, lanes: Value, elem: str) -> None:
        self.g, self.window, self.elem = g, window, elem
        self.lanes = Value("%lanes", lanes.elem)
        self.size = g.b.const(elem, 0).bits // 8
        b = self.b = Builder()
        self.low = _scalar64(b, self.lanes, 0)
        high = _scalar64(b, self.lanes, 16)
        upper = b.raw("icmp ult i32 %mask, 65536")
        # without an active lane in the upper half its address means nothing
        self.high = b.raw(f"select i1 {upper}, i64 {self.low}, i64 {high}")
        lead = b.raw("or i32 %mask, 65536")
        lead = b.raw(f"select i1 {upper}, i32 {lead}, i32 %mask")
        self.led = b.raw(f"icmp eq i32 {b.raw(f'and i32 {lead}, 65537')}, 65537")

    def follow(self, step: int) -> str:
        """Do the active lanes lie ``step`` bytes apart in each half?  An i1."""
        b = self.b
        width = self.lanes.elem
        starts = []
        for start in (self.low, self.high):
            narrow = start if width == "i64" else b.raw(f"trunc i64 {start} to i32")
            starts.append(b.splat(narrow, width, 16))
        expected = b.join(starts)
        if step:
            expected = b.bin("add", expected, b.table(width, [step * (k % 16) for k in range(32)]))
        same = b.to_mask(b.icmp("eq", self.lanes, expected))
        inactive = b.raw("xor i32 %mask, -1")
        return b.raw(f"icmp eq i32 {b.raw(f'or i32 {same}, {inactive}')}, -1")

    def allowed(self, total: int) -> str:
        ok = [_allowed(self.b, self.window, a, total, self.size) for a in (self.low, self.high)]
        return self.b.raw(f"and i1 {ok[0]}, {ok[1]}")

    def fall_back(self, helper: str, extra: str, data: str) -> None:
        """Lane by lane."""
        b = self.b
        wide = b.cast("zext", self.lanes, "i64")
        b.store(wide, "%addresses", 64)
        number = spec(self.window, self.size, 1)
        types = "ptr, i32, i32, ptr, i32, ptr" if extra else "ptr, i32, ptr, i32, ptr"
        b.declare(f"void @sgrt_{helper}({types})")
        b.emit(
            f"call void @sgrt_{helper}(ptr %env, i32 {number}, {extra}"
            f"ptr %addresses, i32 %mask, ptr {data})"
        )

    def finish(self, name: str, result: str, arguments: str, temporaries: list[str]) -> None:
        g, b = self.g, self.b
        lines = [f"define internal {result} @{name}({arguments}) #1 {{", "entry:"]
        lines += [f"  {t}" for t in temporaries]
        g.b.helpers[name] = "\n".join([*lines, *b.lines, "}"])
        g.b.declarations |= b.declarations


def _half_load(g: Generator, window: str, lanes: Value, elem: str) -> str:
    """``<32 x elem> f(<32 x address>, mask, environment)``."""
    name = f"load.{window}.{elem}.{lanes.elem}"
    if name in g.b.helpers:
        return name
    h = _Halves(g, window, lanes, elem)
    b, size = h.b, h.size
    at_once, uniform, apart, rows, single = (b.new_label() for _ in range(5))
    b.branch(h.led, at_once, single)
    b.label(at_once)
    # in shared memory the bytes of inactive lanes may be read: they lie in the window
    complete = "true" if window == "shared" else b.raw("icmp eq i32 %mask, -1")
    ok = b.raw(f"and i1 {h.follow(size)}, {h.allowed(16 * size)}")
    b.branch(b.raw(f"and i1 {ok}, {complete}"), rows, uniform)
    b.label(rows)
    parts = [b.load(elem, _pointer(b, window, a), 16, size) for a in (h.low, h.high)]
    b.emit(f"ret <32 x {elem}> {b.join(parts).ref}")
    b.label(uniform)
    ok = b.raw(f"and i1 {h.follow(0)}, {h.allowed(size)}")
    b.branch(ok, apart, single)
    b.label(apart)
    parts = []
    for address in (h.low, h.high):
        value = b.raw(f"load {elem}, ptr {_pointer(b, window, address)}, align {size}")
        parts.append(b.splat(value, elem, 16))
    b.emit(f"ret <32 x {elem}> {b.join(parts).ref}")
    b.label(single)
    h.fall_back("load", f"i32 {g.memory.param_bytes}, ", "%data")
    b.emit(f"ret <32 x {elem}> {b.load(elem, '%data', align=64).ref}")
    h.finish(
        name,
        f"<32 x {elem}>",
        f"<32 x {lanes.elem}> %lanes, i32 %mask, {_ENVIRONMENT}",
        [
            "%addresses = alloca <32 x i64>, align 64",
            f"%data = alloca <32 x {elem}>, align 64",
            f"store <32 x {elem}> zeroinitializer, ptr %data, align 64",
        ],
    )
    return name


def _half_store(g: Generator, window: str, lanes: Value, elem: str) -> str:
    """``void f(<32 x address>, <32 x elem>, mask, environment)``."""
    name = f"store.{window}.{elem}.{lanes.elem}"
    if name in g.b.helpers:
        return name
    h = _Halves(g, window, lanes, elem)
    b, size = h.b, h.size
    value = Value("%value", elem)
    rows, single = b.new_label(), b.new_label()
    complete = b.raw("icmp eq i32 %mask, -1")
    ok = b.raw(f"and i1 {h.follow(size)}, {h.allowed(16 * size)}")
    b.branch(b.raw(f"and i1 {ok}, {complete}"), rows, single)
    b.label(rows)
    for part, address in zip(b.parts(value, 16), (h.low, h.high), strict=True):
        b.store(part, _pointer(b, window, address), size)
    b.emit("ret void")
    b.label(single)
    b.store(value, "%data", 64)
    h.fall_back("store", "", "%data")
    b.emit("ret void")
    h.finish(
        name,
        "void",
        f"<32 x {lanes.elem}> %lanes, <32 x {elem}> %value, i32 %mask, {_ENVIRONMENT}",
        [
            "%addresses = alloca <32 x i64>, align 64",
            f"%data = alloca <32 x {elem}>, align 64",
        ],
    )
    return name


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
    shape = b.const(elem, 0)
    _barrier(g, strong)
    fast: _FastPath | None = None
    quick: list[Value] = []
    if window in ("generic", "shared") and count <= 4 and size <= 8:
        fast = _FastPath(g, window, lanes, size * count)
        whole = b.load(elem, fast.pointer, 32 * count, align=size)
        for k in range(count):
            order = [lane * count + k for lane in range(32)]
            quick.append(b.shuffle(whole, None, order) if count > 1 else whole)
        b.jump(fast.done)
        b.label(fast.slow)
    if fast is not None and count == 1:
        name = _half_load(g, window, lanes, elem)
        call = f"call <32 x {elem}> @{name}({lanes.typed}, i32 {g.mask}, {_ENVIRONMENT})"
        values = [Value(b.raw(call), elem)]
    else:
        result = g.temp(elem, count)
        g.helper(
            "load",
            "ptr %env",
            f"i32 {spec(window, size, count)}",
            f"i32 {g.memory.param_bytes}",
            f"ptr {g.spill(b.cast('zext', lanes, 'i64'))}",
            f"i32 {g.mask}",
            f"ptr {result}",
        )
        values = [b.load(elem, g.part(result, shape, k), align=64) for k in range(count)]
    if fast is not None:
        b.jump(fast.done)
        b.label(fast.done)
        values = [
            Value(b.raw(f"phi {v.type} [ {q.ref}, %{fast.fast} ], [ {v.ref}, %{fast.slow} ]"), elem)
            for q, v in zip(quick, values, strict=True)
        ]
    _barrier(g, strong)
    return values


def store_values(
    g: Generator, window: str, lanes: Value, values: list[Value], strong: bool
) -> None:
    """Neighbouring elements of each active lane."""
    b = g.b
    count, size, elem = len(values), values[0].bits // 8, values[0].elem
    _barrier(g, strong)
    fast: _FastPath | None = None
    if window in ("generic", "shared") and count <= 4 and size <= 8:
        fast = _FastPath(g, window, lanes, size * count)
        whole = values[0]
        if count > 1:
            joined = b.join(values)
            order = [k * 32 + lane for lane in range(32) for k in range(count)]
            whole = b.shuffle(joined, None, order)
        b.store(whole, fast.pointer, size)
        b.jump(fast.done)
        b.label(fast.slow)
    if fast is not None and count == 1:
        name = _half_store(g, window, lanes, elem)
        b.emit(f"call void @{name}({lanes.typed}, {values[0].typed}, i32 {g.mask}, {_ENVIRONMENT})")
    else:
        g.helper(
            "store",
            "ptr %env",
            f"i32 {spec(window, size, count)}",
            f"ptr {g.spill(b.cast('zext', lanes, 'i64'))}",
            f"i32 {g.mask}",
            f"ptr {g.spill(*values)}",
        )
    if fast is not None:
        b.jump(fast.done)
        b.label(fast.done)
    _barrier(g, strong)
