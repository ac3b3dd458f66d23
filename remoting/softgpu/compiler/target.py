"""The processor that code is made for, told without loading LLVM."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "flags")


def cpu_fingerprint(cpuinfo: Path = CPUINFO) -> str:
    """Return a digest of what decides about generated code: the processor and LLVM's version.

    The translator asks LLVM for the processor's name and features; both follow from these fields.
    """
    wanted: dict[str, str] = {}
    for line in cpuinfo.read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in _FIELDS:
            wanted.setdefault(name.strip(), " ".join(sorted(value.split())))
        elif not line.strip() and wanted:
            break  # the first processor only
    try:
        llvm = metadata.version("llvmlite")
    except metadata.PackageNotFoundError:
        llvm = "none"
    text = "\n".join(f"{name}={wanted.get(name, '')}" for name in _FIELDS) + f"\nllvmlite={llvm}"
    return hashlib.sha256(text.encode()).hexdigest()
