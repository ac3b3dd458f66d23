"""A whole kernel as LLVM IR: prologue, blocks with pending masks, descriptor.

``%m<k>`` holds the lanes that wait for block k.  The blocks lie in weak topological order and each
runs when it has lanes; after the last block of a loop control returns to the header while lanes
wait there.  A barrier that not all live lanes reach together keeps ("parks") its lanes until the
others have arrived somewhere too, as threads of one warp may do since Volta.
"""

from __future__ import annotations

from . import abi, forms
from .analysis import awaited_members, is_strong, private_registers
from .builder import Builder, Value
from .cfg import Barrier, Block, Branch, Exit, Jump, Switch, build_layout
from .descriptor import descriptor
from .errors import UnsupportedForm, invalid
from .families import load_all, sync
from .generator import Generator
from .inline import Kernel, flatten
from .layout import globals_layout, kernel_layout
from .model import Guard, Instr, Int, Module, Reg

#: Turns of a loop that may be waiting for another lane before the other lanes get their chance.
SPIN_LIMIT = 64

#: Turns of such a loop between two offers to let other warps run.
YIELD_EVERY = 8

#: Looks at lanes that wait for members of their warp before they go on without them.
SWEEP_LIMIT = 1024


class _KernelWriter:
    def __init__(self, g: Generator) -> None:
        self.g = g
        self.b = g.b
        self.layout = g.layout
        self.place = {block.name: k for k, block in enumerate(g.layout.blocks)}
        self.barriers = [
            k for k, block in enumerate(g.layout.blocks) if isinstance(block.end, Barrier)
        ]
        self.strong = self._strong_loops()
        self.awaited = {
            k: members
            for k, block in enumerate(g.layout.blocks)
            if (members := awaited_members(block)) is not None
        }

    def _strong_loops(self) -> set[int]:
        """Headers of loops that may wait for other threads."""
        found = set()
        for head, last in self.layout.spans:
            if any(
                is_strong(i) for block in self.layout.blocks[head : last + 1] for i in block.instrs
            ):
                found.add(head)
        return found

    # ------------------------------------------------------------------ masks
    def add_lanes(self, target: str, mask: str) -> None:
        slot = f"%m{self.place[target]}"
        old = self.b.raw(f"load i32, ptr {slot}")
        self.b.emit(f"store i32 {self.b.raw(f'or i32 {old}, {mask}')}, ptr {slot}")

    def guard_mask(self, guard: Guard, mask: str) -> tuple[str, str]:
        """(lanes for which the guard holds, the others)."""
        bits = self.b.to_mask(self.g.read(Reg(guard.reg), "pred"))
        yes = self.b.raw(f"and i32 {mask}, {bits}")
        no = self.b.raw(f"xor i32 {yes}, {mask}")
        return (no, yes) if guard.negated else (yes, no)

    # ------------------------------------------------------------------ blocks
    def write(self) -> None:
        b = self.b
        for k, block in enumerate(self.layout.blocks):
            b.label(f"C{k}")
            mask = b.raw(f"load i32, ptr %m{k}")
            self.g.mask, self.g.active = mask, b.from_mask(mask)
            if k in self.awaited:
                b.branch(b.raw(f"icmp eq i32 {mask}, 0"), f"E{k}", f"W{k}")
                b.label(f"W{k}")
                self.wait_for_members(k, mask)
            else:
                b.branch(b.raw(f"icmp eq i32 {mask}, 0"), f"E{k}", f"X{k}")
            b.label(f"X{k}")
            b.emit(f"store i32 0, ptr %m{k}")
            if self.awaited:
                b.emit("store i1 true, ptr %progress")
            for instr in block.instrs:
                self.instruction(instr)
            self.end(k, block, mask)
            b.jump(f"E{k}")
            b.label(f"E{k}")
            for head in self.layout.loops.get(k, ()):
                self.back_edge(head)
            b.jump(f"C{k + 1}")
        b.label(f"C{len(self.layout.blocks)}")
        self.finish()

    def wait_for_members(self, number: int, mask: str) -> None:
        """Run the block only when all lanes that its warp operation names are here, or have ended.

        Others run first.  When nothing else can run the mask names lanes that will not come:
        the lanes go on without them.
        """
        b, g = self.b, self.g
        members = self.awaited[number]
        live = b.raw("load i32, ptr %live")
        if isinstance(members, Int):
            named = str(members.value & 0xFFFFFFFF)
        else:
            given = g.b.select(g.active, g.read(members, "b32"), b.const("i32", 0))
            b.declare("i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)")
            named = b.raw(f"call i32 @llvm.vector.reduce.or.v32i32({given.typed})")
        absent = b.raw(
            f"and i32 {b.raw(f'and i32 {live}, {named}')}, {b.raw(f'xor i32 {mask}, -1')}"
        )
        here = b.raw(f"icmp eq i32 {absent}, 0")
        go = b.raw(f"or i1 {here}, {b.raw('load i1, ptr %forced')}")
        ready = b.new_label()
        b.branch(go, ready, f"E{number}")
        b.label(ready)
        b.emit("store i1 false, ptr %forced")
        b.jump(f"X{number}")

    def instruction(self, instr: Instr) -> None:
        g = self.g
        g.instr = instr
        form = forms.require(instr.form, g.line)
        least, most = form.pattern.operands
        if not least <= len(instr.ops) <= most:
            raise invalid(f"{instr.form}: wrong number of operands", g.line)
        mask, active = g.mask, g.active
        if instr.guard is not None:
            g.guarded = True
            g.mask, _ = self.guard_mask(instr.guard, mask)
            g.active = self.b.from_mask(g.mask)
        form.pattern.handler(g, instr, form.slots)
        g.mask, g.active, g.guarded = mask, active, False
        g.release_temps()

    def end(self, number: int, block: Block, mask: str) -> None:
        end, b, g = block.end, self.b, self.g
        if isinstance(end, Jump):
            self.add_lanes(end.target, mask)
        elif isinstance(end, Branch):
            yes, no = self.guard_mask(end.guard, mask)
            self.add_lanes(end.taken, yes)
            self.add_lanes(end.other, no)
        elif isinstance(end, Switch):
            index = g.read(end.index, "u32")
            inside = b.icmp("uge", index, b.const("i32", len(end.targets)))
            wrong = b.raw(f"and i32 {mask}, {b.to_mask(inside)}")
            bad, fine = b.new_label(), b.new_label()
            b.branch(b.raw(f"icmp ne i32 {wrong}, 0"), bad, fine)
            b.label(bad)
            g.service("trap", f"i32 {abi.TRAP_ILLEGAL_INSTRUCTION}", "i64 0")
            b.emit("unreachable")
            b.label(fine)
            for k, target in enumerate(end.targets):
                bits = b.to_mask(b.icmpi("eq", index, k))
                self.add_lanes(target, b.raw(f"and i32 {mask}, {bits}"))
        elif isinstance(end, Barrier):
            self.barrier(number, end, mask)
        elif isinstance(end, Exit):
            live = b.raw("load i32, ptr %live")
            rest = b.raw(f"xor i32 {mask}, -1")
            b.emit(f"store i32 {b.raw(f'and i32 {live}, {rest}')}, ptr %live")

    def barrier(self, number: int, end: Barrier, mask: str) -> None:
        b, g = self.b, self.g
        go, park = b.new_label(), b.new_label()
        b.branch(b.raw(f"icmp eq i32 {mask}, {b.raw('load i32, ptr %live')}"), go, park)
        b.label(park)
        old = b.raw(f"load i32, ptr %parked{number}")
        b.emit(f"store i32 {b.raw(f'or i32 {old}, {mask}')}, ptr %parked{number}")
        b.jump(f"E{number}")
        b.label(go)
        g.instr = end.instr
        sync.barrier(g, end.instr)
        self.add_lanes(end.next, mask)
        g.release_temps()

    def back_edge(self, head: int) -> None:
        """Go round the loop while lanes wait at its header."""
        b, out = self.b, self.b.new_label()
        again = b.new_label()
        b.branch(b.raw(f"icmp ne i32 {b.raw(f'load i32, ptr %m{head}')}, 0"), again, out)
        b.label(again)
        if head in self.strong:
            turns = b.raw(f"add i32 {b.raw('load i32, ptr %turns')}, 1")
            b.emit(f"store i32 {turns}, ptr %turns")
            pause, go_on = b.new_label(), b.new_label()
            due = b.raw(f"icmp eq i32 {b.raw(f'and i32 {turns}, {YIELD_EVERY - 1}')}, 0")
            b.branch(due, pause, go_on)
            b.label(pause)
            self.g.service("yield")
            b.jump(go_on)
            b.label(go_on)
            tired = b.raw(f"icmp eq i32 {b.raw(f'and i32 {turns}, {SPIN_LIMIT - 1}')}, 0")
            b.branch(tired, out, f"C{head}")
        else:
            b.jump(f"C{head}")
        b.label(out)

    def finish(self) -> None:
        """Nothing is pending below: lanes of a tired loop go on, then parked ones, then the end."""
        b = self.b
        if self.strong:
            waiting = "0"
            for head in sorted(self.strong):
                waiting = b.raw(f"or i32 {waiting}, {b.raw(f'load i32, ptr %m{head}')}")
            following = b.new_label()
            b.branch(b.raw(f"icmp ne i32 {waiting}, 0"), "C0", following)
            b.label(following)
        if self.awaited:
            self.sweep_again()
        plain = [k for k in self.barriers if sync.is_plain(self._barrier_of(k).instr)]
        for k in self.barriers:
            end = self._barrier_of(k)
            parked = b.raw(f"load i32, ptr %parked{k}")
            release, following = b.new_label(), b.new_label()
            b.branch(b.raw(f"icmp ne i32 {parked}, 0"), release, following)
            b.label(release)
            self.g.mask, self.g.active, self.g.instr = parked, b.from_mask(parked), end.instr
            self.g.guarded = True
            sync.barrier(self.g, end.instr)
            self.g.guarded = False
            for other in plain if k in plain else [k]:
                lanes = b.raw(f"load i32, ptr %parked{other}")
                b.emit(f"store i32 0, ptr %parked{other}")
                self.add_lanes(self._barrier_of(other).next, lanes)
            self.g.release_temps()
            b.jump("C0")
            b.label(following)
        b.emit("ret void")

    def sweep_again(self) -> None:
        """Lanes still wait for members of their warp: look again while others make progress."""
        b = self.b
        waiting = "0"
        for k in sorted(self.awaited):
            waiting = b.raw(f"or i32 {waiting}, {b.raw(f'load i32, ptr %m{k}')}")
        again, following = b.new_label(), b.new_label()
        b.branch(b.raw(f"icmp ne i32 {waiting}, 0"), again, following)
        b.label(again)
        sweeps = b.raw(f"add i32 {b.raw('load i32, ptr %sweeps')}, 1")
        b.emit(f"store i32 {sweeps}, ptr %sweeps")
        tired = b.raw(f"icmp eq i32 {b.raw(f'and i32 {sweeps}, {SWEEP_LIMIT - 1}')}, 0")
        stuck = b.raw(f"xor i1 {b.raw('load i1, ptr %progress')}, true")
        b.emit(f"store i1 {b.raw(f'or i1 {stuck}, {tired}')}, ptr %forced")
        b.emit("store i1 false, ptr %progress")
        b.jump("C0")
        b.label(following)

    def _barrier_of(self, number: int) -> Barrier:
        end = self.layout.blocks[number].end
        assert isinstance(end, Barrier)
        return end

    def prologue(self) -> Builder:
        """What stands before the first block; written last, when all needs are known."""
        g, b = self.g, Builder()
        b._count = 1 << 30

        def field(name: str, type_name: str, index: int = 0) -> str:
            slot = b.raw(f"getelementptr i8, ptr %env, i64 {abi.ENV[name] + 4 * index}")
            return f"load {type_name}, ptr {slot}, !invariant.load !0"

        for name in ("params", "shared", "local", "globals", "services"):
            b.emit(f"%{name} = {field(name, 'ptr')}")
        for name in ("params", "shared", "local", "globals"):
            b.emit(f"%{name}.i = ptrtoint ptr %{name} to i64")
        for name in ("ctaid", "nctaid", "ntid"):
            for index, axis in enumerate("xyz"):
                b.emit(f"%{name}.{axis} = {field(name, 'i32', index)}")
        for name in ("warp", "threads", "dynamic_shared", "shared_bytes", "local_bytes"):
            b.emit(f"%{name} = {field(name, 'i32')}")
        for name in ("arena_lo", "arena_hi", "grid_id", "grid_workspace"):
            b.emit(f"%{name} = {field(name, 'i64')}")
        b.emit("%arena_size = sub i64 %arena_hi, %arena_lo")
        for reg, slot in g.used_regs.items():
            elem = g.reg_elem(reg)
            b.emit(f"{slot} = alloca <32 x {elem}>, align 64")
            b.emit(f"store <32 x {elem}> zeroinitializer, ptr {slot}")
        for kind, names in g.scratch.items():
            for name in names:
                b.emit(f"{name} = alloca {kind}, align 64")
        slots = [f"%m{k}" for k in range(len(self.layout.blocks))] + [
            f"%parked{k}" for k in self.barriers
        ]
        for slot in [*slots, "%turns", "%live", "%sweeps"]:
            b.emit(f"{slot} = alloca i32")
            b.emit(f"store i32 0, ptr {slot}")
        for slot in ("%progress", "%forced"):
            b.emit(f"{slot} = alloca i1")
            b.emit(f"store i1 false, ptr {slot}")
        self._thread_index(b)
        return b

    @staticmethod
    def _thread_index(b: Builder) -> None:
        iota = b.table("i32", list(range(32)))
        b.emit(f"%lane = or <32 x i32> {iota.ref}, zeroinitializer")
        first = b.raw("shl i32 %warp, 5")
        b.emit(f"%linear = add nuw nsw <32 x i32> {b.splat(first, 'i32').ref}, {iota.ref}")
        linear = Value("%linear", "i32")
        exist = b.to_mask(b.icmp("ult", linear, b.splat("%threads", "i32")))
        b.emit(f"store i32 {exist}, ptr %m0")
        b.emit(f"store i32 {exist}, ptr %live")
        # one-dimensional blocks need no division
        b.emit("%yz = mul i32 %ntid.y, %ntid.z")
        b.branch(b.raw("icmp eq i32 %yz, 1"), "flat", "deep")
        b.label("flat")
        b.jump("start")
        b.label("deep")
        width, height = b.splat("%ntid.x", "i32"), b.splat("%ntid.y", "i32")
        x, row = b.bin("urem", linear, width), b.bin("udiv", linear, width)
        y, z = b.bin("urem", row, height), b.bin("udiv", row, height)
        b.jump("start")
        b.label("start")
        for axis, flat, deep in (
            ("x", "%linear", x),
            ("y", "zeroinitializer", y),
            ("z", "zeroinitializer", z),
        ):
            b.emit(f"%tid.{axis} = phi <32 x i32> [ {flat}, %flat ], [ {deep.ref}, %deep ]")
        b.jump("C0")


def generate(module: Module, name: str) -> tuple[str, int]:
    """LLVM IR of one kernel, and its size in instructions."""
    load_all()
    entry = module.functions.get(module.aliases.get(name, name))
    if entry is None or not entry.entry:
        raise invalid(f"no kernel {name} in this module")
    kernel: Kernel = flatten(module, entry)
    _check_parameters(module, kernel)
    layout = build_layout(module, kernel)
    globals_ = globals_layout(module)
    g = Generator(module, kernel, layout, kernel_layout(module, kernel, globals_), globals_)
    g.private_regs = private_registers(module, layout)
    writer = _KernelWriter(g)
    writer.write()
    start = writer.prologue()
    fibers = bool(writer.barriers or writer.strong) or bool(g.flags & abi.KERNEL_NEEDS_FIBERS)
    parts = [
        descriptor(g, fibers),
        "define internal void @sgk.entry(ptr noalias %env) #0 {",
        "entry:",
        *start.lines,
        *g.b.lines,
        "}",
        *g.b.helpers.values(),
        *sorted(g.b.declarations | start.declarations),
        '!0 = !{}\nattributes #0 = { nounwind "no-trapping-math"="true" "frame-pointer"="none" }',
        "attributes #1 = { noinline nounwind }",
    ]
    return "\n".join(parts) + "\n", sum(isinstance(s, Instr) for s in kernel.stmts)


def _check_parameters(module: Module, kernel: Kernel) -> None:
    for param in kernel.entry.params:
        if param.space != "param" or param.count < 0:
            raise UnsupportedForm(
                f"kernel parameter {param.name}", module.line(kernel.entry.offset)
            )
