"""Load the image that is named, look at what it has, launch its kernels, and print it all as JSON."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

cuda = ctypes.CDLL("libcuda.so.1")
size_t, address_t, pointer = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
_CHANGED = b"\x2a\0\0\0"
BINARY_VERSION, PTX_VERSION = 6, 5


def ok(result: int) -> None:
    assert result == 0, result


def parameters(function: pointer) -> list[list[int]]:
    slots = []
    offset, size = size_t(), size_t()
    while not cuda.cuFuncGetParamInfo(
        function, size_t(len(slots)), ctypes.byref(offset), ctypes.byref(size)
    ):
        slots.append([offset.value, size.value])
    return slots


def attribute(function: pointer, which: int) -> int:
    value = ctypes.c_int()
    ok(cuda.cuFuncGetAttribute(ctypes.byref(value), which, function))
    return value.value


def variable(module: pointer, name: bytes) -> str | int:
    address, size = address_t(), size_t()
    result: int = cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, name)
    if result:
        return result
    content = ctypes.create_string_buffer(min(size.value, 64))
    ok(cuda.cuMemcpyDtoH_v2(content, address, size_t(len(content))))
    return content.raw.hex()


def launched(function: pointer) -> str:
    """Of a kernel that takes one pointer: the memory afterwards."""
    memory, word = address_t(), ctypes.create_string_buffer(_CHANGED, 4)
    ok(cuda.cuMemAlloc_v2(ctypes.byref(memory), size_t(4)))
    ok(cuda.cuMemcpyHtoD_v2(memory, word, size_t(4)))
    arguments = (pointer * 1)(ctypes.cast(ctypes.byref(memory), pointer))
    ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
    ok(cuda.cuCtxSynchronize())
    ok(cuda.cuMemcpyDtoH_v2(word, memory, size_t(4)))
    return word.raw.hex()


def main() -> None:
    context, module = pointer(), pointer()
    name = ctypes.create_string_buffer(256)
    ok(cuda.cuInit(0))
    ok(cuda.cuDeviceGetName(name, 256, 0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    result = cuda.cuModuleLoadData(ctypes.byref(module), Path(sys.argv[1]).read_bytes())
    told: dict[str, object] = {"device": name.value.decode(), "load": result}
    if result == 0:
        count = ctypes.c_uint()
        ok(cuda.cuModuleGetFunctionCount(ctypes.byref(count), module))
        functions: dict[str, object] = {}
        for wanted in (b"mixed", b"no_parameters", b"stores", b"_Z6helperd"):
            function = pointer()
            found = cuda.cuModuleGetFunction(ctypes.byref(function), module, wanted)
            if found:
                functions[wanted.decode()] = found
                continue
            functions[wanted.decode()] = {
                "parameters": parameters(function),
                "binary": attribute(function, BINARY_VERSION),
                "ptx": attribute(function, PTX_VERSION),
                **({"memory": launched(function)} if wanted == b"stores" else {}),
            }
        told |= {
            "count": count.value,
            "functions": functions,
            "factors": variable(module, b"factors"),
            "counter": variable(module, b"counter"),
            "absent": variable(module, b"absent"),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
