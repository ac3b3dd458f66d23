"""Offsets and constants of ``exec/kernel_abi.h``, repeated here; a test compares the two."""

from __future__ import annotations

ABI_VERSION = 3
WARP = 32

#: sg_warp_env: field -> offset
ENV = {
    "params": 0, "shared": 8, "local": 16, "globals": 24,
    "ctaid": 32, "nctaid": 44, "ntid": 56, "warp": 68, "threads": 72,
    "dynamic_shared": 76, "shared_bytes": 80, "flags": 88, "local_bytes": 92, "grid_id": 96,
    "arena_lo": 104, "arena_hi": 112, "pinned_lo": 120, "pinned_hi": 128,
    "services": 136, "grid_workspace": 152,
}  # fmt: skip
ENV_SIZE = 160

#: sg_services: function -> offset
SERVICES = {
    "barrier": 8,
    "barrier_n": 16,
    "arrive": 24,
    "barrier_reduce": 32,
    "yield": 40,
    "trap": 48,
    "print": 56,
    "assert_fail": 64,
    "allocate": 72,
    "release": 80,
}

KERNEL_NEEDS_FIBERS = 1
KERNEL_DYNAMIC_SHARED = 2
KERNEL_COOPERATIVE = 4
KERNEL_USES_HEAP = 8
KERNEL_USES_STACK = 16

TRAP_ILLEGAL_ADDRESS = 1
TRAP_MISALIGNED = 2
TRAP_TRAP = 3
TRAP_ASSERT = 4
TRAP_ILLEGAL_INSTRUCTION = 5
TRAP_STACK_OVERFLOW = 6

REDUCE = {"popc": 0, "and": 1, "or": 2}

#: Address spaces as the memory helpers (exec/device) number them.
SPACES = {"generic": 0, "shared": 1, "local": 2, "param": 3}

DESC_SYMBOL = "sgk_desc"
