"""What a kernel's machine code depends on, as a digest: equal digests mean equal code.

The digest covers the text of the kernel and of every function that it may call, and the layout of
every variable that they name. What it does not cover never reaches the generated code: comments,
line information, initial values (the driver fills those in), other kernels. Names are looked for in
the plain text, so that more may be covered than is used, never less.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from .body import LOC
from .layout import GlobalsLayout
from .model import Function, Module
from .pointers import calls_by_pointer, taken_functions

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


class KernelText(NamedTuple):
    """Identity and size of what a kernel is made from."""

    digest: str
    """Hexadecimal."""
    size: int
    """Characters of text, each function counted once."""
    functions: tuple[str, ...]
    """The kernel itself and what it may call."""


class _Part(NamedTuple):
    text: bytes
    names: set[str]


class _References:
    def __init__(self, module: Module, layout: GlobalsLayout) -> None:
        self.module = module
        self.layout = layout
        self.known = {*module.functions, *module.variables, *module.aliases}
        self.parts: dict[str, _Part] = {}
        self.taken: list[str] | None = None
        # isspacep asks about all constants, without naming them.
        constants = [
            (offset, module.variables[name].size)
            for name, offset in layout.offsets.items()
            if module.variables[name].space == "const"
        ]
        self.common = repr((module.version, module.target, module.address_size, constants)).encode()

    def part(self, function: Function) -> _Part:
        if function.name not in self.parts:
            assert function.body is not None
            text = self.module.text[function.offset : function.body[1]]
            text = LOC.sub(" ", _COMMENT.sub(" ", text))
            names = self.known.intersection(_NAME.findall(text))
            self.parts[function.name] = _Part(text.encode("utf-8", "surrogatepass"), names)
        return self.parts[function.name]

    def variable(self, name: str) -> bytes:
        variable = self.module.variables[name]
        return repr(
            (
                *(name, variable.space, variable.type, variable.align, variable.count),
                *(variable.linkage, variable.unsized),
                *(self.layout.offsets.get(name), self.layout.broken.get(name)),
            )
        ).encode()

    def kernel(self, entry: Function) -> KernelText:
        module, reached, waiting = self.module, {entry.name}, [entry.name]
        variables: set[str] = set()
        aliases: set[str] = set()
        while waiting:
            part = self.part(module.functions[waiting.pop()])
            names = set(part.names)
            if calls_by_pointer(part.text.decode("utf-8", "surrogatepass")):
                if self.taken is None:
                    self.taken = taken_functions(module)
                names.update(self.taken)
            for name in names:
                if name in module.aliases:
                    aliases.add(name)
                    name = module.aliases[name]
                if name in module.functions and name not in reached:
                    reached.add(name)
                    waiting.append(name)
                if name in module.variables:
                    variables.add(name)
        digest, size = hashlib.sha256(), 0

        def add(data: bytes) -> None:
            digest.update(len(data).to_bytes(8, "little") + data)

        add(entry.name.encode())
        add(self.common)
        for name in sorted(reached):
            text = self.part(module.functions[name]).text
            add(text)
            size += len(text)
        add(repr([(name, module.aliases[name]) for name in sorted(aliases)]).encode())
        # In the module's order, which decides about their places in shared memory.
        for name in module.variables:
            if name in variables:
                add(self.variable(name))
        return KernelText(digest.hexdigest(), size, (entry.name, *sorted(reached - {entry.name})))


def kernel_texts(module: Module, layout: GlobalsLayout) -> dict[str, KernelText]:
    """Identity of every kernel of a module, by name."""
    references = _References(module, layout)
    return {f.name: references.kernel(f) for f in module.functions.values() if f.entry}
