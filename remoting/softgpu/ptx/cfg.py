"""Control flow: basic blocks and the order in which they are laid out.

Lanes wait in pending masks, one per block, and the lowest block with pending lanes runs first.
With the weak topological order computed here (loops contiguous, a loop's header first, everything
else after its predecessors) that rule brings diverged lanes together again at the first place
where they can meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import UnsupportedForm, invalid
from .inline import Kernel
from .model import Guard, Instr, Int, Label, Module, Operand, Pair, Reg, Sym, Vec


@dataclass(frozen=True, slots=True)
class Jump:
    """All lanes go on at the target."""

    target: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Lanes for which the guard holds go one way, the others the other."""

    guard: Guard
    taken: str
    other: str


@dataclass(frozen=True, slots=True)
class Switch:
    """Each lane goes to the target that its index selects."""

    index: Reg
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exit:
    """The lanes have ended."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Lanes wait for the block's other threads, then go on at ``next``."""

    instr: Instr
    next: str


End = Jump | Branch | Switch | Exit | Barrier


@dataclass(slots=True)
class Block:
    """Instructions without a branch among them, and what comes after."""

    name: str
    instrs: list[Instr] = field(default_factory=list)
    end: End = field(default_factory=Exit)

    def successors(self) -> tuple[str, ...]:
        end = self.end
        if isinstance(end, Jump):
            return (end.target,)
        if isinstance(end, Branch):
            return (end.taken, end.other)
        if isinstance(end, Switch):
            return end.targets
        if isinstance(end, Barrier):
            return (end.next,)
        return ()


@dataclass(slots=True)
class Layout:
    """Blocks in layout order.  ``loops[k]`` are the headers of the loops that end after block k."""

    blocks: list[Block]
    loops: dict[int, list[int]]
    spans: list[tuple[int, int]]


def is_barrier(instr: Instr) -> bool:
    """Does the instruction make the warp wait for other warps?"""
    return (
        instr.opcode in ("bar", "barrier")
        and ".warp." not in instr.form
        and ".arrive" not in instr.form
    )


def member_mask(instr: Instr) -> Operand | None:
    """The lanes that a synchronising warp operation waits for: its last operand, or all."""
    words = instr.form.split(".")
    if instr.guard is not None or "sync" not in words or not instr.ops:
        return None
    if words[0] in ("shfl", "vote", "match", "redux", "elect") or words[:2] == ["bar", "warp"]:
        return instr.ops[-1]
    if words[0] in ("mma", "ldmatrix", "stmatrix", "wmma"):
        return Int(0xFFFFFFFF)
    return None


def _registers(operand: Operand) -> set[Operand]:
    if isinstance(operand, Vec):
        return set(operand.items)
    if isinstance(operand, Pair):
        return {operand.first, operand.second}
    return {operand}


class _Builder:
    def __init__(self, module: Module, kernel: Kernel) -> None:
        self.module = module
        self.kernel = kernel
        self.blocks: dict[str, Block] = {}
        self.made = 0
        self.labels = {s.name for s in kernel.stmts if isinstance(s, Label)}

    def new(self, name: str | None = None) -> Block:
        if name is None:
            self.made += 1
            name = f"%{self.made}"
        block = Block(name)
        self.blocks[name] = block
        return block

    def build(self) -> dict[str, Block]:
        block = self.new()
        for stmt in self.kernel.stmts:
            if isinstance(stmt, Label):
                following = self.new(stmt.name)
                block.end = Jump(following.name)
                block = following
            else:
                block = self._instruction(block, stmt)
        return self.blocks

    def _instruction(self, block: Block, instr: Instr) -> Block:
        opcode = instr.opcode
        if instr.form in ("bra", "bra.uni"):
            target = self._label(instr)
            following = self.new()
            block.end = (
                Jump(target) if instr.guard is None else Branch(instr.guard, target, following.name)
            )
            return following
        if self._waits_for_others(block, instr):
            following = self.new()
            block.end = Jump(following.name)
            block = following
        ends = opcode in ("ret", "exit", "trap", "brx") or is_barrier(instr)
        if not ends:
            block.instrs.append(instr)
            return block
        if instr.guard is not None:
            inner, following = self.new(), self.new()
            block.end = Branch(instr.guard, inner.name, following.name)
            block = inner
            instr = Instr(instr.form, instr.ops, None, instr.offset)
        else:
            following = self.new()
        self._finish(block, instr, following)
        return following

    def _waits_for_others(self, block: Block, instr: Instr) -> bool:
        """Must a new block begin with this operation?

        Lanes wait for the members of their warp where a block begins.  The first operation's mask
        is looked at there; it must not be made in the block itself, and others must have the
        same.  The header of a loop cannot wait, since the loop goes on while lanes stand there.
        """
        members = member_mask(instr)
        if members is None:
            return False
        if block.name in self.labels:
            return True
        for earlier in block.instrs:
            known = member_mask(earlier)
            if known is not None and known != members:
                return True
            if isinstance(members, Reg) and earlier.ops and members in _registers(earlier.ops[0]):
                return True
        return False

    def _finish(self, block: Block, instr: Instr, following: Block) -> None:
        if is_barrier(instr):
            block.end = Barrier(instr, following.name)
        elif instr.form == "trap":
            block.instrs.append(instr)
        elif instr.form in ("brx.idx", "brx.idx.uni"):
            index, table = instr.ops
            if not isinstance(index, Reg) or not isinstance(table, Sym):
                raise invalid(f"operands of {instr.form}", self.module.line(instr.offset))
            targets = self.kernel.tables.get(table.name)
            if targets is None:
                raise invalid(f"unknown branch table {table.name}", self.module.line(instr.offset))
            block.end = Switch(index, targets)
        elif instr.form not in ("ret", "ret.uni", "exit"):
            raise UnsupportedForm(instr.form, self.module.line(instr.offset))

    def _label(self, instr: Instr) -> str:
        target = instr.ops[0] if len(instr.ops) == 1 else None
        if not isinstance(target, Sym) or target.offset or target.name not in self.labels:
            raise invalid(f"target of {instr.form} is not a label", self.module.line(instr.offset))
        return target.name


def _components(nodes: list[int], edges: dict[int, list[int]]) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    inside = set(nodes)
    for root in nodes:
        if root in index:
            continue
        work = [(root, 0)]
        while work:
            node, child = work.pop()
            if child == 0:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            targets = edges[node]
            descended = False
            for position in range(child, len(targets)):
                target = targets[position]
                if target not in inside:
                    continue
                if target not in index:
                    work += [(node, position + 1), (target, 0)]
                    descended = True
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            if descended:
                continue
            if low[node] == index[node]:
                component = []
                while True:
                    last = stack.pop()
                    on_stack.discard(last)
                    component.append(last)
                    if last == node:
                        break
                found.append(component)
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
    return found[::-1]


def _order(
    nodes: list[int],
    edges: dict[int, list[int]],
    entries: set[int],
    out: list[int],
    spans: list[tuple[int, int]],
) -> None:
    """Append the nodes in weak topological order, and (header, last block) of each loop."""
    for component in _components(nodes, edges):
        if len(component) == 1 and component[0] not in edges[component[0]]:
            out.append(component[0])
            continue
        members = set(component)
        targets = {t for n in nodes if n not in members for t in edges[n] if t in members} | (
            entries & members
        )
        head = min(targets or members)
        out.append(head)
        rest = sorted(members - {head})
        inner = {n: [t for t in edges[n] if t != head] for n in component}
        _order(rest, inner, {t for t in edges[head] if t in members}, out, spans)
        spans.append((head, out[-1]))


def build_layout(module: Module, kernel: Kernel) -> Layout:
    """Basic blocks of a kernel, reachable ones only, in layout order."""
    blocks = _Builder(module, kernel).build()
    names = list(blocks)
    number = {name: k for k, name in enumerate(names)}
    reachable: set[int] = set()
    work = [0]
    edges: dict[int, list[int]] = {}
    while work:
        node = work.pop()
        if node in reachable:
            continue
        reachable.add(node)
        edges[node] = [number[s] for s in blocks[names[node]].successors()]
        work += edges[node]
    order: list[int] = []
    spans: list[tuple[int, int]] = []
    _order(sorted(reachable), edges, {0}, order, spans)
    place = {node: k for k, node in enumerate(order)}
    loops: dict[int, list[int]] = {}
    placed = [(place[head], place[last]) for head, last in spans]
    for head, last in placed:
        loops.setdefault(last, []).append(head)
    for heads in loops.values():
        heads.sort(reverse=True)
    return Layout([blocks[names[node]] for node in order], loops, placed)
