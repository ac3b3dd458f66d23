"""The translator as the helper sees it: imported late, and only here.

Importing LLVM takes longer than everything that a helper with a filled cache does, so it waits
for the first miss.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from remoting.softgpu.compiler.errors import TranslatorError

DEFAULT_TRANSLATOR = "remoting.softgpu.ptx"


class Inspection(NamedTuple):
    """A module's description for the wire, and the initial content of its globals."""

    module: dict[str, Any]
    image: bytes


class Translator:
    """A module with prepare(), inspect_module(), compile_kernel(), PtxError; by its import name."""

    def __init__(self, name: str = DEFAULT_TRANSLATOR) -> None:
        self.name = name
        self._module: ModuleType | None = None

    def fingerprint(self) -> str:
        """Return a digest of the translator's sources: results of another one are not reused."""
        spec = importlib.util.find_spec(self.name)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"no translator {self.name}", name=self.name)
        origin = Path(spec.origin)
        sources = sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]
        digest = hashlib.sha256()
        for source in sources:
            digest.update(str(source.relative_to(origin.parent)).encode() + b"\0")
            digest.update(hashlib.sha256(source.read_bytes()).digest())
        return digest.hexdigest()

    def load(self) -> ModuleType:
        """Import the translator; afterwards children of this process have it at once."""
        if self._module is None:
            self._module = importlib.import_module(self.name)
            self._module.prepare()
        return self._module

    def inspect(self, text: str) -> Inspection:
        """Describe a module."""
        translator = self.load()
        try:
            info = translator.inspect_module(text)
        except translator.PtxError as error:
            raise TranslatorError(error.kind, error.message, error.line) from None
        return Inspection(_describe(info), bytes(info.image))

    def compile(self, text: str, kernel: str, opt: int | None) -> bytes:
        """Return the object file of one kernel."""
        translator = self.load()
        try:
            target = translator.TargetSpec.host(opt)
            return bytes(translator.compile_kernel(text, kernel, target))
        except translator.PtxError as error:
            raise TranslatorError(error.kind, error.message, error.line) from None


def _describe(info: Any) -> dict[str, Any]:
    return {
        "version": info.version,
        "target": info.target,
        "kernels": [
            {
                "name": kernel.name,
                "params": [[offset, size] for offset, size in kernel.params],
                "param_bytes": kernel.param_bytes,
                "static_shared": kernel.static_shared,
                "local_bytes": kernel.local_bytes,
                "max_threads": kernel.max_threads,
                "req_ntid": list(kernel.req_ntid),
                "refused": kernel.refused,
                "code": kernel.code,
                "text_bytes": kernel.text_bytes,
            }
            for kernel in info.kernels
        ],
        "globals": [
            {
                "name": variable.name,
                "offset": variable.offset,
                "size": variable.size,
                "align": variable.align,
                "constant": variable.constant,
            }
            for variable in info.globals
        ],
        "globals_bytes": info.globals_bytes,
        "globals_align": info.globals_align,
        "relocations": [
            {
                "offset": relocation.offset,
                "target": relocation.target,
                "addend": relocation.addend,
                "generic": relocation.generic,
            }
            for relocation in info.relocations
        ],
    }
