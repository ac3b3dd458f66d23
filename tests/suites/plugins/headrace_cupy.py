"""pytest plugin: CuPy's tests draw random numbers with cuRAND, whose kernels come as PTX too. Its
library is not where CuPy looks for libraries, so it is loaded before CuPy wants it."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

for _folder in sys.path:
    for _library in Path(_folder).glob("nvidia/*/lib/libcurand.so.*"):
        ctypes.CDLL(str(_library), mode=ctypes.RTLD_GLOBAL)
