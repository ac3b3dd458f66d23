"""The kernel's descriptor, sg_kernel_desc, as an IR constant."""

from __future__ import annotations

from . import abi
from .generator import Generator


def descriptor(g: Generator, fibers: bool) -> str:
    """``sgk_desc`` and what it points to."""
    entry, memory = g.kernel.entry, g.memory
    name = entry.name.encode()
    text = "".join(f"\\{byte:02X}" for byte in name)
    flags = g.flags | (abi.KERNEL_NEEDS_FIBERS if fibers else 0)
    flags |= abi.KERNEL_DYNAMIC_SHARED if memory.dynamic_shared else 0
    pairs = [v for pair in memory.params for v in pair]
    table = ", ".join(f"i32 {v}" for v in pairs)
    limit = entry.max_ntid if any(entry.max_ntid) else entry.req_ntid
    threads = limit[0] * limit[1] * limit[2]
    registers = min(entry.max_registers, 16 + len(g.used_regs) // 2)
    req = ", ".join(f"i32 {v}" for v in entry.req_ntid)
    params = "ptr @sgk.params" if pairs else "ptr null"
    lines = [f'@sgk.name = private constant [{len(name) + 1} x i8] c"{text}\\00"']
    if pairs:
        lines.append(f"@sgk.params = private constant [{len(pairs)} x i32] [{table}]")
    lines.append(
        f"@{abi.DESC_SYMBOL} = constant "
        "{ i32, i32, ptr, ptr, i32, i32, i32, i32, ptr, i32, [3 x i32], i32 } "
        f"{{ i32 {abi.ABI_VERSION}, i32 {flags}, ptr @sgk.name, ptr @sgk.entry, "
        f"i32 {memory.static_shared}, "
        f"i32 {memory.local_bytes}, i32 {memory.param_bytes}, i32 {len(memory.params)}, {params}, "
        f"i32 {threads}, [3 x i32] [{req}], i32 {registers} }}"
    )
    return "\n".join(lines)
