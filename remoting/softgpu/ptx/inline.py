"""From an entry to one flat body: calls are expanded in place, call parameters become registers.

Every device function is expanded at each call, but for recursive ones (``recursion``); a call
through a pointer is a choice between the functions that it may mean.  Parameter variables of calls
are per-lane storage; where all accesses agree on offsets and sizes they become registers, otherwise
local memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from .body import parse_body
from .call_parameters import Promoter
from .errors import UnsupportedForm, invalid
from .model import (
    Addr,
    Args,
    Float,
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
from .recursion import ENTER, LEAVE, Frames, Place, Site, calls_of, cyclic

#: Functions that the runtime provides; the call becomes an instruction of this name.
EXTERNAL = ("__assertfail", "vprintf", "malloc", "free")

#: Most copies of functions in a kernel that has calls through pointers.
MOST_COPIES = 4000

#: A pointer that means no function; made here, never by the parser.
BAD_POINTER = "%badpointer"


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
        self.current = entry
        self.taken: list[str] | None = None
        self.place = Place("")
        self.recursive: dict[str, Place] = {}
        self.sites: list[Site] = []
        self.in_memory: set[str] = set()
        """Parameter variables of recursive calls: they lie in frames."""

    def next(self) -> int:
        """A number for names that must not occur twice."""
        self.copies += 1
        return self.copies

    def register(self, name: str, type_name: str) -> None:
        self.kernel.regs[name] = type_name
        self.place.regs.add(name)

    def variable(self, name: str, like: Variable) -> None:
        self.kernel.vars.setdefault(name, dataclasses.replace(like, name=name))
        if like.space in ("local", "param"):
            self.place.vars.add(name)

    # ------------------------------------------------------------------ recursion
    def find_recursion(self) -> None:
        """Which of the functions that can be reached may call themselves?"""
        edges: dict[str, set[str]] = {}
        waiting = [self.kernel.entry]
        while waiting:
            function = waiting.pop()
            if function.name in edges:
                continue
            edges[function.name] = set()
            parse_body(self.module, function)
            for call in calls_of(function.stmts):
                for callee in self._may_call(function, call):
                    edges[function.name].add(callee.name)
                    waiting.append(callee)
        self.recursive = {name: Place(name) for name in sorted(cyclic(edges))}

    def _may_call(self, caller: Function, call: Instr) -> list[Function]:
        ops = [op for op in call.ops if not isinstance(op, Args)]
        if len(ops) == 2 and isinstance(ops[0], Reg) and isinstance(ops[1], Sym):
            return self.candidates(caller, ops[1].name, self.module.line(call.offset))
        if not ops or not isinstance(ops[0], Sym):
            return []  # refused later
        name = self.module.aliases.get(ops[0].name, ops[0].name)
        function = self.module.functions.get(name)
        return [] if function is None or function.entry else [function]

    def candidates(self, caller: Function, table: str, line: int) -> list[Function]:
        """What a call through a pointer may mean: listed functions, or those of its signature."""
        if self.taken is None:
            self.taken = taken_functions(self.module)
        names = self.taken
        if table in caller.call_targets:
            names = [self.module.aliases.get(n, n) for n in caller.call_targets[table]]
        elif table not in caller.prototypes:
            raise invalid(f"{table} is neither a prototype nor a list of functions", line)
        found = []
        for name in names:
            function = self.module.functions.get(name)
            if function is None or function.entry:
                continue
            wanted = caller.prototypes.get(table, signature_of(function))
            if wanted == signature_of(function):
                found.append(function)
        return found

    def expand_recursive(self) -> list[tuple[Place, list[Stmt]]]:
        """One copy of each recursive function that something calls."""
        done: set[str] = set()
        parts: list[tuple[Place, list[Stmt]]] = []
        while waiting := sorted({s.callee.name for s in self.sites} - done):
            function, place = self.module.functions[waiting[0]], self.recursive[waiting[0]]
            done.add(function.name)
            self.kernel.stmts, self.place, self.current = [], place, function
            names = self._names(function, f"~{function.name}")
            for parameter in (*function.returns, *function.params):
                names[parameter.name] = f"{parameter.name}~{function.name}"
                if parameter.space == "param":
                    self.variable(names[parameter.name], parameter)
                    self.in_memory.add(names[parameter.name])
            self.kernel.stmts.append(Label(place.entry))
            self.expand(function, names, place.end)
            self.kernel.stmts += [
                Label(place.end),
                Instr(LEAVE, (Sym(function.name),), None, function.offset),
            ]
            parts.append((place, self.kernel.stmts))
        return parts

    def _enter(
        self,
        function: Function,
        returns: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
        offset: int,
    ) -> None:
        number = len(self.sites)
        for op in (*returns, *arguments):
            if isinstance(op, Sym):
                self.in_memory.add(op.name)

        def pairs(
            formal: list[Variable], actual: tuple[Operand, ...]
        ) -> tuple[tuple[str, Operand], ...]:
            names = [f"{p.name}~{function.name}" for p in formal]
            return tuple(zip(names, actual, strict=True))

        self.sites.append(
            Site(
                self.place,
                self.recursive[function.name],
                pairs(function.params, arguments),
                pairs(function.returns, returns),
                f"call.back~{number}",
                offset,
            )
        )
        self.kernel.stmts.append(Instr(ENTER, (Int(number),), None, offset))

    # ------------------------------------------------------------------ statements
    def expand(self, function: Function, names: Names, end: str | None) -> None:
        """Append the function's statements, renamed; ``end`` is where ``ret`` goes (None: exit)."""
        kernel = self.kernel
        for reg, type_name in function.regs.items():
            self.register(names.get(reg, reg), type_name)
        for var in function.vars.values():
            self.variable(names.get(var.name, var.name), var)
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
            self._inline(function, returns, arguments, call.offset)
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

        A pointer to anything else ends the launch.
        """
        line, statements = self.module.line(call.offset), self.kernel.stmts
        if len(rest) != 1 or not isinstance(rest[0], Sym):
            raise invalid("a call through a pointer needs a prototype", line)
        done = Label(f"call.done~{self.next()}")
        for function in self.candidates(self.current, rest[0].name, line):
            if self.copies > MOST_COPIES:
                raise UnsupportedForm("too many calls through function pointers", line)
            number = self.next()
            different, other = f"call.other~{number}", Label(f"call.next~{number}")
            self.register(different, "pred")
            address = Int(function_address(function.name))
            statements.append(
                Instr("setp.ne.u64", (Reg(different), pointer, address), None, call.offset)
            )
            guard = Guard(different, False)
            statements.append(Instr("bra", (Sym(other.name),), guard, call.offset))
            self._inline(function, returns, arguments, call.offset)
            statements += [Instr("bra", (Sym(done.name),), None, call.offset), other]
        statements += [Instr(BAD_POINTER, (), None, call.offset), done]

    def _names(self, function: Function, suffix: str) -> Names:
        """New names for what the function declares; its shared variables stay what they are."""
        names: Names = {}
        for each in (function.regs, function.tables):
            names.update({name: name + suffix for name in each})
        for var in function.vars.values():
            names[var.name] = (
                f"{function.name}::{var.name}" if var.space == "shared" else var.name + suffix
            )
        names.update({s.name: s.name + suffix for s in function.stmts if isinstance(s, Label)})
        return names

    def _inline(
        self,
        function: Function,
        returns: tuple[Operand, ...],
        arguments: tuple[Operand, ...],
        offset: int,
    ) -> None:
        line = self.module.line(offset)
        if len(arguments) != len(function.params) or len(returns) != len(function.returns):
            raise invalid(f"call of {function.name} with {len(arguments)} arguments", line)
        if function.name in self.recursive:
            self._enter(function, returns, arguments, offset)
            return
        parse_body(self.module, function)
        suffix = f"~{self.next()}"
        names = self._names(function, suffix)
        before = [
            statement
            for parameter, value in zip(function.params, arguments, strict=True)
            for statement in self._bind(parameter, value, names, suffix, offset, result=False)
        ]
        behind = [
            statement
            for parameter, value in zip(function.returns, returns, strict=True)
            for statement in self._bind(parameter, value, names, suffix, offset, result=True)
        ]
        end = f"call.end{suffix}"
        self.kernel.stmts += before
        caller, self.current = self.current, function
        self.expand(function, names, end)
        self.current = caller
        self.kernel.stmts += [Label(end), *behind]

    def _bind(
        self,
        parameter: Variable,
        value: Operand,
        names: Names,
        suffix: str,
        offset: int,
        result: bool,
    ) -> list[Stmt]:
        """Give a parameter its name in this expansion; what must be moved, before or behind it."""
        name = parameter.name + suffix
        line = self.module.line(offset)
        if parameter.space == "param" and isinstance(value, Sym) and not value.offset:
            names[parameter.name] = value.name
            return []
        names[parameter.name] = name
        place: Operand = Reg(name)
        load, store = f"mov.{parameter.type}", f"mov.{parameter.type}"
        if parameter.space == "param":
            self.variable(name, parameter)
            place = Addr(Sym(name), 0)
            load, store = f"ld.param.{parameter.type}", f"st.param.{parameter.type}"
        elif isinstance(value, Sym):
            raise invalid("a variable as the argument of a register parameter", line)
        if result and isinstance(value, Sink):
            return []
        if not isinstance(value, Reg if result else (Reg, Int, Float)) or parameter.count != 1:
            raise invalid("operand of a call", line)
        if result:
            return [Instr(load, (value, place), None, offset)]
        return [Instr(store, (place, value), None, offset)]


def flatten(module: Module, entry: Function) -> Kernel:
    """Parse an entry and everything it calls, and expand it to one body."""
    parse_body(module, entry)
    inliner = _Inliner(module, entry)
    inliner.find_recursion()
    inliner.expand(entry, {}, None)
    kernel = inliner.kernel
    if not inliner.sites:
        kernel.stmts = Promoter(kernel.regs, kernel.vars, set()).run(kernel.stmts)
        return kernel
    kernel.stmts.append(Instr("ret", (), None, entry.offset))
    parts = [(inliner.place, kernel.stmts), *inliner.expand_recursive()]
    promoter = Promoter(kernel.regs, kernel.vars, inliner.in_memory)
    kernel.stmts = promoter.run([s for _, stmts in parts for s in stmts])
    frames = Frames(module, kernel.regs, kernel.vars, kernel.tables, inliner.sites)
    kernel.stmts = frames.run(_split(parts, kernel.stmts))
    return kernel


def _split(
    parts: list[tuple[Place, list[Stmt]]], stmts: list[Stmt]
) -> list[tuple[Place, list[Stmt]]]:
    """The rewritten statements of each part: every one but the first begins with its label."""
    starts = [0]
    labels = {s.name: k for k, s in enumerate(stmts) if isinstance(s, Label)}
    starts += [labels[place.entry] for place, _ in parts[1:]]
    return [
        (place, stmts[start:end])
        for (place, _), start, end in zip(parts, starts, [*starts[1:], len(stmts)], strict=True)
    ]
