"""Special registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import abi
from ..builder import Value

if TYPE_CHECKING:
    from ..generator import Generator

_ONE = ("nsmid", "cluster_nctarank")
_ZERO = ("smid", "cluster_ctarank", "is_explicit_cluster")


def read(g: Generator, name: str) -> Value:
    """The value of a special register, 32 or 64 bits wide."""
    b = g.b
    base, _, axis = name.partition(".")
    if base == "tid" and axis:
        return Value(f"%tid.{axis}", "i32") if axis != "w" else b.const("i32", 0)
    if base in ("ntid", "ctaid", "nctaid") and axis:
        if axis == "w":
            return b.const("i32", 1 if base in ("ntid", "nctaid") else 0)
        return b.splat(f"%{base}.{axis}", "i32")
    # no clusters: each block is a cluster of its own
    if base in ("cluster_ctaid", "cluster_nctaid") and axis:
        return b.const("i32", 1 if base == "cluster_nctaid" else 0)
    if base in ("clusterid", "nclusterid") and axis:
        return read(g, f"{'ctaid' if base == 'clusterid' else 'nctaid'}.{axis}")
    if name == "WARP_SZ":
        return b.const("i32", 32)
    if name == "laneid":
        return Value("%lane", "i32")
    if name == "warpid":
        return b.splat("%warp", "i32")
    if name == "nwarpid":
        return b.splat(b.raw(f"lshr i32 {b.raw('add i32 %threads, 31')}, 5"), "i32")
    if name.startswith("lanemask_"):
        return _lane_mask(g, name[9:])
    if name in ("dynamic_smem_size", "total_smem_size"):
        return b.splat("%dynamic_shared" if name.startswith("d") else "%shared_bytes", "i32")
    if name in ("envreg1", "envreg2"):
        # the address of the grid barrier's words: low and high half
        g.flags |= abi.KERNEL_COOPERATIVE
        word = b.raw("trunc i64 %grid_workspace to i32")
        if name == "envreg1":
            word = b.raw(f"trunc i64 {b.raw('lshr i64 %grid_workspace, 32')} to i32")
        return b.splat(word, "i32")
    if name == "gridid":
        return b.splat("%grid_id", "i64")
    if name in ("clock", "clock64", "clock_hi"):
        return _counter(g, "llvm.readcyclecounter", name == "clock_hi")
    if name.startswith("globaltimer"):
        return _counter(g, "", name.endswith("_hi"))
    if name in _ONE:
        return b.const("i32", 1)
    if name in _ZERO:
        return b.const("i32", 0)
    raise g.unsupported(f"special register %{name}")


def _lane_mask(g: Generator, kind: str) -> Value:
    b = g.b
    bit = b.bin("shl", b.const("i32", 1), Value("%lane", "i32"))
    below = b.bini("sub", bit, 1)
    if kind == "eq":
        return bit
    if kind == "lt":
        return below
    if kind == "le":
        return b.bin("or", bit, below)
    if kind == "ge":
        return b.invert(below)
    return b.invert(b.bin("or", bit, below))


def _counter(g: Generator, intrinsic: str, high: bool) -> Value:
    b = g.b
    if intrinsic:
        b.declare(f"i64 @{intrinsic}()")
        ticks = b.raw(f"call i64 @{intrinsic}()")
    else:
        ticks = g.helper("globaltimer", result="i64")
    if high:
        ticks = b.raw(f"lshr i64 {ticks}, 32")
    return b.splat(ticks, "i64")
