"""PTX translator of the software GPU: PTX text in, x86 objects out.

``inspect_module`` tells what a module contains, ``compile_kernel`` makes an object file of one of
its kernels.  Both raise ``PtxError``.
"""

from __future__ import annotations

from .compiler import TargetSpec, compile_kernel, kernel_ir, prepare
from .errors import PtxError, UnsupportedForm
from .inspection import GlobalInfo, KernelInfo, ModuleInfo, inspect_module
from .layout import Relocation

__all__ = [
    "GlobalInfo",
    "KernelInfo",
    "ModuleInfo",
    "PtxError",
    "Relocation",
    "TargetSpec",
    "UnsupportedForm",
    "compile_kernel",
    "inspect_module",
    "kernel_ir",
    "prepare",
]
