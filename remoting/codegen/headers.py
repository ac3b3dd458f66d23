"""Reads the vendor's headers: preprocess, keep what is theirs, parse, reduce to the model.

`__CUDA_API_VERSION_INTERNAL` makes `cuda.h` declare every symbol that the library exports, old
versions and per-thread forms included, and keeps it from renaming them by macro.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cxxheaderparser.errors import CxxParseError
from cxxheaderparser.simple import NamespaceScope, parse_string
from cxxheaderparser.types import Array, DecoratedType, FunctionType, Pointer, PQName, Type
from cxxheaderparser.types import Function as ParsedFunction
from cxxheaderparser.types import Parameter as ParsedParameter

from remoting.codegen.errors import SpecError
from remoting.codegen.model import CFunction, CParam, CType, Header, ProcTypedef

_LINE_MARKER = re.compile(r'# \d+ "([^"]*)"')
_PROC_TYPEDEF = re.compile(r"PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?$")
_PRELUDE = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>\n"
_TYPEDEFS = "#include <cudaTypedefs.h>\n#include <cudaProfilerTypedefs.h>\n"


def read_headers(include: Path) -> Header:
    """Parse the driver headers in `include`."""
    for name in ("cuda.h", "cudaProfiler.h", "cudaTypedefs.h", "cudaProfilerTypedefs.h"):
        if not (include / name).exists():
            raise SpecError(
                [f"{include}/{name} is missing: run 'make setup', which installs the CUDA headers"]
            )
    scope = _parse(_PRELUDE + _TYPEDEFS, include)
    functions: dict[str, CFunction] = {}
    for parsed in scope.functions:
        function = _function(parsed)
        if function is not None:
            functions[function.symbol] = function
    enums, codes = _enums(scope)
    typedefs, pointers, procs = _typedefs(scope)
    return Header(
        functions=functions,
        typedefs=typedefs,
        enums=enums,
        structs=frozenset(_name(c.class_decl.typename) for c in scope.classes),
        function_pointers=pointers,
        proc_typedefs=tuple(procs),
        error_codes=codes,
    )


def _parse(source: str, include: Path) -> NamespaceScope:
    text = subprocess.run(
        ["gcc", "-E", f"-I{include}", "-x", "c++", "-"],
        input=source,
        text=True,
        capture_output=True,
        check=True,
    ).stdout
    try:
        return parse_string(_only_from(text, include)).namespace
    except CxxParseError as error:
        raise SpecError([f"the headers in {include} cannot be parsed: {error}"]) from error


def _only_from(text: str, include: Path) -> str:
    """Drop what the C library's own headers brought in: it has extensions that do not parse."""
    kept: list[str] = []
    keep = False
    for line in text.splitlines():
        marker = _LINE_MARKER.match(line)
        if marker:
            keep = marker.group(1).startswith(str(include))
        elif keep and not line.startswith("#"):
            kept.append(line)
    return "\n".join(kept)


def _name(name: PQName) -> str:
    return "::".join(segment.format() for segment in name.segments)


def _function(parsed: ParsedFunction) -> CFunction | None:
    result = parsed.return_type
    if not isinstance(result, Type) or _name(result.typename) != "CUresult":
        return None
    return CFunction(
        _name(parsed.name), tuple(_param(p, i) for i, p in enumerate(parsed.parameters))
    )


def _param(parsed: ParsedParameter, index: int) -> CParam:
    name = parsed.name or f"arg{index}"
    return CParam(name, _ctype(parsed.type), parsed.type.format_decl(name))


def _ctype(parsed: DecoratedType | FunctionType) -> CType:
    depth = 0
    at: DecoratedType | FunctionType = parsed
    while isinstance(at, Pointer | Array):
        depth += 1
        at = at.ptr_to if isinstance(at, Pointer) else at.array_of
    if isinstance(at, Type):
        return CType(_name(at.typename), depth, at.const)
    return CType("(function)", depth)


def _enums(scope: NamespaceScope) -> tuple[frozenset[str], tuple[tuple[str, int], ...]]:
    names: set[str] = set()
    codes: list[tuple[str, int]] = []
    for enum in scope.enums:
        name = _name(enum.typename)
        names.add(name)
        if name == "cudaError_enum":
            for value in enum.values:
                text = value.value.format() if value.value is not None else ""
                codes.append((value.name, int(text, 0)))
    return frozenset(names), tuple(codes)


def _typedefs(
    scope: NamespaceScope,
) -> tuple[dict[str, CType], frozenset[str], list[ProcTypedef]]:
    plain: dict[str, CType] = {}
    pointers: set[str] = set()
    procs: list[ProcTypedef] = []
    for typedef in scope.typedefs:
        target = typedef.type
        if isinstance(target, Pointer) and isinstance(target.ptr_to, FunctionType):
            match = _PROC_TYPEDEF.match(typedef.name)
            if match:
                count = len(target.ptr_to.parameters)
                procs.append(ProcTypedef(match[1], int(match[2]), match[3] or "", count))
            else:
                pointers.add(typedef.name)
        else:
            plain[typedef.name] = _ctype(target)
    return plain, frozenset(pointers), procs
