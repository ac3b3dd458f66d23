"""gil.py N: streams run Python functions while another thread calls the driver with the lock held.

The lock of the interpreter is what such a function waits for; a driver that waits for it in turn,
inside an unrelated call of a binding that keeps the lock, would be a deadlock.
"""

from __future__ import annotations

import ctypes
import sys
import threading

cuda = ctypes.CDLL("libcuda.so.1")
held = ctypes.PyDLL("libcuda.so.1")  # keeps the lock during calls
COUNT = int(sys.argv[1])
sys.setswitchinterval(1e-4)  # the lock changes hands often

context, stream = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0

seen: list[int] = []
failures: list[object] = []
finished = threading.Event()


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def note(number: int | None) -> None:
    """A host function: its argument is its number."""
    seen.append(number or 0)


def feed() -> None:
    """Enqueue functions as fast as the driver takes them."""
    assert cuda.cuCtxSetCurrent(context) == 0
    for number in range(COUNT):
        result = cuda.cuLaunchHostFunc(stream, note, ctypes.c_void_p(number))
        if result != 0:
            failures.append(("cuLaunchHostFunc", result))
            break
    finished.set()


def ask() -> None:
    """Call what has nothing to do with it."""
    value, address = ctypes.c_int(), ctypes.c_uint64()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    current = ctypes.c_void_p()
    assert held.cuCtxSetCurrent(context) == 0
    while not finished.is_set():
        results = (
            held.cuDeviceGetAttribute(ctypes.byref(value), 16, 0),
            held.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
            held.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)),
            held.cuMemFree_v2(address),
            held.cuCtxGetCurrent(ctypes.byref(current)),
        )
        if any(results):
            failures.append(results)
            break


threads = [threading.Thread(target=feed), threading.Thread(target=ask)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert cuda.cuStreamSynchronize(stream) == 0
assert not failures, failures
assert seen == list(range(COUNT)), (len(seen), seen[:10])
print(len(seen))
