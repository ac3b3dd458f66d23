"""What is in a module, without parsing the bodies: kernels, variables, the initial image."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field

from . import forms
from .errors import UnsupportedForm
from .families import load_all
from .layout import (
    GLOBALS_ALIGN,
    Relocation,
    align_up,
    globals_image,
    globals_layout,
    parameter_offsets,
)
from .model import Function, Module
from .references import KernelText, kernel_texts
from .scan import blank_comments, scan_module

#: Modules up to this many characters are looked through for forms that are not supported.
LOOK_AT_FORMS = 1 << 20

_CONTROL = {"bra", "brx", "call", "ret", "exit"}
_STATEMENT = re.compile(
    r"(?:^|[;{}:])\s*(?:@\s*!?\s*[\w$%]+\s+)?([a-z]\w*(?:\.\w+(?:::\w+)*)+)(?=[\s;])"
)


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """An entry.  Shared and local memory are exact only in the compiled kernel's descriptor."""

    name: str
    params: list[tuple[int, int]]
    param_bytes: int
    static_shared: int
    local_bytes: int
    max_threads: int
    req_ntid: tuple[int, int, int]
    code: str
    """Digest of everything that its machine code depends on."""
    text_bytes: int
    """Size of its text, with that of the functions it may call."""
    refused: str = ""
    """A form in it that is not supported, in modules that are small enough to look."""


@dataclass(frozen=True, slots=True)
class GlobalInfo:
    """A .global or .const variable in the globals block."""

    name: str
    offset: int
    size: int
    align: int
    constant: bool


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """Everything the driver needs to load a module."""

    version: str
    target: str
    kernels: list[KernelInfo]
    globals: list[GlobalInfo]
    globals_bytes: int
    globals_align: int
    image: bytes
    relocations: list[Relocation]
    unresolved: list[str] = field(default_factory=list)


def _kernel(module: Module, function: Function, made_from: KernelText, refused: str) -> KernelInfo:
    params, size = parameter_offsets(function)
    limit = function.max_ntid if any(function.max_ntid) else function.req_ntid
    assert function.body is not None
    start, end = function.body
    text = module.text
    shared = local = 0
    for name, variable in module.variables.items():
        if variable.space == "shared" and not variable.unsized and text.find(name, start, end) >= 0:
            shared = align_up(shared, variable.align) + variable.size
    for space in (".shared", ".local"):
        place = text.find(space + " ", start, end)
        while place >= 0:
            # a declaration, not part of an instruction
            before = (
                text[:place].rstrip(" \t")[-1:]
                if place - start < 64
                else text[place - 32 : place].rstrip(" \t")[-1:]
            )
            if before in ("\n", ";", "{", "}", ""):
                size_here = _declared_bytes(module, function, place)
                if space == ".shared":
                    shared += size_here
                else:
                    local += size_here
            place = text.find(space + " ", place + 1, end)
    return KernelInfo(
        function.name,
        params,
        size,
        shared,
        align_up(local, 16),
        limit[0] * limit[1] * limit[2],
        function.req_ntid,
        made_from.digest,
        made_from.size,
        refused,
    )


def _declared_bytes(module: Module, function: Function, place: int) -> int:
    from .declarations import parse_variables
    from .errors import PtxError
    from .scan import blank_comments

    stop = module.text.find(";", place)
    try:
        found = parse_variables(blank_comments(module.text[place:stop]), place, 0)
    except PtxError:
        return 0
    return sum(align_up(v.size, v.align) for v in found if not v.unsized)


def _first_unknown_form(module: Module, function: Function) -> str:
    assert function.body is not None
    start, end = function.body
    for match in _STATEMENT.finditer(blank_comments(module.text[start:end])):
        name = match.group(1)
        if name.split(".", 1)[0] not in _CONTROL and forms.find(name) is None:
            return str(UnsupportedForm(name, module.line(start + match.start(1))))
    return ""


def _refused(module: Module, texts: dict[str, KernelText]) -> dict[str, str]:
    """For each kernel that will be refused at its look-up: the form that it or a callee has."""
    load_all()
    known = {
        f.name: _first_unknown_form(module, f)
        for f in module.functions.values()
        if f.body is not None
    }
    result = {}
    for name, text in texts.items():
        found = next((known[f] for f in text.functions if known.get(f)), "")
        if found:
            result[name] = found
    return result


def inspect_module(text: str) -> ModuleInfo:
    """Kernels and variables of a module; raises PtxError."""
    module = scan_module(text)
    layout = globals_layout(module)
    image, relocations = globals_image(module, layout)
    texts = kernel_texts(module, layout)
    refused = _refused(module, texts) if len(text) <= LOOK_AT_FORMS else {}
    kernels = [
        _kernel(module, f, texts[f.name], refused.get(f.name, ""))
        for f in module.functions.values()
        if f.entry
    ]
    known = {k.name: k for k in kernels}
    for alias, name in module.aliases.items():
        if name in known:
            kernels.append(dataclasses.replace(known[name], name=alias))
    variables = [
        GlobalInfo(
            name,
            offset,
            module.variables[name].size,
            module.variables[name].align,
            module.variables[name].space == "const",
        )
        for name, offset in layout.offsets.items()
    ]
    return ModuleInfo(
        f"{module.version[0]}.{module.version[1]}",
        module.target,
        kernels,
        variables,
        layout.size,
        GLOBALS_ALIGN,
        image,
        relocations,
        sorted(layout.broken),
    )
