"""The body of a function: registers, local variables, labels, instructions.

Nested scopes are flattened: a name that is declared in an inner scope gets a suffix of its own, so
that later stages see one flat list of statements with unique names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from . import declarations
from .errors import PtxError, UnsupportedForm, invalid
from .literals import IDENT, parse_int, parse_literal
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
    Sreg,
    Sym,
    Vec,
)
from .pointers import signature
from .scan import blank_comments

#: Of one function. The most that compilers are known to declare is a tenth of it.
MOST_REGISTERS = 1_000_000

_SPACE = re.compile(r"\s+")
_LABEL = re.compile(rf"({IDENT})\s*:(?!:)")
_TABLE = re.compile(r"\s*\.(branchtargets|calltargets|callprototype)\b([^;]*);")
LOC = re.compile(
    r"\.loc\s+\d+\s+\d+\s+\d+(?:\s*,\s*function_name\s+[\w$.]+(?:\s*\+\s*\d+)?)?"
    r"(?:\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?"
)
_PROTOTYPE = re.compile(
    r"(?:\(([^)]*)\)\s*)?_\s*(?:\(([^)]*)\))?\s*(?:\.(?:noreturn|abi_\w+)[^.]*)*$"
)
_UNNAMED = re.compile(r"(?<![\w$.])_(?![\w$])")
_PRAGMA = re.compile(r'\.pragma\s+"[^"\n]*"(?:\s*,\s*"[^"\n]*")*\s*;')
# Possessive: a text without a semicolon is not tried in all the ways in which it could be divided.
_STATEMENT = re.compile(r'(?:[^;{}"]++|\{[^;{}]*+\})*+;')
_INSTRUCTION = re.compile(
    rf"(?:@\s*(!?)\s*({IDENT})\s+)?([a-z]\w*(?:\.\w+(?:::\w+)*)*)\s*(.*)$", re.S
)
_REGISTER = re.compile(rf"({IDENT})\s*(?:<\s*(\d+)\s*>)?$")
_NAME = re.compile(rf"{IDENT}$")
_SYMBOL = re.compile(rf"({IDENT})\s*(?:([-+])\s*(\w+))?$")
_ADDRESS = re.compile(rf"({IDENT}|[-+]?\d\w*)\s*(?:([-+])\s*([-+]?\w+))?$")
_SPECIAL = re.compile(
    r"%(?:(?:tid|ntid|ctaid|nctaid|cluster_ctaid|cluster_nctaid|clusterid|nclusterid)(?:\.[xyzw])?|laneid|warpid|"
    r"nwarpid|smid|nsmid|gridid|clock|clock64|clock_hi|globaltimer|globaltimer_lo|globaltimer_hi|"
    r"lanemask_(?:eq|le|lt|ge|gt)|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|pm\d+|"
    r"pm\d+_64|cluster_ctarank|cluster_nctarank|is_explicit_cluster|current_graph_exec|"
    r"reserved_smem_\w+)$|WARP_SZ$"
)


class _Pending(NamedTuple):
    """An instruction before its names are resolved."""

    offset: int
    scope: int
    guard: str | None
    negated: bool
    form: str
    operands: str


class _BodyParser:
    def __init__(self, module: Module, function: Function) -> None:
        assert function.body is not None
        self.module = module
        self.function = function
        self.base = function.body[0]
        self.text = blank_comments(module.text[function.body[0] : function.body[1]])
        self.parents: list[int] = [-1]
        self.names: list[dict[str, str]] = [{}]
        self.scope = 0
        self.items: list[_Pending | Label] = []
        self.tables: list[tuple[str, int, list[str], int]] = []
        for parameter in (*function.returns, *function.params):
            if parameter.space == "reg":
                self.names[0][parameter.name] = parameter.name
                function.regs[parameter.name] = parameter.type

    def line(self, pos: int) -> int:
        return self.module.line(self.base + pos)

    def parse(self) -> None:
        self._collect()
        if self.scope != 0:
            raise invalid(f"scope is not closed in {self.function.name}", self.line(len(self.text)))
        statements = self.function.stmts
        for item in self.items:
            statements.append(item if isinstance(item, Label) else self._resolve(item))
        for name, scope, targets, pos in self.tables:
            labels = []
            for target in targets:
                resolved = self._lookup(target, scope)
                if resolved is None:
                    raise invalid(f"unknown label {target}", self.line(pos))
                labels.append(resolved)
            self.function.tables[name] = tuple(labels)

    # ------------------------------------------------------------------ first pass
    def _collect(self) -> None:
        text, pos, end = self.text, 0, len(self.text)
        while pos < end:
            if match := _SPACE.match(text, pos):
                pos = match.end()
                continue
            char = text[pos]
            if char == "{":
                self.parents.append(self.scope)
                self.names.append({})
                self.scope = len(self.parents) - 1
                pos += 1
            elif char == "}":
                self.scope = self.parents[self.scope]
                if self.scope < 0:
                    raise invalid("unexpected '}'", self.line(pos))
                pos += 1
            elif match := _LABEL.match(text, pos):
                pos = self._label(match)
            elif match := LOC.match(text, pos) or _PRAGMA.match(text, pos):
                pos = match.end()
            elif match := _STATEMENT.match(text, pos):
                self._statement(text[pos : match.end() - 1], pos)
                pos = match.end()
            else:
                raise invalid(
                    f"cannot read the statement {' '.join(text[pos : pos + 40].split())!r}",
                    self.line(pos),
                )

    def _declare(self, name: str, pos: int) -> str:
        names = self.names[self.scope]
        if name in names:
            raise invalid(f"{name} is declared twice", self.line(pos))
        names[name] = name if self.scope == 0 else f"{name}.s{self.scope}"
        return names[name]

    def _label(self, match: re.Match[str]) -> int:
        name, pos = match.group(1), match.start()
        table = _TABLE.match(self.text, match.end())
        if table is None:
            self.items.append(Label(self._declare(name, pos)))
            return match.end()
        unique = self._declare(name, pos)
        targets = [t.strip() for t in table.group(2).split(",")]
        if table.group(1) == "branchtargets":
            self.tables.append((unique, self.scope, targets, pos))
        elif table.group(1) == "calltargets":
            self.function.call_targets[unique] = tuple(targets)
        else:
            self._prototype(unique, table.group(2), pos)
        return table.end()

    def _prototype(self, name: str, text: str, pos: int) -> None:
        match = _PROTOTYPE.match(text.strip())
        if match is None:
            raise invalid(f"cannot read the prototype {name}", self.line(pos))
        returns, params = (
            declarations.parse_parameters(
                _UNNAMED.sub("unnamed", part or ""), self.base + pos, self.line(pos)
            )
            for part in match.groups()
        )
        self.function.prototypes[name] = signature(returns, params)

    def _statement(self, text: str, pos: int) -> None:
        if text.startswith(".reg"):
            self._registers(text, pos)
        elif re.match(r"\.(param|local|shared|global|const)\b", text):
            for variable in declarations.parse_variables(text, self.base + pos, self.line(pos)):
                variable.name = self._declare(variable.name, pos)
                self.function.vars[variable.name] = variable
        elif text.startswith((".maxntid", ".reqntid", ".minnctapersm", ".maxnreg", ".pragma")):
            return
        elif match := _INSTRUCTION.match(text):
            self.items.append(
                _Pending(
                    pos,
                    self.scope,
                    match.group(2),
                    bool(match.group(1)),
                    match.group(3),
                    match.group(4),
                )
            )
        else:
            raise invalid(f"unknown statement {text[:40].strip()!r}", self.line(pos))

    def _registers(self, text: str, pos: int) -> None:
        match = re.match(r"\.reg\s*(?:\.(v[24])\s*)?\.(\w+)\s*", text)
        if match is None or match.group(2) not in TYPE_BYTES:
            raise invalid(f"cannot read the declaration {text[:40]!r}", self.line(pos))
        if match.group(1):
            raise UnsupportedForm(".reg ." + match.group(1), self.line(pos))
        type_name, regs = match.group(2), self.function.regs
        for part in text[match.end() :].split(","):
            reg = _REGISTER.match(part.strip())
            if reg is None:
                raise invalid(f"cannot read the register {part.strip()!r}", self.line(pos))
            name, count = reg.group(1), reg.group(2)
            if count is not None and (len(count) > 9 or int(count) > MOST_REGISTERS - len(regs)):
                raise invalid(f"more than {MOST_REGISTERS} registers", self.line(pos))
            names = [name] if count is None else [f"{name}{k}" for k in range(int(count))]
            for each in names:
                regs[self._declare(each, pos)] = type_name

    # ------------------------------------------------------------------ second pass
    def _lookup(self, name: str, scope: int) -> str | None:
        while scope >= 0:
            found = self.names[scope].get(name)
            if found is not None:
                return found
            scope = self.parents[scope]
        return None

    def _resolve(self, item: _Pending) -> Instr:
        line_of = item.offset
        guard = None
        if item.guard is not None:
            name = self._lookup(item.guard, item.scope)
            if name is None or self.function.regs.get(name) != "pred":
                raise invalid(f"{item.guard} is not a predicate register", self.line(line_of))
            guard = Guard(name, item.negated)
        parts = declarations.split_top(item.operands)
        operands = tuple(self._operand(part.strip(), item) for part in parts)
        return Instr(item.form, operands, guard, self.base + item.offset)

    def _bad(self, text: str, item: _Pending) -> Exception:
        return invalid(f"cannot read operand {text!r} of {item.form}", self.line(item.offset))

    def _atom(self, text: str, item: _Pending) -> Operand:
        """A name: register, special register, variable or label."""
        name = self._lookup(text, item.scope)
        if name is not None:
            return Reg(name) if name in self.function.regs else Sym(name)
        if _SPECIAL.match(text):
            return Sreg(text.lstrip("%"))
        if text.startswith("%") and text not in self.module.variables:
            raise invalid(f"register {text} is not declared", self.line(item.offset))
        return Sym(text)

    def _operand(self, text: str, item: _Pending) -> Operand:
        if not text:
            raise self._bad(text, item)
        first = text[0]
        if first == "[":
            return self._address(text, item)
        if first == "{":
            return Vec(self._list(text, "}", item))
        if first == "(":
            return Args(self._list(text, ")", item))
        if "|" in text:
            a, _, b = text.partition("|")
            return Pair(self._operand(a.strip(), item), self._operand(b.strip(), item))
        if first == "!":
            inner = self._operand(text[1:].strip(), item)
            if not isinstance(inner, Reg):
                raise self._bad(text, item)
            return Not(inner)
        if text == "_":
            return Sink()
        if _NAME.match(text) or (first == "%" and _SPECIAL.match(text)):
            return self._atom(text, item)
        literal = parse_literal(text)
        if literal is not None:
            return literal
        match = _SYMBOL.match(text)
        if match is not None:
            base, shift = self._atom(match.group(1), item), parse_int(match.group(3) or "")
            if isinstance(base, Sym) and shift is not None:
                return Sym(base.name, -shift if match.group(2) == "-" else shift)
        raise self._bad(text, item)

    def _list(self, text: str, close: str, item: _Pending) -> tuple[Operand, ...]:
        if not text.endswith(close):
            raise self._bad(text, item)
        inner = text[1:-1].strip()
        return (
            tuple(self._operand(p.strip(), item) for p in declarations.split_top(inner))
            if inner
            else ()
        )

    def _address(self, text: str, item: _Pending) -> Addr:
        match = _ADDRESS.match(text[1:-1].strip()) if text.endswith("]") else None
        if match is None:
            raise self._bad(text, item)
        offset = 0
        if match.group(3):
            number = parse_int(match.group(3))
            if number is None:
                raise self._bad(text, item)
            offset = -number if match.group(2) == "-" else number
        base = parse_int(match.group(1))
        if base is not None:
            return Addr(Int(base), offset)
        atom = self._atom(match.group(1), item)
        if not isinstance(atom, (Reg, Sym)):
            raise self._bad(text, item)
        return Addr(atom, offset)


def parse_body(module: Module, function: Function) -> None:
    """Fill ``regs``, ``vars``, ``stmts`` and ``tables`` of a function; once."""
    if function.parsed:
        return
    if function.broken:
        where = module.line(function.offset)
        raise PtxError("unsupported_form", f"function {function.name}: {function.broken}", where)
    if function.body is None:
        raise invalid(f"function {function.name} has no body", module.line(function.offset))
    _BodyParser(module, function).parse()
    function.parsed = True
