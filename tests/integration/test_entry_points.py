"""Every way to a driver function: its exported names, and cuGetProcAddress at each version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from remoting.codegen.cli import default_include

ROOT = Path(__file__).parents[2]
BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")

LOOK_UP = """
import ctypes, json, sys
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]
cuda = ctypes.CDLL("libcuda.so.1")
dladdr = ctypes.CDLL(None).dladdr
dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Info)]
found = []
for name, version, flags in json.load(sys.stdin):
    address, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), version,
                                      ctypes.c_uint64(flags), ctypes.byref(status))
    info = Info()
    known = address.value and dladdr(address, ctypes.byref(info)) and info.address == address.value
    found.append([result, status.value, info.symbol.decode() if known else ""])
json.dump(found, sys.stdout)
"""
SUCCESS, NOT_FOUND = 0, 500
FOUND, SYMBOL_NOT_FOUND, VERSION_NOT_SUFFICIENT = 0, 1, 2
LEGACY, PER_THREAD = 1, 2

Asked = tuple[str, int, int]
Found = tuple[int, int, str]


def typedefs() -> list[tuple[str, int, str]]:
    """Name, version and suffix of each function pointer type that CUDA's headers declare."""
    text = "".join(
        (default_include() / name).read_text()
        for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h")
    )
    found = re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text)
    return [(name, int(version), suffix) for name, version, suffix in found]


@pytest.fixture(params=["client", "softgpu"], scope="module")
def library(request: pytest.FixtureRequest) -> Path:
    path = BUILD / "lib" / str(request.param)
    if not (path / "libcuda.so.1").exists():
        pytest.fail(f"no {path}/libcuda.so.1: run 'make build' first")
    return path


def look_up(library: Path, asked: list[Asked]) -> list[Found]:
    done = subprocess.run(
        [sys.executable, "-c", LOOK_UP],
        env={"LD_LIBRARY_PATH": str(library), "PATH": os.environ["PATH"]},
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [(result, status, symbol) for result, status, symbol in json.loads(done.stdout)]


def test_each_version_of_each_function_has_a_symbol_of_its_own(library: Path) -> None:
    wanted = typedefs()
    assert len(wanted) == 637
    asked = [(name, version, PER_THREAD if suffix else LEGACY) for name, version, suffix in wanted]
    answers = look_up(library, asked)
    symbols = set()
    for (name, version, suffix), (result, status, symbol) in zip(wanted, answers, strict=True):
        where = f"{name} {version} {suffix}"
        assert (result, status) == (SUCCESS, FOUND), where
        assert re.fullmatch(rf"{name}(_v\d+)?{suffix}", symbol), f"{where} is {symbol}"
        symbols.add(symbol)
    assert len(symbols) == len(wanted)


def test_a_version_counts_until_the_next_and_not_before_the_first(library: Path) -> None:
    versions: dict[tuple[str, str], list[int]] = {}
    for name, version, suffix in typedefs():
        versions.setdefault((name, suffix), []).append(version)
    plain = {name for name, suffix in versions if not suffix}
    asked: list[Asked] = []
    for (name, suffix), known in versions.items():
        known.sort()
        flags = PER_THREAD if suffix else LEGACY
        for at, version in enumerate(known):
            until = known[at + 1] - 1 if at + 1 < len(known) else 13000
            asked += [(name, version, flags), (name, until, flags)]
    answers = look_up(library, asked)
    for at in range(0, len(asked), 2):
        assert answers[at] == answers[at + 1], asked[at]
    first = {
        name: min(v for (n, _), vs in versions.items() for v in vs if n == name) for name in plain
    }
    early = [(name, version - 1, LEGACY) for name, version in first.items()]
    for one, (result, status, symbol) in zip(early, look_up(library, early), strict=True):
        assert (result, status, symbol) == (NOT_FOUND, VERSION_NOT_SUFFICIENT, ""), one


def test_what_is_no_function_is_not_found(library: Path) -> None:
    asked: list[Asked] = [("cuNothing", 13000, 0), ("", 13000, 0), ("cuMemAlloc_v2", 13000, 0)]
    for one, (result, status, symbol) in zip(asked, look_up(library, asked), strict=True):
        assert (result, status, symbol) == (NOT_FOUND, SYMBOL_NOT_FOUND, ""), one


def test_without_flags_a_function_is_the_one_for_the_legacy_stream(library: Path) -> None:
    names = sorted({name for name, _, suffix in typedefs() if suffix})
    assert len(names) > 50
    plain = look_up(library, [(name, 13000, 0) for name in names])
    legacy = look_up(library, [(name, 13000, LEGACY) for name in names])
    thread = look_up(library, [(name, 13000, PER_THREAD) for name in names])
    assert plain == legacy
    for name, (_, _, one), (_, _, other) in zip(names, legacy, thread, strict=True):
        assert other in (f"{one}_ptsz", f"{one}_ptds"), name
