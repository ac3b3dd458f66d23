"""PTX from CUDA sources, made by the NVRTC of the installed wheel."""

from __future__ import annotations

import ctypes
import functools
from importlib import util
from pathlib import Path

HERE = Path(__file__).parent


@functools.cache
def _root() -> Path:
    found = util.find_spec("nvidia.cu13")
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)))


@functools.cache
def _library() -> ctypes.CDLL:
    # NVRTC opens its built-ins by name: they are found when they are loaded already
    ctypes.CDLL(str(_root() / "lib/libnvrtc-builtins.so.13.0"))
    return ctypes.CDLL(str(_root() / "lib/libnvrtc.so.13"))


@functools.cache
def compile_source(source: str, arch: int, *options: str) -> str:
    """PTX text for compute_<arch>."""
    rtc = _library()
    program = ctypes.c_void_p()
    assert (
        rtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"t.cu", 0, None, None) == 0
    )
    given = [f"--gpu-architecture=compute_{arch}", f"-I{_root() / 'include'}", *options]
    array = (ctypes.c_char_p * len(given))(*[o.encode() for o in given])
    status = rtc.nvrtcCompileProgram(program, len(given), array)
    size = ctypes.c_size_t()
    if status:
        rtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        rtc.nvrtcGetProgramLog(program, log)
        raise AssertionError(log.value.decode())
    rtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    rtc.nvrtcGetPTX(program, ptx)
    rtc.nvrtcDestroyProgram(ctypes.byref(program))
    return ptx.value.decode()


def compile_file(name: str, arch: int, *options: str) -> str:
    """PTX of a source in ``kernels/``."""
    return compile_source((HERE / "kernels" / name).read_text(), arch, *options)
