"""A program that copies and checks until it is told to end: what must not be disturbed."""

from __future__ import annotations

import ctypes
import os
import select
import sys

SIZE = 1 << 20


def main() -> int:
    """Copy and check; the last line says how it went."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(SIZE)) == 0
    print("ready", flush=True)
    back = ctypes.create_string_buffer(SIZE)
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        data = os.urandom(SIZE)
        assert cuda.cuMemcpyHtoD_v2(memory, data, ctypes.c_size_t(SIZE)) == 0
        assert cuda.cuMemcpyDtoH_v2(back, memory, ctypes.c_size_t(SIZE)) == 0
        assert back.raw == data
    print("all right", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
