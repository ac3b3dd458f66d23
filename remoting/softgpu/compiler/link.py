"""Links a kernel's object with the device helpers into a shared object."""

from __future__ import annotations

import subprocess
from pathlib import Path

from remoting.softgpu.compiler.errors import CompileError, NoSpace

EXPORTS = "{ global: sgk_desc; local: *; };\n"
LINK_SECONDS = 60


def link(obj: bytes, archive: Path | None, scratch: Path) -> bytes:
    """Return the shared object; `scratch` is an empty directory that the caller removes.

    Everything is bound when it is linked or loaded: a helper that is missing must show now, and
    not as a crash in the middle of a launch.
    """
    source, script, output = scratch / "kernel.o", scratch / "exports.map", scratch / "kernel.so"
    try:
        source.write_bytes(obj)
        script.write_text(EXPORTS)
    except OSError as error:
        raise NoSpace(f"cannot write to {scratch}: {error.strerror}") from None
    command = [
        *("ld", "-shared", "-o", str(output), "--version-script", str(script)),
        *("-z", "defs", "-z", "now", "-z", "relro", "-z", "noexecstack"),
        *("--build-id=none", "--hash-style=gnu", "--gc-sections", "--as-needed", str(source)),
        *([str(archive)] if archive else []),
        *("-l:libm.so.6", "-l:libc.so.6"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LINK_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise CompileError(
            "the linker 'ld' was not found; install it: apt-get install binutils"
        ) from None
    except subprocess.TimeoutExpired:
        raise CompileError(f"ld did not end within {LINK_SECONDS} s") from None
    if done.returncode != 0:
        text = done.stderr.strip() or f"exit status {done.returncode}"
        if "No space left" in text:
            raise NoSpace(f"cannot link in {scratch}: {text}")
        raise CompileError(f"linking the kernel failed: {text}")
    return output.read_bytes()
