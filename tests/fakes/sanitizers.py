"""What it takes to load libraries of a sanitizer build into programs that are not of that build."""

from __future__ import annotations

import subprocess
from pathlib import Path


def sanitizer_settings(build: Path) -> dict[str, str]:
    """What an ordinary program needs in order to load libraries built with AddressSanitizer."""
    cache = build / "CMakeCache.txt"
    if not cache.exists() or "HEADRACE_SANITIZE:STRING=address" not in cache.read_text():
        return {}
    libraries = []
    for name in ("libasan.so", "libubsan.so"):
        command = ["g++", f"-print-file-name={name}"]
        found = subprocess.run(command, check=True, capture_output=True, text=True)
        libraries.append(found.stdout.strip())
    return {
        "LD_PRELOAD": ":".join(libraries),
        # leaks would be those of the front ends and of Python
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
