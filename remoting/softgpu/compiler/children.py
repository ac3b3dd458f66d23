"""Runs one piece of work in a forked child with limits on its time and memory.

Translating is LLVM working on text that strangers wrote: it may crash, loop or eat all memory.
None of that may touch the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from remoting.softgpu.compiler.errors import (
    CompileCrashed,
    CompileError,
    LimitExceeded,
    TranslatorError,
)

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Limits:
    """What one child may use."""

    cpu_seconds: int = 120
    wall_seconds: float = 300.0
    memory_bytes: int = 4 << 30
    """Beyond what the service itself has mapped."""


async def run_in_child(work: Callable[[], bytes], limits: Limits, what: str) -> bytes:
    """Return what `work` returns, or raise the CompileError that it or its end amounts to.

    `what` names the work in errors. Cancelling this coroutine kills the child.
    """
    receiving, sending = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(work, limits, sending, parent)
    os.close(sending)
    os.set_blocking(receiving, False)
    reader = asyncio.create_task(_read_all(receiving))
    timed_out = False
    try:
        await asyncio.wait_for(asyncio.shield(reader), limits.wall_seconds)
    except TimeoutError:
        timed_out = True
    finally:
        if not reader.done() or reader.cancelled():
            _kill(pid)
            reader.cancel()
        status = os.waitpid(pid, 0)[1]  # the pipe is closed or the child killed: no wait
        asyncio.get_running_loop().remove_reader(receiving)
        os.close(receiving)
    if timed_out:
        raise LimitExceeded(f"{what} took longer than {limits.wall_seconds:g} s")
    return _result(await reader, status, limits, what)


async def _read_all(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    chunks: list[bytes] = []
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    while True:
        await readable.wait()
        readable.clear()
        while True:
            try:
                chunk = os.read(descriptor, 1 << 20)
            except BlockingIOError:
                break
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)


def _result(data: bytes, status: int, limits: Limits, what: str) -> bytes:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGXCPU, signal.SIGKILL):
            raise LimitExceeded(
                f"{what} took more than {limits.cpu_seconds} s of processor time, or was killed"
            )
        raise CompileCrashed(
            f"{what} ended by signal {number} ({signal.Signals(number).name}); if the kernel is "
            f"very large, its limit of {limits.memory_bytes >> 20} MiB may be the cause"
        )
    if data[:1] == b"R" and os.WEXITSTATUS(status) == 0:
        return data[1:]
    if data[:1] == b"E":
        error = json.loads(data[1:])
        if error["kind"] == LimitExceeded.kind:
            raise LimitExceeded(f"{what} needs more than {limits.memory_bytes >> 20} MiB")
        raise TranslatorError(error["kind"], error["message"], error["line"])
    raise CompileCrashed(f"{what} ended with status {os.WEXITSTATUS(status)} and without a result")


def _kill(pid: int) -> None:
    """Kill a child with the linker it may have started."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _child(work: Callable[[], bytes], limits: Limits, sending: int, parent: int) -> NoReturn:
    """Life of the child: it shares no descriptor with the service but the pipe and the log."""
    status = 1
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.closerange(3, sending)
        os.closerange(sending + 1, 65536)
        _limit(limits)
        try:
            result = b"R" + work()
            status = 0
        except CompileError as error:
            result = b"E" + json.dumps(error.to_wire()).encode()
        except MemoryError:
            result = b"E" + json.dumps(LimitExceeded("memory").to_wire()).encode()
        except Exception as error:  # a bug of the translator: told, not hidden
            traceback.print_exc(file=sys.stderr)
            text = f"internal error of the translator: {type(error).__name__}: {error}"
            result = b"E" + json.dumps(CompileError(text).to_wire()).encode()
        with open(sending, "wb") as pipe:
            pipe.write(result)
    finally:
        os._exit(status)


def _limit(limits: Limits) -> None:
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, mapped + limits.memory_bytes)
    _lower(resource.RLIMIT_CPU, limits.cpu_seconds)


def _lower(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (wanted, wanted))
