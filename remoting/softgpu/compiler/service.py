"""The resident service: connections, requests, and when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import select
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoting.softgpu.compiler.errors import CompileError
from remoting.softgpu.compiler.library import Library
from remoting.softgpu.compiler.wire import PROTOCOL, BadFrame, Frame, encode, read_frame

log = logging.getLogger(__name__)

FIRST_CLIENT_SECONDS = 10.0
RETRY_SECONDS = 0.02
ACCEPT_PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class Lifetime:
    """When the service ends by itself.

    On demand (`keep` false): as soon as its last client is gone. Clients connect while they hold
    the lock file; the service ends while it holds it, and only if nobody waits to be accepted.
    So no client ever meets a helper that is about to end.
    """

    keep: bool
    socket_path: Path | None = None
    lock_path: Path | None = None


class Service:
    """Serves one listening Unix socket until it is stopped or no longer needed."""

    def __init__(self, listener: socket.socket, library: Library, lifetime: Lifetime) -> None:
        self._listener = listener
        self._library = library
        self._lifetime = lifetime
        self._clients = 0
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """End the service."""
        self._ended.set()

    async def run(self) -> None:
        """Serve; returns when the service has ended."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._accept)
        if not self._lifetime.keep:
            # Whoever started us may have died before it connected.
            loop.call_later(FIRST_CLIENT_SECONDS, self._end_if_unused)
        try:
            await self._ended.wait()
        finally:
            loop.remove_reader(self._listener)
            self._listener.close()
            await self._library.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        """Take a connection out of the queue and count it in one step.

        asyncio's own server starts a connection's task some turns of the loop after it accepted;
        in between nobody would know that there is a client, and the service might end.
        """
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:  # no descriptors left, perhaps: it stays in the queue
            log.warning("cannot accept a connection: %s", error)
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            loop.call_later(ACCEPT_PAUSE_SECONDS, self._resume_accepting)
            return
        connection.setblocking(False)
        self._clients += 1
        task = asyncio.create_task(self._converse(connection))
        self._tasks.add(task)
        task.add_done_callback(self._left)

    def _resume_accepting(self) -> None:
        if not self._ended.is_set():
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._clients -= 1
        self._end_if_unused()

    async def _converse(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection)
        try:
            while True:
                request = await read_frame(reader)
                writer.write(encode(await self._answer_present(request, reader)))
                await writer.drain()
        except BadFrame as error:
            log.warning("connection ended: %s", error)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or we are
        finally:
            writer.close()

    async def _answer_present(self, request: Frame, reader: asyncio.StreamReader) -> Frame:
        """Answer unless the client goes away meanwhile: it may be the last one."""
        answer = asyncio.create_task(self._answer(request))
        silence = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answer, silence), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                if silence.result():
                    raise BadFrame("a request before the answer to the one before")
                raise ConnectionResetError
            return await answer
        finally:
            answer.cancel()
            silence.cancel()
            await asyncio.gather(answer, silence, return_exceptions=True)

    async def _answer(self, request: Frame) -> Frame:
        try:
            operation = request.header.get("op")
            if operation == "hello":
                return Frame({"ok": True, "protocol": PROTOCOL, "pid": os.getpid()})
            if operation == "inspect":
                return await self._inspect(request)
            if operation == "compile":
                return await self._compile(request)
            if operation == "better":
                return await self._better(request)
            raise BadFrame(f"unknown operation {operation!r}")
        except CompileError as error:
            log.info("%s: %s", error.kind, error.message)
            return Frame({"ok": False, "error": error.to_wire()})
        except (OSError, ImportError) as error:
            log.exception("request failed")
            return Frame({"ok": False, "error": CompileError(f"compile helper: {error}").to_wire()})

    async def _inspect(self, request: Frame) -> Frame:
        name = self._library.hold(request.attachment)
        module, image = await self._library.inspect(name)
        return Frame({"ok": True, "module": {"hash": name, **module}}, image)

    async def _compile(self, request: Frame) -> Frame:
        module, kernel = self._kernel(request)
        opt, tiers = request.header.get("opt"), request.header.get("tiers", False)
        if not _is_opt(opt) or type(tiers) is not bool:
            raise BadFrame("compile wants opt (0 to 3, or null) and tiers (true or false)")
        code = await self._library.compile(module, kernel, opt, tiers)
        return Frame({"ok": True, "path": str(code.path), "final": code.final})

    async def _better(self, request: Frame) -> Frame:
        path = await self._library.better(*self._kernel(request))
        return Frame({"ok": True, "path": None if path is None else str(path)})

    def _kernel(self, request: Frame) -> tuple[str, str]:
        module, kernel = (request.header.get(name) for name in ("module", "kernel"))
        if not isinstance(module, str) or not isinstance(kernel, str):
            raise BadFrame("a module's hash and a kernel's name are wanted")
        if request.attachment and self._library.hold(request.attachment) != module:
            raise BadFrame("the attached text is of another module")
        return module, kernel

    def _end_if_unused(self) -> None:
        if self._lifetime.keep or self._clients or self._ended.is_set():
            return
        lock = self._lifetime.lock_path
        if lock is None:
            self._ended.set()
            return
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:  # its directory is gone, and with it every way to reach us
            log.info("ending without the lock %s: %s", lock, error.strerror)
            self._ended.set()
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            queue = select.poll()
            queue.register(self._listener, select.POLLIN)
            if queue.poll(0):
                return  # somebody is in the queue, and will be accepted
            self._ended.set()
            # The lock goes last: who waits for it sees then that it is of no use any more.
            for path in (self._lifetime.socket_path, lock):
                if path is not None:
                    with contextlib.suppress(OSError):
                        path.unlink()
        except BlockingIOError:  # a client connects right now
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._end_if_unused)
        finally:
            os.close(descriptor)


def _is_opt(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= 3)
