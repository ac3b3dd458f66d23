"""Answers the two questions, what is in a module and where is a kernel's code, through the cache.

Equal questions that arrive together are worked on once. A kernel's key is made from what its code
depends on, so an edited module costs a compile of the edited kernels only. Large kernels come in
two tiers: quickly made code at once, optimised code from a compile that goes on behind.
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
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from remoting.softgpu.compiler.cache import Cache
from remoting.softgpu.compiler.children import Limits, run_in_child
from remoting.softgpu.compiler.errors import CompileError, NoSpace, UnknownModule
from remoting.softgpu.compiler.link import link
from remoting.softgpu.compiler.target import cpu_fingerprint
from remoting.softgpu.compiler.translator import Inspection, Translator

log = logging.getLogger(__name__)
T = TypeVar("T")

ABI_VERSION = 3
"""SG_ABI_VERSION of exec/kernel_abi.h; a test compares the two."""

HELD_BYTES = 512 << 20
"""Texts kept in memory, so that a compile needs only the module's hash."""

DESCRIBED_MODULES = 256
"""Modules whose kernels' identities are kept in memory."""

QUICK_FROM = 16 << 10
"""Size of a kernel's text from which quick code comes first: there optimising takes twice the time,
and half a second more."""

QUICK_TO = 1 << 20
"""Beyond, the translator does not optimise anyway."""

REMEMBERED_FAILURES = 1024

POLITENESS = 10
"""Niceness of compiles that nobody waits for."""


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
    quick_from: int = QUICK_FROM
    """Characters of text from which a kernel is compiled in two tiers."""


@dataclass(frozen=True)
class KernelText:
    """Identity and size of what a kernel is made from."""

    digest: str
    size: int


@dataclass(frozen=True)
class Code:
    """A kernel's shared object."""

    path: Path
    final: bool
    """False: better code is being made."""


class Library:
    """All modules and kernels that were asked for."""

    def __init__(self, translator: Translator, cache: Cache, settings: LibrarySettings) -> None:
        self._translator = translator
        self._cache = cache
        self._settings = settings
        self._texts: OrderedDict[str, bytes] = OrderedDict()
        self._held = 0
        self._kernels: OrderedDict[str, dict[str, KernelText]] = OrderedDict()
        self._running: dict[str, asyncio.Task[Any]] = {}
        self._slots = asyncio.Semaphore(settings.parallel or len(os.sched_getaffinity(0)))
        # What nobody waits for takes a slot of its own, and never more than one.
        self._slot_behind = asyncio.Semaphore(1)
        self._failed_behind: OrderedDict[str, CompileError] = OrderedDict()
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
        inspection = await self._once(key, lambda: self._inspect(key, text))
        self._remember(module, inspection)
        return inspection

    async def compile(self, module: str, kernel: str, opt: int | None, tiers: bool = False) -> Code:
        """Return a kernel's shared object; with `tiers` perhaps one that was made quickly, while
        better code is being made: see better()."""
        made_from = await self._made_from(module, kernel)
        key = self._key("compile", made_from.digest, opt)
        in_tiers = opt is None and self._settings.quick_from <= made_from.size <= QUICK_TO
        if not (tiers and in_tiers):
            return Code(
                await self._once(key, lambda: self._compile(key, module, kernel, opt)), True
            )
        found = self._cache.load(key, ".so")
        if found is not None:
            return Code(found[0], True)
        quick = self._key("compile", made_from.digest, 0)
        path = await self._once(quick, lambda: self._compile(quick, module, kernel, 0))
        self._compile_behind(key, module, kernel)
        return Code(path, False)

    async def better(self, module: str, kernel: str) -> Path | None:
        """Return the optimised code of a kernel, or None while it is being made."""
        key = self._key("compile", (await self._made_from(module, kernel)).digest, None)
        if key in self._failed_behind:
            raise self._failed_behind[key]
        if key in self._running:
            return None
        found = self._cache.load(key, ".so")
        if found is None:  # this helper was started after the one that was asked first
            self._compile_behind(key, module, kernel)
            return None
        return found[0]

    async def close(self) -> None:
        """Stop what runs; children die with their tasks."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _key(self, *question: object) -> str:
        text = json.dumps([self._fingerprint, question], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _remember(self, module: str, inspection: Inspection) -> None:
        self._kernels[module] = {
            kernel["name"]: KernelText(kernel["code"], kernel["text_bytes"])
            for kernel in inspection.module["kernels"]
        }
        self._kernels.move_to_end(module)
        if len(self._kernels) > DESCRIBED_MODULES:
            self._kernels.popitem(last=False)

    async def _made_from(self, module: str, kernel: str) -> KernelText:
        if module not in self._kernels:
            if module in self._texts:
                await self.inspect(module)
            else:
                found = self._cache.load(self._key("inspect", module), ".json")
                if found is None:
                    raise UnknownModule("send the text of the module along")
                self._remember(module, _parse(found[1]))
        # A kernel that does not exist has a name of its own: the translator says so.
        return self._kernels[module].get(kernel) or KernelText(f"{module}/{kernel}", 0)

    def _start(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        task = self._running.get(key)
        if task is None or task.done():
            task = asyncio.create_task(start())
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def _once(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        # Shielded: a client that goes away takes nothing from the others.
        return await asyncio.shield(self._start(key, start))

    def _compile_behind(self, key: str, module: str, kernel: str) -> None:
        if key not in self._failed_behind:
            text = self._text(module)  # now: it may not be held any more when the turn comes
            self._start(key, lambda: self._optimise(key, text, kernel))

    async def _optimise(self, key: str, text: bytes, kernel: str) -> Path:
        try:
            async with self._slot_behind:
                return await self._make(key, text, kernel, None, politely=True)
        except CompileError as error:
            self._failed_behind[key] = error
            if len(self._failed_behind) > REMEMBERED_FAILURES:
                self._failed_behind.popitem(last=False)
            raise

    def _finished(self, key: str, task: asyncio.Future[Any]) -> None:
        if self._running.get(key) is task:
            del self._running[key]
        if not task.cancelled():
            task.exception()  # seen, also when every client that asked has gone

    async def _inspect(self, key: str, text: bytes) -> Inspection:
        found = self._cache.load(key, ".json")
        if found is not None:
            return _parse(found[1])
        async with self._slots:
            data = await self._work(lambda: self._inspect_now(text), "reading the PTX module")
        try:
            self._cache.store(key, ".json", data)
        except NoSpace as error:
            log.warning("module description not cached: %s", error)
        return _parse(data)

    def _inspect_now(self, text: bytes) -> bytes:
        inspection = self._translator.inspect(_decode(text))
        return json.dumps(inspection.module).encode() + b"\n" + inspection.image

    async def _compile(self, key: str, module: str, kernel: str, opt: int | None) -> Path:
        found = self._cache.load(key, ".so")
        if found is not None:
            return found[0]
        text = self._text(module)
        async with self._slots:
            return await self._make(key, text, kernel, opt)

    def _text(self, module: str) -> bytes:
        if module not in self._texts:
            raise UnknownModule("send the text of the module along")
        self._texts.move_to_end(module)
        return self._texts[module]

    async def _make(
        self, key: str, text: bytes, kernel: str, opt: int | None, politely: bool = False
    ) -> Path:
        scratch = _scratch()
        try:
            data = await self._work(
                lambda: self._make_now(text, kernel, opt, scratch, politely),
                f"{'optimising' if politely else 'compiling'} kernel {kernel}",
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return self._cache.store(key, ".so", data)

    def _make_now(
        self, text: bytes, kernel: str, opt: int | None, scratch: Path, politely: bool
    ) -> bytes:
        if politely:
            os.nice(POLITENESS)
        obj = self._translator.compile(_decode(text), kernel, opt)
        return link(obj, self._settings.archive, scratch)

    async def _work(self, work: Callable[[], bytes], what: str) -> bytes:
        self._translator.load()
        log.info("%s", what)
        return await run_in_child(work, self._settings.limits, what)


def _parse(data: bytes) -> Inspection:
    description, image = data.split(b"\n", 1)
    return Inspection(json.loads(description), image)


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
