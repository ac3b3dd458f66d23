"""Recursion: a function that may call itself exists once and keeps what it needs in frames.

All other functions are expanded at each call (``inline``).  A frame of a recursive function lies on
a stack in each lane's local memory, above the kernel's local variables, and holds: the number of
the place to return to, the function's parameters and local variables, and the registers that are
still needed behind a call that it makes.  What comes out are ordinary instructions: a call stores
into the next frame and branches, a return branches by the number it finds (lanes may return to
different places, and meet again as after any branch).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from . import forms
from .errors import UnsupportedForm, invalid
from .model import (
    TYPE_BYTES,
    Addr,
    Float,
    Guard,
    Instr,
    Int,
    Label,
    Module,
    Operand,
    Reg,
    Sink,
    Stmt,
    Sym,
    Variable,
    registers_of,
)

#: Placeholders in the statements until all frames are known; made here, never by the parser.
ENTER, LEAVE = "%recurse", "%unwind"
#: Where the stack begins, and the check that a frame fits.
STACK_BASE, STACK_CHECK = "%stackbase", "%stackcheck"

_FRAME, _NEXT, _NUMBER = "%rec.frame", "%rec.next", "%rec.number"
_HEAD_BYTES = 16
_ALIGN = 16


@dataclass(slots=True)
class Place:
    """Code with registers and variables of its own: the kernel, or one recursive function."""

    name: str
    """Of the function; empty for the kernel."""
    regs: set[str] = field(default_factory=set)
    vars: set[str] = field(default_factory=set)
    offsets: dict[str, int] = field(default_factory=dict)
    """Of variables and of saved registers, in the frame."""
    size: int = 0

    @property
    def entry(self) -> str:
        return f"call.entry~{self.name}"

    @property
    def end(self) -> str:
        return f"call.return~{self.name}"

    @property
    def table(self) -> str:
        return f"call.sites~{self.name}"


@dataclass(frozen=True, slots=True)
class Site:
    """A call of a recursive function."""

    caller: Place
    callee: Place
    arguments: tuple[tuple[str, Operand], ...]
    """(parameter of the callee, what the caller gives)"""
    returns: tuple[tuple[str, Operand], ...]
    after: str
    offset: int


def calls_of(stmts: Iterable[Stmt]) -> Iterable[Instr]:
    """The calls among statements."""
    return (s for s in stmts if isinstance(s, Instr) and s.form in ("call", "call.uni"))


def cyclic(edges: dict[str, set[str]]) -> set[str]:
    """The nodes from which a way leads back to themselves."""
    found = set()
    for start in edges:
        seen: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            node = waiting.pop()
            if node == start:
                found.add(start)
                break
            if node not in seen:
                seen.add(node)
                waiting += edges.get(node, ())
    return found


class Frames:
    """Puts frames in place of the placeholders."""

    def __init__(
        self,
        module: Module,
        regs: dict[str, str],
        variables: dict[str, Variable],
        tables: dict[str, tuple[str, ...]],
        sites: list[Site],
    ) -> None:
        self.module = module
        self.regs = regs
        self.vars = variables
        self.tables = tables
        self.sites = sites
        self.out: list[Stmt] = []
        self.offset = 0
        self.formals: dict[str, Variable] = {}
        self.numbers: dict[int, int] = {}

    # ------------------------------------------------------------------ which registers live on
    def _uses_and_definitions(self, instr: Instr) -> tuple[set[str], set[str]]:
        uses: set[str] = {instr.guard.reg} if instr.guard is not None else set()
        if instr.form == ENTER:
            site = self.sites[_number(instr)]
            uses.update(r for _, op in site.arguments for r in registers_of(op))
            return uses, {r for _, op in site.returns for r in registers_of(op)}
        if instr.form == LEAVE or instr.opcode in ("bra", "brx", "ret", "exit"):
            uses.update(r for op in instr.ops for r in registers_of(op))
            return uses, set()
        pattern = forms.require(instr.form, self.module.line(instr.offset)).pattern
        first = 1 if pattern.writes else 0
        uses.update(r for op in instr.ops[first:] for r in registers_of(op))
        written = {r for op in instr.ops[:first] for r in registers_of(op)}
        return uses, written if instr.guard is None else set()

    def _successors(self, stmts: list[Stmt]) -> list[list[int]]:
        at = {s.name: k for k, s in enumerate(stmts) if isinstance(s, Label)}
        result = []
        for k, stmt in enumerate(stmts):
            following = [k + 1] if k + 1 < len(stmts) else []
            if isinstance(stmt, Instr):
                targets: list[str] = []
                if stmt.opcode == "bra" and isinstance(stmt.ops[0], Sym):
                    targets = [stmt.ops[0].name]
                elif stmt.opcode == "brx" and isinstance(stmt.ops[1], Sym):
                    targets = list(self.tables.get(stmt.ops[1].name, ()))
                ends = stmt.opcode in ("bra", "brx", "ret", "exit") or stmt.form == LEAVE
                if ends and stmt.guard is None:
                    following = []
                following += [at[t] for t in targets if t in at]
            result.append(following)
        return result

    def _saved(self, place: Place, stmts: list[Stmt]) -> dict[int, list[str]]:
        """For each call in the function: its registers that are read behind it."""
        successors = self._successors(stmts)
        facts = [
            self._uses_and_definitions(s) if isinstance(s, Instr) else (set(), set()) for s in stmts
        ]
        live: list[set[str]] = [set() for _ in stmts]
        changed = True
        while changed:
            changed = False
            for k in reversed(range(len(stmts))):
                behind = set().union(*(live[s] for s in successors[k]))
                uses, written = facts[k]
                before = uses | (behind - written)
                if before != live[k]:
                    live[k], changed = before, True
        result = {}
        for k, stmt in enumerate(stmts):
            if isinstance(stmt, Instr) and stmt.form == ENTER:
                behind = set().union(*(live[s] for s in successors[k])) - facts[k][1]
                result[_number(stmt)] = sorted(behind & place.regs)
        return result

    # ------------------------------------------------------------------ frames
    def _lay_out(self, place: Place, saved: Iterable[list[str]]) -> None:
        end = _HEAD_BYTES
        for name in sorted(place.vars):
            var = self.vars.get(name)
            if var is None or var.space != "local":
                continue
            end = -(-end // _ALIGN) * _ALIGN
            place.offsets[name] = end
            end += var.size
            del self.vars[name]
        for name in sorted({r for regs in saved for r in regs}):
            size = self._bits(name) // 8
            end = -(-end // size) * size
            place.offsets[name] = end
            end += size
        place.size = -(-end // _ALIGN) * _ALIGN

    def _bits(self, reg: str) -> int:
        kind = self.regs[reg]
        return 32 if kind == "pred" else 8 * TYPE_BYTES[kind]

    def _emit(self, form: str, *ops: Operand, guard: Guard | None = None) -> None:
        self.out.append(Instr(form, ops, guard, self.offset))

    def _temporary(self, kind: str, number: int) -> Reg:
        name = f"%rec.t{number}.{kind}"
        self.regs[name] = kind
        return Reg(name)

    def _save(self, regs: list[str], place: Place, number: int, restore: bool) -> None:
        for name in regs:
            where = Addr(Reg(_FRAME), place.offsets[name])
            if self.regs[name] == "pred":
                word = self._temporary("b32", number)
                if restore:
                    self._emit("ld.local.b32", word, where)
                    self._emit("setp.ne.u32", Reg(name), word, Int(0))
                else:
                    self._emit("selp.b32", word, Int(1), Int(0), Reg(name))
                    self._emit("st.local.b32", where, word)
            elif restore:
                self._emit(f"ld.local.b{self._bits(name)}", Reg(name), where)
            else:
                self._emit(f"st.local.b{self._bits(name)}", where, Reg(name))

    def _address(self, place: Place, name: str, extra: int, frame: str) -> Addr:
        """A variable of the caller."""
        if name in place.offsets:
            return Addr(Reg(frame), place.offsets[name] + extra)
        return Addr(Sym(name), extra)

    def _copy(self, source: Addr, to: Addr, size: int, number: int) -> None:
        done = 0
        while done < size:
            step = next(s for s in (8, 4, 2, 1) if size - done >= s)
            word = self._temporary("b16" if step < 2 else f"b{8 * step}", number)
            self._emit(f"ld.local.b{8 * step}", word, Addr(source.base, source.offset + done))
            self._emit(f"st.local.b{8 * step}", Addr(to.base, to.offset + done), word)
            done += step

    def _copy_register(self, source: Operand, like: str, name: str) -> Reg:
        """Through a register of its own: the function's own may be the caller's as well."""
        self.regs[name] = self.regs[like]
        self._emit(f"mov.{self.regs[like]}", Reg(name), source)
        return Reg(name)

    def _arguments(self, site: Site, number: int) -> None:
        registers = []
        for k, (formal, actual) in enumerate(site.arguments):
            if formal in self.regs:
                copy = self._copy_register(actual, formal, f"%rec.a{number}.{k}")
                registers.append((formal, copy))
            else:
                self._argument(site, formal, actual, number)
        for formal, copy in registers:
            self._emit(f"mov.{self.regs[formal]}", Reg(formal), copy)

    def _argument(self, site: Site, formal: str, actual: Operand, number: int) -> None:
        var = self.formals[formal]
        to = Addr(Reg(_NEXT), site.callee.offsets[formal])
        if isinstance(actual, Sym):
            source = self._address(site.caller, actual.name, actual.offset, _FRAME)
            self._copy(source, to, var.size, number)
        elif isinstance(actual, (Reg, Int, Float)) and var.count == 1:
            self._emit(f"st.local.{var.type}", to, actual)
        else:
            raise invalid("argument of a call", self.module.line(site.offset))

    def _result(self, site: Site, formal: str, actual: Operand, frame: str, number: int) -> None:
        if isinstance(actual, Sink):
            return
        var = self.formals[formal]
        source = Addr(Reg(frame), site.callee.offsets[formal])
        if isinstance(actual, Sym):
            to = self._address(site.caller, actual.name, actual.offset, _FRAME)
            self._copy(source, to, var.size, number)
        elif isinstance(actual, Reg) and var.count == 1:
            self._emit(f"ld.local.{var.type}", actual, source)
        else:
            raise invalid("result of a call", self.module.line(site.offset))

    def _enter(self, number: int, saved: list[str]) -> None:
        site = self.sites[number]
        self.offset = site.offset
        caller, callee = site.caller, site.callee
        if caller.name:
            self._emit("add.u64", Reg(_NEXT), Reg(_FRAME), Int(caller.size))
        else:
            self._emit(STACK_BASE, Reg(_NEXT))
        self._emit(STACK_CHECK, Reg(_NEXT), Int(callee.size))
        self._save(saved, caller, number, restore=False)
        self._arguments(site, number)
        self._emit("mov.u32", Reg(_NUMBER), Int(self.numbers[number]))
        self._emit("st.local.u32", Addr(Reg(_NEXT), 0), Reg(_NUMBER))
        self._emit("mov.u64", Reg(_FRAME), Reg(_NEXT))
        self._emit("bra", Sym(callee.entry))

    def _come_back(self, number: int, saved: list[str]) -> None:
        site = self.sites[number]
        self.offset = site.offset
        frame = _FRAME
        if site.caller.name:
            # the callee's frame is read below, where nothing has overwritten it yet
            frame = _NEXT
            self._emit("mov.u64", Reg(_NEXT), Reg(_FRAME))
            self._emit("sub.u64", Reg(_FRAME), Reg(_FRAME), Int(site.caller.size))
        registers = [
            (self._copy_register(Reg(formal), formal, f"%rec.r{number}.{k}"), actual)
            for k, (formal, actual) in enumerate(site.returns)
            if formal in self.regs
        ]
        self._save(saved, site.caller, number, restore=True)
        for copy, actual in registers:
            self._emit(f"mov.{self.regs[copy.name]}", actual, copy)
        for formal, actual in site.returns:
            if formal not in self.regs:
                self._result(site, formal, actual, frame, number)

    def _leave(self, place: Place) -> None:
        self._emit("ld.local.u32", Reg(_NUMBER), Addr(Reg(_FRAME), 0))
        self._emit("brx.idx", Reg(_NUMBER), Sym(place.table))

    # ------------------------------------------------------------------ variables in frames
    def _in_frame(self, place: Place, instr: Instr) -> None:
        """Names of variables become addresses relative to the frame."""
        self.offset = instr.offset
        ops: list[Operand] = []
        for op in instr.ops:
            if isinstance(op, Addr) and isinstance(op.base, Sym) and op.base.name in place.offsets:
                start = place.offsets[op.base.name] + op.base.offset + op.offset
                ops.append(Addr(Reg(_FRAME), start))
            elif isinstance(op, Sym) and op.name in place.offsets:
                if instr.opcode not in ("mov", "cvta", "add", "sub"):
                    raise UnsupportedForm(
                        f"{instr.form} of a local variable in a recursive function",
                        self.module.line(instr.offset),
                    )
                wide = self._temporary("b64", len(self.sites))
                distance = Int(place.offsets[op.name] + op.offset)
                self._emit("add.u64", wide, Reg(_FRAME), distance, guard=instr.guard)
                narrow = self._temporary("b32", len(self.sites))
                if instr.form.endswith("32"):
                    self._emit("cvt.u32.u64", narrow, wide, guard=instr.guard)
                    wide = narrow
                ops.append(wide)
            else:
                ops.append(op)
        self.out.append(Instr(instr.form, tuple(ops), instr.guard, instr.offset))

    # ------------------------------------------------------------------ all of it
    def run(self, parts: list[tuple[Place, list[Stmt]]]) -> list[Stmt]:
        """The statements of the kernel and of each recursive function, with their frames."""
        self.formals = {
            name: self.vars[name]
            for site in self.sites
            for name, _ in (*site.arguments, *site.returns)
            if name in self.vars
        }
        for name in (_FRAME, _NEXT):
            self.regs[name] = "b64"
        self.regs[_NUMBER] = "b32"
        for place, _ in parts[1:]:
            back = [(k, s.after) for k, s in enumerate(self.sites) if s.callee is place]
            self.numbers.update({k: n for n, (k, _) in enumerate(back)})
            self.tables[place.table] = tuple(after for _, after in back)
        saved: dict[int, list[str]] = {}
        for place, stmts in parts[1:]:
            mine = self._saved(place, stmts)
            self._lay_out(place, mine.values())
            saved.update(mine)
        places = {place.name: place for place, _ in parts}
        for place, stmts in parts:
            for stmt in stmts:
                if isinstance(stmt, Label):
                    self.out.append(stmt)
                elif stmt.form == ENTER:
                    number = _number(stmt)
                    self._enter(number, saved.get(number, []))
                    self.out.append(Label(self.sites[number].after))
                    self._come_back(number, saved.get(number, []))
                elif stmt.form == LEAVE:
                    callee = stmt.ops[0]
                    assert isinstance(callee, Sym)
                    self._leave(places[callee.name])
                elif place.name:
                    self._in_frame(place, stmt)
                else:
                    self.out.append(stmt)
        return self.out


def _number(instr: Instr) -> int:
    op = instr.ops[0]
    assert isinstance(op, Int)
    return op.value
