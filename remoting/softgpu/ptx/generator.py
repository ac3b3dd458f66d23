"""What the generators in ``families/`` work with: registers, operands, addresses, the active mask.

A register is memory of the function (an alloca of 32 lanes, which LLVM turns into values); it is
kept as integers of its width, predicates as i1.  A write changes only the active lanes.
"""

from __future__ import annotations

from . import abi
from .builder import Builder, Value
from .cfg import Layout
from .errors import PtxError, UnsupportedForm, invalid
from .inline import Kernel
from .layout import GlobalsLayout, KernelLayout
from .literals import f32_bits
from .model import TYPE_BYTES, Float, Instr, Int, Module, Not, Operand, Reg, Sink, Sreg, Sym
from .pointers import function_address, is_function

#: LLVM element type of every PTX type.  Half types and packed pairs travel as integers.
ELEM = {
    "b8": "i8", "s8": "i8", "u8": "i8",
    "b16": "i16", "s16": "i16", "u16": "i16", "f16": "i16", "bf16": "i16",
    "b32": "i32", "s32": "i32", "u32": "i32", "f16x2": "i32", "bf16x2": "i32",
    "u16x2": "i32", "s16x2": "i32",
    "b64": "i64", "s64": "i64", "u64": "i64", "f32x2": "i64", "b128": "i128",
    "f32": "float", "f64": "double", "pred": "i1",
}  # fmt: skip
_INT_OF = {"float": "i32", "double": "i64"}
_BITS = {"u16x2": 32, "s16x2": 32, "pred": 1}
CARRY = "%CC"


def type_bits(type_name: str) -> int:
    """Width of a PTX type in bits (predicates: 1)."""
    return _BITS.get(type_name) or 8 * TYPE_BYTES[type_name]


class Generator:
    """State while one kernel is generated."""

    def __init__(
        self,
        module: Module,
        kernel: Kernel,
        layout: Layout,
        memory: KernelLayout,
        globals_: GlobalsLayout,
    ) -> None:
        self.module = module
        self.kernel = kernel
        self.layout = layout
        self.memory = memory
        self.globals = globals_
        self.b = Builder()
        self.used_regs: dict[str, str] = {}
        self.private_regs: set[str] = set()
        self.scratch: dict[str, list[str]] = {}
        self.mask = "0"
        self.active = Value("zeroinitializer", "i1")
        self.guarded = False
        self.instr: Instr | None = None
        self.flags = 0
        self._scratch_used: dict[str, int] = {}

    # ------------------------------------------------------------------ errors
    @property
    def line(self) -> int:
        return self.module.line(self.instr.offset) if self.instr else 0

    def invalid(self, message: str) -> PtxError:
        form = self.instr.form if self.instr else ""
        return invalid(f"{form}: {message}", self.line)

    def unsupported(self, what: str) -> UnsupportedForm:
        return UnsupportedForm(what, self.line)

    # ------------------------------------------------------------------ registers
    def slot(self, name: str) -> str:
        """The memory of a register."""
        if name not in self.used_regs:
            self.used_regs[name] = f"%r{len(self.used_regs)}"
        return self.used_regs[name]

    def reg_elem(self, name: str) -> str:
        elem = "i1" if name == CARRY else ELEM[self.kernel.regs[name]]
        return _INT_OF.get(elem, elem)

    def read(self, op: Operand, type_name: str, chop: bool = False) -> Value:
        """The operand as a vector of the type's element.  ``chop``: a wider register is allowed."""
        elem = ELEM[type_name]
        b = self.b
        if isinstance(op, Reg):
            have, want = self.reg_elem(op.name), _INT_OF.get(elem, elem)
            value = b.load(have, self.slot(op.name))
            if have != want:
                if not chop or "i1" in (have, want) or value.bits < type_bits(type_name):
                    raise self.invalid(f"register {op.name} does not fit type .{type_name}")
                value = b.cast("trunc", value, want)
            return b.bitcast(value, elem)
        if isinstance(op, Not):
            if elem != "i1":
                raise self.invalid("negated operand that is not a predicate")
            return b.invert(self.read(op.reg, "pred"))
        if isinstance(op, Int):
            if elem == "i1":
                if op.value not in (0, 1, -1):
                    raise self.invalid("predicate constant must be 0, 1 or -1")
                return b.const("i1", int(op.value != 0))
            if elem in _INT_OF:
                raise self.invalid(f"integer constant for type .{type_name}")
            return b.const(elem, op.value)
        if isinstance(op, Float):
            return self._float(op, type_name, elem)
        if isinstance(op, Sreg):
            return self._special(op, elem)
        if isinstance(op, Sym):
            address = self.symbol(op)
            if type_bits(type_name) == 64:
                return address
            if type_bits(type_name) == 32 and self.space_of(op.name) in (
                "shared",
                "local",
                "param",
            ):
                return b.cast("trunc", address, "i32")
            raise self.invalid(f"address of {op.name} as .{type_name}")
        raise self.invalid("operand of the wrong kind")

    def _float(self, op: Float, type_name: str, elem: str) -> Value:
        width = type_bits(type_name)
        if type_name not in ("f32", "f64", "b32", "b64") or (op.width and op.width != width):
            raise self.invalid(f"floating constant for type .{type_name}")
        bits = op.bits
        if op.width == 0:
            if elem not in _INT_OF:
                raise self.invalid(f"floating constant for type .{type_name}")
            bits = f32_bits(op.value) if width == 32 else op.bits
        return self.b.bitcast(self.b.const(f"i{width}", bits), elem)

    def _special(self, op: Sreg, elem: str) -> Value:
        from .families import special

        value = special.read(self, op.name)
        if value.bits != self.b.const(elem, 0).bits:
            if not elem.startswith("i") or elem == "i1":
                raise self.invalid(f"special register %{op.name} does not fit")
            value = self.b.resize(value, elem)
        return self.b.bitcast(value, elem)

    def write(self, op: Operand, type_name: str, value: Value, widen: bool = False) -> None:
        """Write the active lanes.  ``widen``: a wider register gets the value extended."""
        if isinstance(op, Sink):
            return
        if not isinstance(op, Reg):
            raise self.invalid("the destination must be a register")
        b = self.b
        want = self.reg_elem(op.name)
        value = b.bitcast(value, _INT_OF.get(value.elem, value.elem))
        if value.elem != want:
            if not widen or "i1" in (want, value.elem) or value.bits > b.const(want, 0).bits:
                raise self.invalid(f"register {op.name} does not fit type .{type_name}")
            value = b.resize(value, want, signed=type_name.startswith("s"))
        self.store_reg(op.name, value)

    def store_reg(self, name: str, value: Value) -> None:
        slot = self.slot(name)
        if self.guarded or name not in self.private_regs:
            value = self.b.select(self.active, value, self.b.load(value.elem, slot))
        self.b.store(value, slot)

    def read_carry(self) -> Value:
        return self.b.load("i1", self.slot(CARRY))

    def write_carry(self, value: Value) -> None:
        self.store_reg(CARRY, value)

    # ------------------------------------------------------------------ symbols
    def space_of(self, name: str) -> str:
        """The state space of a variable."""
        if name in self.memory.shared:
            return "shared"
        if name in self.memory.local:
            return "local"
        if name in self.memory.param:
            return "param"
        if name in self.globals.offsets:
            return self.module.variables[name].space
        if name in self.module.functions or name in self.module.declared:
            raise self.unsupported(f"address of function {name}")
        raise self.invalid(f"unknown name {name}")

    def symbol(self, sym: Sym) -> Value:
        """A variable's address in its own space (i64); .global and .const are generic already."""
        if is_function(self.module, sym.name) and not sym.offset:
            name = self.module.aliases.get(sym.name, sym.name)
            return self.b.const("i64", function_address(name))
        space, b = self.space_of(sym.name), self.b
        if space in ("global", "const"):
            offset = self.globals.offsets[sym.name] + sym.offset
            return b.splat(b.raw(f"add i64 %globals.i, {offset}"), "i64")
        table = {
            "shared": self.memory.shared,
            "local": self.memory.local,
            "param": self.memory.param,
        }[space]
        return b.const("i64", table[sym.name] + sym.offset)

    # ------------------------------------------------------------------ calls out of the kernel
    def temp(self, elem: str, count: int = 1) -> str:
        """Memory for ``count`` vectors of 32, until the end of the instruction."""
        kind = f"[{count} x <32 x {elem}>]"
        number = self._scratch_used.get(kind, 0)
        self._scratch_used[kind] = number + 1
        names = self.scratch.setdefault(kind, [])
        if number == len(names):
            names.append(f"%t{sum(len(n) for n in self.scratch.values())}")
        return names[number]

    def release_temps(self) -> None:
        self._scratch_used.clear()

    def spill(self, *values: Value) -> str:
        """Vectors in memory, for a helper; i1 is not allowed."""
        pointer = self.temp(values[0].elem, len(values))
        for k, value in enumerate(values):
            self.b.store(value, self.part(pointer, value, k), 64)
        return pointer

    def part(self, pointer: str, like: Value, k: int) -> str:
        size = like.bits * 4
        return pointer if k == 0 else self.b.raw(f"getelementptr i8, ptr {pointer}, i64 {k * size}")

    def helper(self, name: str, *args: str, result: str = "void") -> str:
        """Call ``sgrt_name`` of the device helpers; arguments are typed scalars."""
        types = ", ".join(a.rsplit(" ", 1)[0] for a in args)
        self.b.declare(f"{result} @sgrt_{name}({types})")
        call = f"call {result} @sgrt_{name}({', '.join(args)})"
        if result == "void":
            self.b.emit(call)
            return ""
        return self.b.raw(call)

    def service(self, name: str, *args: str, result: str = "void") -> str:
        """Call a function of env->services."""
        slot = self.b.raw(f"getelementptr i8, ptr %services, i64 {abi.SERVICES[name]}")
        function = self.b.raw(f"load ptr, ptr {slot}, align 8")
        call = f"call {result} {function}({', '.join(['ptr %env', *args])})"
        if result == "void":
            self.b.emit(call)
            return ""
        return self.b.raw(call)

    def trap(self, kind: int) -> None:
        """End the launch; what follows is not reached."""
        self.service("trap", f"i32 {kind}", "i64 0")
        self.b.emit("unreachable")
        self.b.label(self.b.new_label())

    def count(self, operands: int) -> None:
        """Check the number of operands of the current instruction."""
        if self.instr is not None and len(self.instr.ops) != operands:
            raise self.invalid(f"needs {operands} operands")
