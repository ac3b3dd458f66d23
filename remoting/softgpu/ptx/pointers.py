"""Function pointers: what a function's address is, and which functions a pointer may mean.

A kernel carries its own copy of the functions it calls, so an address is no place in memory but a
number made from the name: it is the same in every kernel of a module and in stored tables.  A call
through a pointer compares it with the functions of that signature whose address is taken anywhere
in the module.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from .literals import IDENT
from .model import Function, InitRef, Module, Variable

_TAKEN = re.compile(rf"\bmov\s*\.[bu]64\s+[^,;]+,\s*({IDENT})\s*;")
_CALL_BY_POINTER = re.compile(r"\.(?:callprototype|calltargets)\b")

Signature = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes of the returned values, and of the parameters."""


def function_address(name: str) -> int:
    """Never 0, never an address of memory."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return 0x7F << 56 | int.from_bytes(digest[:6], "little") << 4


def is_function(module: Module, name: str) -> bool:
    """Is it a device function with a body?"""
    function = module.functions.get(module.aliases.get(name, name))
    return function is not None and not function.entry


def taken_functions(module: Module) -> list[str]:
    """Functions whose address is taken, in the module's order."""
    names = set(_TAKEN.findall(module.text))
    for variable in module.variables.values():
        names.update(item.symbol for item in variable.init if isinstance(item, InitRef))
    names = {module.aliases.get(name, name) for name in names}
    return [name for name in module.functions if name in names and is_function(module, name)]


def calls_by_pointer(text: str) -> bool:
    """Does the text of a function have a call through a pointer?"""
    return _CALL_BY_POINTER.search(text) is not None


def signature(returns: Sequence[Variable], params: Sequence[Variable]) -> Signature:
    """The sizes by which functions and calls are compared."""
    return tuple(v.size for v in returns), tuple(v.size for v in params)


def signature_of(function: Function) -> Signature:
    """The same of a function."""
    return signature(function.returns, function.params)
