"""Says in one line which real GPU is here; ends with status 1 where there is none."""

from __future__ import annotations

import ctypes
import sys


def main() -> int:
    """Loads libcuda as any program would, and asks it for its first device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        print("no real GPU here: the system has no libcuda.so.1 (no NVIDIA driver is installed)")
        return 1
    result = cuda.cuInit(0)
    count = ctypes.c_int(0)
    if result == 0:
        result = cuda.cuDeviceGetCount(ctypes.byref(count))
    if result != 0 or count.value == 0:
        print(f"no real GPU here: libcuda.so.1 loads, but offers no device (cuInit: {result})")
        return 1
    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGetName(name, len(name), 0)
    version = ctypes.c_int(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    print(
        f"{name.value.decode()}, CUDA driver {version.value // 1000}.{version.value % 1000 // 10}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
