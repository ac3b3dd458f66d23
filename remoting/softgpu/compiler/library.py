"""Answers the two questions, what is in a module and where is a kernel's code, through the cache.

Equal questions that arrive together are worked on once.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from remoting.softgpu.compiler.cache import Cache
from remoting.softgpu.compiler.children import Limits, run_in_child
from remoting.softgpu.compiler.errors import NoSpace, UnknownModule
from remoting.softgpu.compiler.link import link
from remoting.softgpu.compiler.target import cpu_fingerprint
from remoting.softgpu.compiler.translator import Inspection, Translator

log = logging.getLogger(__name__)
T = TypeVar("T")

ABI_VERSION = 1
"""SG_ABI_VERSION of exec/kernel_abi.h; a test compares the two."""

HELD_BYTES = 512 << 20
"""Texts kept in memory, so that a compile needs only the module's hash."""


def text_hash(text: bytes) -> str:
    """Return the name of a module: SHA-256 of its text, hexadecimal."""
    return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True)
class LibrarySettings:
    """What decides about results, and what a result may cost."""

    archive: Path | None
    """libsoftgpu_device.a; None links kernels without helpers."""
    limits: Limits
    parallel: int = 0
    """Children at a time; 0 = the processors of this process."""


class Library:
    """All modules and kernels that were asked for."""

    def __init__(self, translator: Translator, cache: Cache, settings: LibrarySettings) -> None:
        self._translator = translator
        self._cache = cache
        self._settings = settings
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._slots = asyncio.Semaphore(settings.parallel or len(os.sched_getaffinity(0)))
        archive = settings.archive
        self._fingerprint = {
            "abi": ABI_VERSION,
            "translator": translator.fingerprint(),
            "cpu": cpu_fingerprint(),
            "helpers": hashlib.sha256(archive.read_bytes()).hexdigest() if archive else "",
        }

    def hold(self, text: bytes) -> str:
        """Keep a module's text and return its hash."""
        name = text_hash(text)
        if name not in self._texts:
            self._texts[name] = text
            self._held += len(text)
        self._texts.move_to_end(name)
        while self._held > HELD_BYTES and len(self._texts) > 1:
            self._held -= len(self._texts.popitem(last=False)[1])
        return name

    async def inspect(self, module: str) -> Inspection:
        """Describe a module whose text is held."""
        text = self._texts[module]
        key = self._key("inspect", module)
        return await self._once(key, lambda: self._inspect(key, text))

    async def compile(self, module: str, kernel: str, opt: int | None) -> Path:
        """Return the path of a kernel's shared object."""
        key = self._key("compile", module, kernel, opt)
        return await self._once(key, lambda: self._compile(key, module, kernel, opt))

    async def close(self) -> None:
        """Stop what runs; children die with their tasks."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, *question: object) -> str:
        text = json.dumps([self._fingerprint, question], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    async def _once(self, key: str, start: Callable[[], Awaitable[T]]) -> T:
        task = self._running.get(key)
        if task is None or task.done():
            task = asyncio.ensure_future(start())
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        # Shielded: a client that goes away takes nothing from the others.
        return await asyncio.shield(task)

    def _finished(self, key: str, task: asyncio.Future[Any]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # seen, also when every client that asked has gone

    async def _inspect(self, key: str, text: bytes) -> Inspection:
        found = self._cache.load(key, ".json")
        if found is None:
            data = await self._work(lambda: self._inspect_now(text), "reading the PTX module")
            try:
                self._cache.store(key, ".json", data)
            except NoSpace as error:
                log.warning("module description not cached: %s", error)
        else:
            data = found[1]
        description, image = data.split(b"\n", 1)
        return Inspection(json.loads(description), image)

    def _inspect_now(self, text: bytes) -> bytes:
        inspection = self._translator.inspect(_decode(text))
        return json.dumps(inspection.module).encode() + b"\n" + inspection.image

    async def _compile(self, key: str, module: str, kernel: str, opt: int | None) -> Path:
        found = self._cache.load(key, ".so")
        if found is not None:
            return found[0]
        text = self._texts.get(module)
        if text is None:
            raise UnknownModule("send the text of the module along")
        self._texts.move_to_end(module)
        scratch = _scratch()
        try:
            data = await self._work(
                lambda: link(
                    self._translator.compile(_decode(text), kernel, opt),
                    self._settings.archive,
                    scratch,
                ),
                f"compiling kernel {kernel}",
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self._cache.store(key, ".so", data)

    async def _work(self, work: Callable[[], bytes], what: str) -> bytes:
        async with self._slots:
            self._translator.load()
            log.info("%s", what)
            return await run_in_child(work, self._settings.limits, what)


def _decode(text: bytes) -> str:
    """Comments of PTX may hold any bytes; everything that means something is ASCII."""
    return text.decode("latin-1")


def _scratch() -> Path:
    """Return a new directory for the linker, in memory if possible."""
    reasons: list[str] = []
    for base in dict.fromkeys(("/dev/shm", tempfile.gettempdir())):
        try:
            return Path(tempfile.mkdtemp(prefix="headrace-softgpu-link-", dir=base))
        except OSError as error:
            reasons.append(f"{base}: {error.strerror}")
    raise NoSpace("no directory to link in: " + "; ".join(reasons))
