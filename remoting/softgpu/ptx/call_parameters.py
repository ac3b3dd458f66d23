"""Parameter variables of calls: registers where all accesses agree, local memory otherwise."""

from __future__ import annotations

from .model import TYPE_BYTES, Addr, Args, Instr, Operand, Reg, Sink, Stmt, Sym, Variable, Vec

#: Instructions made here, never by the parser: moves between registers and call parameters.
LOAD_PARAM = "%ldparam."
STORE_PARAM = "%stparam."


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


class Promoter:
    """Turns call parameters into registers where that is possible."""

    def __init__(
        self, regs: dict[str, str], variables: dict[str, Variable], in_memory: set[str]
    ) -> None:
        self.regs = regs
        self.vars = variables
        self.slots: dict[str, set[tuple[int, int]]] = {}
        self.memory = in_memory

    def run(self, stmts: list[Stmt]) -> list[Stmt]:
        """The statements with every parameter variable replaced."""
        params = {name for name, var in self.vars.items() if var.space == "param"}
        if not params:
            return stmts
        for stmt in stmts:
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
                var = self.vars[name]
                var.space, var.align = "local", max(var.align, 16)
            else:
                del self.vars[name]
                for offset, size in self.slots.get(name, ()):
                    self.regs[f"{name}@{offset}"] = f"b{8 * size}"
        statements: list[Stmt] = []
        for stmt in stmts:
            statements += self._rewrite(stmt, params) if isinstance(stmt, Instr) else [stmt]
        return statements

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
        return Reg(name) if name in self.regs else Sink()

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
