"""From an entry to one flat body: calls are expanded in place, call parameters become registers.

Every device function is expanded at each call (recursion is refused by name); a call through a
pointer is a choice between the functions that it may mean.  Parameter variables of calls are
per-lane storage; where all accesses agree on offsets and sizes they become registers, otherwise
local memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from .body import parse_body
from .errors import UnsupportedForm, invalid
from .model import (
    TYPE_BYTES,
    Addr,
    Args,
    Function,
    Guard,
    Instr,
    Int,
    Label,
    Module,
    Not,
    Operand,
    Pair,
    Reg,
    Sink,
    Stmt,
    Sym,
    Variable,
    Vec,
)
from .pointers import function_address, signature_of, taken_functions

#: Functions that the runtime provides; the call becomes an instruction of this name.
EXTERNAL = ("__assertfail", "vprintf", "malloc", "free")

#: Most copies of functions in a kernel that has calls through pointers.
MOST_COPIES = 4000

#: A pointer that means no function; made here, never by the parser.
BAD_POINTER = "%badpointer"

#: Instructions made here, never by the parser: moves between registers and call parameters.
LOAD_PARAM = "%ldparam."
STORE_PARAM = "%stparam."


@dataclass(slots=True)
class Kernel:
    """An entry with all calls expanded."""

    entry: Function
    regs: dict[str, str] = field(default_factory=dict)
    vars: dict[str, Variable] = field(default_factory=dict)
    stmts: list[Stmt] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.entry.name


Names = dict[str, str]


def rename(operand: Operand, names: Names) -> Operand:
    """The operand with every name replaced by its entry in ``names``, if it has one."""
    if isinstance(operand, Reg):
        return Reg(names.get(operand.name, operand.name))
    if isinstance(operand, Sym):
        return Sym(names.get(operand.name, operand.name), operand.offset)
    if isinstance(operand, Addr):
        base = rename(operand.base, names)
        assert not isinstance(base, (Addr, Vec, Args, Pair, Not))
        return Addr(base, operand.offset)  # type: ignore[arg-type]
    if isinstance(operand, Vec):
        return Vec(tuple(rename(o, names) for o in operand.items))
    if isinstance(operand, Args):
        return Args(tuple(rename(o, names) for o in operand.items))
    if isinstance(operand, Pair):
        return Pair(rename(operand.first, names), rename(operand.second, names))
    if isinstance(operand, Not):
        return Not(Reg(names.get(operand.reg.name, operand.reg.name)))
    return operand


class _Inliner:
    def __init__(self, module: Module, entry: Function) -> None:
        self.module = module
        self.kernel = Kernel(entry)
        self.copies = 0
        self.stack: list[str] = []
        self.current = entry
        self.taken: list[str] | None = None

    def next(self) -> int:
        """A number for names that must not occur twice."""
        self.copies += 1
        return self.copies

    def expand(self, function: Function, names: Names, end: str | None) -> None:
        """Append the function's statements, renamed; ``end`` is where ``ret`` goes (None: exit)."""
        kernel = self.kernel
        for reg, type_name in function.regs.items():
            kernel.regs[names.get(reg, reg)] = type_name
        for var in function.vars.values():
            name = names.get(var.name, var.name)
            kernel.vars.setdefault(name, dataclasses.replace(var, name=name))
        for table, targets in function.tables.items():
            kernel.tables[names.get(table, table)] = tuple(names.get(t, t) for t in targets)
        for stmt in function.stmts:
            if isinstance(stmt, Label):
                kernel.stmts.append(Label(names.get(stmt.name, stmt.name)))
                continue
            guard = stmt.guard
            if guard is not None:
                guard = Guard(names.get(guard.reg, guard.reg), guard.negated)
            if end is not None and stmt.form in ("ret", "ret.uni"):
                kernel.stmts.append(Instr("bra", (Sym(end),), guard, stmt.offset))
                continue
            ops = tuple(rename(op, names) for op in stmt.ops)
            copy = Instr(stmt.form, ops, guard, stmt.offset)
            if stmt.form in ("call", "call.uni"):
                self._call(copy)
            else:
                kernel.stmts.append(copy)

    def _call(self, call: Instr) -> None:
        line = self.module.line(call.offset)
        ops = list(call.ops)
        returns: tuple[Operand, ...] = ()
        if ops and isinstance(ops[0], Args):
            first = ops.pop(0)
            assert isinstance(first, Args)
            returns = first.items
        if not ops:
            raise invalid("call without a function", line)
        callee = ops.pop(0)
        arguments: tuple[Operand, ...] = ()
        if ops and isinstance(ops[0], Args):
            second = ops.pop(0)
            assert isinstance(second, Args)
            arguments = second.items
        after: Label | None = None
        if call.guard is not None:
            after = Label(f"call.skip~{self.next()}")
            skip = Guard(call.guard.reg, not call.guard.negated)
            self.kernel.stmts.append(Instr("bra", (Sym(after.name),), skip, call.offset))
        if isinstance(callee, Reg):
            self._by_pointer(call, callee, returns, arguments, ops)
        elif isinstance(callee, Sym) and not ops:
            self._by_name(call, callee.name, returns, arguments)
        else:
            raise invalid("operands of call", line)
        if after is not None:
            self.kernel.stmts.append(after)

    def _by_name(
        self,
        call: Instr,
        name: str,
        returns: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
    ) -> None:
        line = self.module.line(call.offset)
        name = self.module.aliases.get(name, name)
        function = self.module.functions.get(name)
        if function is not None:
            self._inline(function, returns, arguments, line)
            return
        if name not in EXTERNAL:
            raise invalid(f"function {name} is called but not defined", line)
        self.kernel.stmts.append(Instr(f"call.{name}", (*returns, *arguments), None, call.offset))

    def _by_pointer(
        self,
        call: Instr,
        pointer: Reg,
        returns: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
        rest: list[Operand],
    ) -> None:
        """Compare with each function that it may be; lanes with the same one call it together.

        A pointer to anything else ends the launch, as does one that would make the call recursive.
        """
        line, statements = self.module.line(call.offset), self.kernel.stmts
        if len(rest) != 1 or not isinstance(rest[0], Sym):
            raise invalid("a call through a pointer needs a prototype", line)
        if self.taken is None:
            self.taken = taken_functions(self.module)
        table, names = rest[0].name, self.taken
        if table in self.current.call_targets:
            names = [self.module.aliases.get(n, n) for n in self.current.call_targets[table]]
        elif table not in self.current.prototypes:
            raise invalid(f"{table} is neither a prototype nor a list of functions", line)
        done = Label(f"call.done~{self.next()}")
        for name in names:
            function = self.module.functions.get(name)
            if function is None or function.entry or name in self.stack:
                continue
            if self.current.prototypes.get(table, signature_of(function)) != signature_of(function):
                continue
            if self.copies > MOST_COPIES:
                raise UnsupportedForm("too many calls through function pointers", line)
            number = self.next()
            different, other = f"call.other~{number}", Label(f"call.next~{number}")
            self.kernel.regs[different] = "pred"
            address = Int(function_address(name))
            statements.append(
                Instr("setp.ne.u64", (Reg(different), pointer, address), None, call.offset)
            )
            guard = Guard(different, False)
            statements.append(Instr("bra", (Sym(other.name),), guard, call.offset))
            self._inline(function, returns, arguments, line)
            statements += [Instr("bra", (Sym(done.name),), None, call.offset), other]
        statements += [Instr(BAD_POINTER, (), None, call.offset), done]

    def _inline(
        self,
        function: Function,
        returns: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
        line: int,
    ) -> None:
        if function.name in self.stack:
            raise UnsupportedForm(f"recursive call of {function.name}", line)
        formal = [*function.returns, *function.params]
        actual = [*returns, *arguments]
        if len(formal) != len(actual) or len(returns) != len(function.returns):
            raise invalid(f"call of {function.name} with {len(arguments)} arguments", line)
        parse_body(self.module, function)
        suffix = f"~{self.next()}"
        names: Names = {}
        for each in (function.regs, function.tables):
            names.update({name: name + suffix for name in each})
        for var in function.vars.values():
            names[var.name] = (
                f"{function.name}::{var.name}" if var.space == "shared" else var.name + suffix
            )
        names.update({s.name: s.name + suffix for s in function.stmts if isinstance(s, Label)})
        for parameter, value in zip(formal, actual, strict=True):
            if parameter.space != "param" or not isinstance(value, Sym) or value.offset:
                raise UnsupportedForm(f"call of {function.name} with register arguments", line)
            names[parameter.name] = value.name
        end = f"call.end{suffix}"
        caller, self.current = self.current, function
        self.stack.append(function.name)
        self.expand(function, names, end)
        self.stack.pop()
        self.current = caller
        self.kernel.stmts.append(Label(end))


def _param_type(form: str) -> tuple[str, str, int] | None:
    """("ld" or "st", type, elements) of an access to a parameter variable."""
    words = form.split(".")
    if words[0] not in ("ld", "st") or len(words) < 3 or not words[1].startswith("param"):
        return None
    count = 1
    rest = words[2:]
    if rest[0] in ("v2", "v4"):
        count = int(rest.pop(0)[1:])
    if len(rest) != 1 or rest[0] not in TYPE_BYTES:
        return None
    return words[0], rest[0], count


class _Promoter:
    """Turns call parameters into registers where that is possible."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.slots: dict[str, set[tuple[int, int]]] = {}
        self.memory: set[str] = set()

    def run(self) -> None:
        kernel = self.kernel
        params = {name for name, var in kernel.vars.items() if var.space == "param"}
        if not params:
            return
        for stmt in kernel.stmts:
            if isinstance(stmt, Instr):
                self._survey(stmt, params)
        for name, slots in self.slots.items():
            end = 0
            for offset, size in sorted(slots):
                if offset < end:
                    self.memory.add(name)
                end = offset + size
        for name in params:
            if name in self.memory:
                var = kernel.vars[name]
                var.space, var.align = "local", max(var.align, 16)
            else:
                del kernel.vars[name]
                for offset, size in self.slots.get(name, ()):
                    kernel.regs[f"{name}@{offset}"] = f"b{8 * size}"
        statements: list[Stmt] = []
        for stmt in kernel.stmts:
            statements += self._rewrite(stmt, params) if isinstance(stmt, Instr) else [stmt]
        kernel.stmts = statements

    def _survey(self, stmt: Instr, params: set[str]) -> None:
        if stmt.form.startswith("call."):
            return
        access = _param_type(stmt.form)
        for index, op in enumerate(stmt.ops):
            if (
                access
                and isinstance(op, Addr)
                and isinstance(op.base, Sym)
                and op.base.name in params
            ):
                kind, type_name, count = access
                if index == (1 if kind == "ld" else 0):
                    size, start = TYPE_BYTES[type_name], op.base.offset + op.offset
                    slots = self.slots.setdefault(op.base.name, set())
                    slots.update((start + k * size, size) for k in range(count))
                    continue
            self.memory |= _mentioned(op) & params

    def _register(self, operand: Operand, params: set[str]) -> Operand:
        """What a function of the runtime gets in place of a call parameter."""
        if not isinstance(operand, Sym) or operand.name not in params - self.memory:
            return operand
        name = f"{operand.name}@{operand.offset}"
        # A result that nobody reads has no register.
        return Reg(name) if name in self.kernel.regs else Sink()

    def _rewrite(self, stmt: Instr, params: set[str]) -> list[Stmt]:
        if stmt.form.startswith("call."):
            ops = tuple(self._register(op, params) for op in stmt.ops)
            return [Instr(stmt.form, ops, stmt.guard, stmt.offset)]
        access = _param_type(stmt.form)
        if access is None:
            return [stmt]
        kind, type_name, count = access
        address = stmt.ops[1 if kind == "ld" else 0]
        if (
            not isinstance(address, Addr)
            or not isinstance(address.base, Sym)
            or address.base.name not in params
        ):
            return [stmt]
        name, start = address.base.name, address.base.offset + address.offset
        if name in self.memory:
            words = stmt.form.split(".")
            words[1] = "local"
            return [Instr(".".join(words), stmt.ops, stmt.guard, stmt.offset)]
        value = stmt.ops[0 if kind == "ld" else 1]
        values = value.items if isinstance(value, Vec) else (value,)
        if len(values) != count:
            return [stmt]
        result: list[Stmt] = []
        for k, each in enumerate(values):
            reg = Reg(f"{name}@{start + k * TYPE_BYTES[type_name]}")
            form = (LOAD_PARAM if kind == "ld" else STORE_PARAM) + type_name
            ops = (each, reg) if kind == "ld" else (reg, each)
            result.append(Instr(form, ops, stmt.guard, stmt.offset))
        return result


def _mentioned(operand: Operand) -> set[str]:
    if isinstance(operand, Sym):
        return {operand.name}
    if isinstance(operand, Addr):
        return _mentioned(operand.base)
    if isinstance(operand, (Vec, Args)):
        return {name for item in operand.items for name in _mentioned(item)}
    return set()


def flatten(module: Module, entry: Function) -> Kernel:
    """Parse an entry and everything it calls, and expand it to one body."""
    parse_body(module, entry)
    inliner = _Inliner(module, entry)
    inliner.stack.append(entry.name)
    inliner.expand(entry, {}, None)
    _Promoter(inliner.kernel).run()
    return inliner.kernel
