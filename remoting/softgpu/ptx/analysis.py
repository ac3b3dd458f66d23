"""What the emitter must know about a kernel before it writes code."""

from __future__ import annotations

from . import forms
from .cfg import Barrier, Block, Branch, Layout, Switch, member_mask
from .generator import CARRY
from .model import Instr, Module, Operand, registers_of

_STRONG_WORDS = {"volatile", "relaxed", "acquire", "release", "mmio", "acq_rel"}
_STRONG_OPS = {"atom", "membar", "fence", "nanosleep"}


def is_strong(instr: Instr) -> bool:
    """Does a loop with this instruction perhaps wait for another thread?"""
    return instr.opcode in _STRONG_OPS or not _STRONG_WORDS.isdisjoint(instr.form.split("."))


def private_registers(module: Module, layout: Layout) -> set[str]:
    """Registers used in one block only, written there first: inactive lanes need not be kept."""
    home: dict[str, int] = {}
    first_write: dict[str, bool] = {}
    shared: set[str] = set()

    def note(name: str, block: int, written: bool) -> None:
        if home.setdefault(name, block) != block:
            shared.add(name)
        first_write.setdefault(name, written)

    for number, block in enumerate(layout.blocks):
        for instr in block.instrs:
            writes = forms.require(instr.form, module.line(instr.offset)).pattern.writes
            if instr.guard is not None:
                note(instr.guard.reg, number, False)
            for op in instr.ops[1 if writes else 0 :]:
                for name in registers_of(op):
                    note(name, number, False)
            if writes and instr.ops:
                for name in registers_of(instr.ops[0]):
                    note(name, number, instr.guard is None)
        end = block.end
        if isinstance(end, Branch):
            note(end.guard.reg, number, False)
        elif isinstance(end, Switch):
            note(end.index.name, number, False)
        elif isinstance(end, Barrier):
            shared.update(r for op in end.instr.ops for r in registers_of(op))
    return {
        name
        for name, written in first_write.items()
        if written and name not in shared and name != CARRY
    }


def awaited_members(block: Block) -> Operand | None:
    """The member mask of the block's first synchronising warp operation, if there is one."""
    for instr in block.instrs:
        members = member_mask(instr)
        if members is not None:
            return members
    return None
