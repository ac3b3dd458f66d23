"""Where things lie: the module's globals, and a kernel's shared, local and parameter memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import UnsupportedForm, invalid
from .inline import Kernel
from .model import Addr, Args, Function, InitRef, Instr, Module, Operand, Pair, Sym, Variable, Vec
from .pointers import function_address, is_function

GLOBALS_ALIGN = 256
#: Most bytes of initial values; the image is held in memory.
LARGEST_IMAGE = 1 << 30


def align_up(value: int, align: int) -> int:
    """The least multiple of ``align`` that is not below ``value``."""
    return -(-value // align) * align


@dataclass(frozen=True, slots=True)
class Relocation:
    """An address in the image: at ``offset`` stands target + addend, 8 bytes."""

    offset: int
    target: str
    addend: int
    generic: bool


@dataclass(slots=True)
class GlobalsLayout:
    """The block that holds a module's .global and .const variables."""

    offsets: dict[str, int] = field(default_factory=dict)
    size: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    """Variables that cannot be used, and why; kernels that refer to them are refused."""


def globals_layout(module: Module) -> GlobalsLayout:
    """Offsets in declaration order; the same for every kernel of a module."""
    result = GlobalsLayout()
    for var in module.variables.values():
        if var.space not in ("global", "const"):
            continue
        if var.count < 0:
            result.broken[var.name] = "managed variables, textures and surfaces are not supported"
        elif var.broken:
            result.broken[var.name] = var.broken
        elif var.linkage == "extern":
            result.broken[var.name] = "external variable without a definition"
        else:
            result.size = align_up(result.size, var.align)
            result.offsets[var.name] = result.size
            result.size += var.size
    changed = True
    while changed:
        changed = False
        for name, var in module.variables.items():
            if name in result.broken:
                continue
            for item in var.init:
                if not isinstance(item, InitRef):
                    continue
                why = result.broken.get(item.symbol)
                if is_function(module, item.symbol) and not item.addend:
                    continue
                if why is None and item.symbol not in result.offsets:
                    why = f"its initial value is the address of {item.symbol}, which is no variable"
                if why is not None:
                    result.broken[name] = why
                    changed = True
    return result


def globals_image(module: Module, layout: GlobalsLayout) -> tuple[bytes, list[Relocation]]:
    """Initial content up to the last byte that is not zero, and the addresses to fill in."""
    ends = [
        start + len(module.variables[name].init) * module.variables[name].init_bytes
        for name, start in layout.offsets.items()
        if module.variables[name].init
    ]
    if max(ends, default=0) > LARGEST_IMAGE:
        raise invalid(f"more than {LARGEST_IMAGE >> 20} MiB of variables with initial values")
    image = bytearray(max(ends, default=0))
    relocations: list[Relocation] = []
    for name, start in layout.offsets.items():
        var = module.variables[name]
        for k, item in enumerate(var.init):
            place = start + k * var.init_bytes
            if isinstance(item, InitRef):
                if name in layout.broken:
                    continue
                if is_function(module, item.symbol):
                    target = module.aliases.get(item.symbol, item.symbol)
                    image[place : place + 8] = function_address(target).to_bytes(8, "little")
                else:
                    relocations.append(Relocation(place, item.symbol, item.addend, item.generic))
            else:
                image[place : place + var.init_bytes] = item.to_bytes(var.init_bytes, "little")
    return bytes(image).rstrip(b"\0"), relocations


def parameter_offsets(function: Function) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of each kernel parameter, and the size of the whole block."""
    end, result = 0, []
    for param in function.params:
        start = align_up(end, param.align)
        result.append((start, param.size))
        end = start + param.size
    return result, end


def mentioned(operand: Operand) -> set[str]:
    """Symbols in an operand."""
    if isinstance(operand, Sym):
        return {operand.name}
    if isinstance(operand, Addr):
        return mentioned(operand.base)
    if isinstance(operand, (Vec, Args)):
        return {name for item in operand.items for name in mentioned(item)}
    if isinstance(operand, Pair):
        return mentioned(operand.first) | mentioned(operand.second)
    return set()


@dataclass(slots=True)
class KernelLayout:
    """Addresses of everything a kernel refers to."""

    shared: dict[str, int] = field(default_factory=dict)
    local: dict[str, int] = field(default_factory=dict)
    param: dict[str, int] = field(default_factory=dict)
    static_shared: int = 0
    local_bytes: int = 0
    param_bytes: int = 0
    params: list[tuple[int, int]] = field(default_factory=list)
    dynamic_shared: bool = False


def kernel_layout(module: Module, kernel: Kernel, globals_: GlobalsLayout) -> KernelLayout:
    """Only what the kernel mentions takes space."""
    result = KernelLayout()
    used: dict[str, int] = {}
    for stmt in kernel.stmts:
        if isinstance(stmt, Instr):
            for op in stmt.ops:
                for name in mentioned(op):
                    used.setdefault(name, stmt.offset)
    dynamic: list[Variable] = []
    for name, var in {**module.variables, **kernel.vars}.items():
        if var.space == "shared" and name in used:
            if var.unsized:
                dynamic.append(var)
            else:
                result.static_shared = align_up(result.static_shared, var.align)
                result.shared[name] = result.static_shared
                result.static_shared += var.size
        elif var.space == "local" and name in kernel.vars:
            result.local_bytes = align_up(result.local_bytes, var.align)
            result.local[name] = result.local_bytes
            result.local_bytes += var.size
        elif var.space == "local" and name in used:
            raise UnsupportedForm(".local at module scope", module.line(used[name]))
        elif name in used and name in globals_.broken:
            raise UnsupportedForm(
                f"variable {name}: {globals_.broken[name]}", module.line(used[name])
            )
        elif var.space in ("global", "const") and name in kernel.vars:
            raise UnsupportedForm(
                f".{var.space} inside a function", module.line(kernel.entry.offset)
            )
    result.local_bytes = align_up(result.local_bytes, 16)
    for var in dynamic:
        result.shared[var.name] = align_up(result.static_shared, 16)
        result.dynamic_shared = True
    result.params, result.param_bytes = parameter_offsets(kernel.entry)
    for param, (offset, _) in zip(kernel.entry.params, result.params, strict=True):
        if param.name in result.param:
            raise invalid(
                f"parameter {param.name} is declared twice", module.line(kernel.entry.offset)
            )
        result.param[param.name] = offset
    return result
