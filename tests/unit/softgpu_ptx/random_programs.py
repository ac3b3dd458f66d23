"""Random PTX programs next to an interpreter in Python: what single instructions do not show.

A program is straight-line code, branches, loops and calls, in which lanes diverge; instructions are
drawn from the tables of the form tests, and the interpreter computes them by the same references.
It runs lane after lane, so it knows nothing of masks and blocks. Operations across lanes stand where
all lanes meet.

    python -m tests.unit.softgpu_ptx.random_programs --seconds 300 [--seed 1]
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from tests.unit.softgpu_ptx import test_compare_forms as compare
from tests.unit.softgpu_ptx import test_convert_forms as convert
from tests.unit.softgpu_ptx import test_float_forms as floating
from tests.unit.softgpu_ptx import test_integer_forms as integer
from tests.unit.softgpu_ptx.formrun import WIDTH, Row, edges
from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.reference import FORMATS
from tests.unit.softgpu_ptx.test_warp_forms import shuffle_model

LANES = 32
COUNTS = {1: 4, 16: 4, 32: 8, 64: 6}  # registers of each width
FULL = 0xFFFFFFFF

Lane = dict[str, int]


def register(width: int, number: int) -> str:
    return f"%{ {1: 'p', 16: 'h', 32: 'r', 64: 'd'}[width] }{number}"


def width_of(kind: str) -> int:
    width = WIDTH[kind]
    return width if width == 1 else max(width, 16)


def _usable(row: Row) -> bool:
    """One plain instruction with one exact result."""
    kinds = (*row.inputs, row.output)
    return (
        not row.text and row.tolerance is None and all(k in WIDTH and k != "f32x2" for k in kinds)
    )


@functools.cache
def _table() -> list[Row]:
    sources = (
        integer.arithmetic, integer.special_arithmetic, integer.bit_rows, integer.video_rows,
        floating.wide_rows, floating.half_rows, floating.simple_rows, convert.integer_rows,
        convert.from_integer_rows, convert.to_integer_rows, convert.float_rows, convert.field_rows,
        compare.predicate_rows, compare.selection_rows, compare.packed_comparisons,
    )  # fmt: skip
    return [row for source in sources for row in source() if _usable(row)]


# ---------------------------------------------------------------------- programs
@dataclass
class Operation:
    """``row`` on registers; ``guard`` with its sign."""

    row: Row
    dest: str
    sources: list[str]
    guard: tuple[str, bool] | None = None


@dataclass
class Branch:
    predicate: str
    negated: bool
    then: list[Node]
    other: list[Node]


@dataclass
class Loop:
    """Turns: the low bits of a register, so lanes leave at different times; with a way out."""

    turns: str
    leave: str
    body: list[Node]


@dataclass
class Call:
    """A function of two 32-bit values and one of 64 bits; it recurses on the first."""

    dest: str
    arguments: list[str]


@dataclass
class Shuffle:
    mode: str
    dest: str
    source: str
    distance: int
    control: int


@dataclass
class Ballot:
    dest: str
    predicate: str


@dataclass
class Memory:
    """Store to and load from the lane's own words of a space, by a computed index."""

    space: str
    index: str
    value: str
    dest: str


Node = Operation | Branch | Loop | Call | Shuffle | Ballot | Memory


@dataclass
class Program:
    nodes: list[Node]
    start: list[dict[str, int]]
    label: int = 0
    text: list[str] = field(default_factory=list)


class Maker:
    def __init__(self, seed: int, rows: list[Row]) -> None:
        self.random = random.Random(seed)
        by_output: dict[int, list[Row]] = {}
        for row in rows:
            by_output.setdefault(width_of(row.output), []).append(row)
        self.rows = by_output

    def pick(self, width: int) -> str:
        return register(width, self.random.randrange(COUNTS[width]))

    def operation(self) -> Operation:
        width = self.random.choice((1, 16, 32, 32, 32, 64, 64))
        # opcodes are equally likely, however many forms they have
        opcode = self.random.choice(sorted({r.form.split(".")[0] for r in self.rows[width]}))
        row = self.random.choice([r for r in self.rows[width] if r.form.split(".")[0] == opcode])
        guard = (self.pick(1), self.random.random() < 0.5) if self.random.random() < 0.2 else None
        sources = [self.pick(width_of(k)) for k in row.inputs]
        return Operation(row, self.pick(width), sources, guard)

    def nodes(self, count: int, depth: int, together: bool) -> list[Node]:
        return [self.node(depth, together) for _ in range(count)]

    def node(self, depth: int, together: bool) -> Node:
        chance = self.random.random()
        if depth > 0 and chance < 0.12:
            then = self.nodes(self.random.randrange(1, 6), depth - 1, False)
            other = self.nodes(self.random.randrange(0, 5), depth - 1, False)
            return Branch(self.pick(1), self.random.random() < 0.5, then, other)
        if depth > 0 and chance < 0.2:
            body = self.nodes(self.random.randrange(1, 6), depth - 1, False)
            return Loop(self.pick(32), self.pick(1), body)
        if chance < 0.24:
            return Call(self.pick(32), [self.pick(32), self.pick(32), self.pick(64)])
        if chance < 0.3:
            space = self.random.choice(("shared", "local", "global"))
            return Memory(space, self.pick(32), self.pick(64), self.pick(64))
        if together and chance < 0.36:
            mode = self.random.choice(("up", "down", "bfly", "idx"))
            width = self.random.choice((2, 4, 8, 16, 32))
            control = (32 - width) << 8 | (0 if mode == "up" else 31)
            return Shuffle(mode, self.pick(32), self.pick(32), self.random.randrange(34), control)
        if together and chance < 0.39:
            return Ballot(self.pick(32), self.pick(1))
        return self.operation()

    def program(self) -> Program:
        start = []
        for _ in range(LANES):
            lane: Lane = {}
            for width, count in COUNTS.items():
                kinds = {1: ["pred"], 16: ["u16", "f16", "bf16"], 32: ["u32", "f32", "f16x2"],
                         64: ["u64", "f64"]}[width]  # fmt: skip
                for k in range(count):
                    kind = self.random.choice(kinds)
                    bits = self.random.getrandbits(width)
                    lane[register(width, k)] = (
                        bits if self.random.random() < 0.5 else self.random.choice(edges(kind))
                    )
            start.append(lane)
        return Program(self.nodes(self.random.randrange(8, 30), 3, True), start)


# ---------------------------------------------------------------------- as text
FUNCTION = """
.func (.param .b32 result) mix(.param .b32 n, .param .b32 x, .param .b64 y)
{ .reg .b32 %a<9>; .reg .b64 %b<3>; .reg .pred %q<2>;
  ld.param.b32 %a0, [n]; ld.param.b32 %a1, [x]; ld.param.b64 %b0, [y];
  and.b32 %a2, %a0, 7; setp.eq.u32 %q0, %a2, 0; @%q0 bra LAST;
  sub.u32 %a3, %a2, 1; mul.lo.u32 %a4, %a1, 1664525; add.u32 %a4, %a4, %a2;
  { .param .b32 r; .param .b32 p; .param .b32 q; .param .b64 s;
    st.param.b32 [p], %a3; st.param.b32 [q], %a4; st.param.b64 [s], %b0;
    call (r), mix, (p, q, s); ld.param.b32 %a5, [r]; }
  xor.b32 %a5, %a5, %a1; st.param.b32 [result], %a5; ret;
  LAST: cvt.u32.u64 %a6, %b0; add.u32 %a6, %a6, %a1; st.param.b32 [result], %a6; ret; }
"""


def mix(n: int, x: int, y: int) -> int:
    n &= 7
    if n == 0:
        return (y + x) & FULL
    return mix(n - 1, (x * 1664525 + n) & FULL, y) ^ x


WORDS = 4


class Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.labels = 0

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def nan_to_one(self, kind: str, dest: str, guard: str) -> None:
        """NaN results may differ in their bits: make them a number."""
        if kind in ("f32", "f64"):
            one = {"f32": 0x3F800000, "f64": 0x3FF0000000000000}[kind]
            self.lines.append(f"{guard}testp.notanumber.{kind} %p9, {dest};")
            self.lines.append(f"{guard}selp.b{kind[1:]} {dest}, {one}, {dest}, %p9;")
        elif kind in ("f16", "bf16"):
            self.lines.append(f"{guard}setp.nan.{kind} %p9, {dest}, {dest};")
            self.lines.append(f"{guard}selp.b16 {dest}, 15360, {dest}, %p9;")
        elif kind in ("f16x2", "bf16x2"):
            half = kind[:-2]
            self.lines.append(f"{guard}mov.b32 {{%h8, %h9}}, {dest};")
            for part in ("%h8", "%h9"):
                self.nan_to_one(half, part, guard)
            self.lines.append(f"{guard}mov.b32 {dest}, {{%h8, %h9}};")

    def write(self, node: Node) -> None:
        lines = self.lines
        if isinstance(node, Operation):
            guard = ""
            if node.guard is not None:
                guard = f"@{'!' if node.guard[1] else ''}{node.guard[0]} "
                if node.dest == node.guard[0]:  # the guard must not change before the clean-up
                    guard = ""
                    node.guard = None
            lines.append(f"{guard}{node.row.form} {', '.join([node.dest, *node.sources])};")
            self.nan_to_one(node.row.output, node.dest, guard)
        elif isinstance(node, Branch):
            other, end = self.label(), self.label()
            lines.append(f"@{'' if node.negated else '!'}{node.predicate} bra {other};")
            self.all(node.then)
            lines += [f"bra {end};", f"{other}:"]
            self.all(node.other)
            lines.append(f"{end}:")
        elif isinstance(node, Loop):
            head, end = self.label(), self.label()
            counter = f"%c{self.labels}"
            lines += [f".reg .b32 {counter};", f"and.b32 {counter}, {node.turns}, 3;", f"{head}:"]
            lines += [f"setp.eq.u32 %p8, {counter}, 0;", f"@%p8 bra {end};"]
            self.all(node.body)
            lines += [f"sub.u32 {counter}, {counter}, 1;", f"@{node.leave} bra {end};"]
            lines += [f"bra {head};", f"{end}:"]
        elif isinstance(node, Call):
            a, b, c = node.arguments
            lines.append(
                "{ .param .b32 r; .param .b32 p; .param .b32 q; .param .b64 s;"
                f"st.param.b32 [p], {a}; st.param.b32 [q], {b}; st.param.b64 [s], {c};"
                f"call (r), mix, (p, q, s); ld.param.b32 {node.dest}, [r]; }}"
            )
        elif isinstance(node, Shuffle):
            where = f"{node.source}, {node.distance}, {node.control}, -1"
            lines.append(f"shfl.sync.{node.mode}.b32 {node.dest}, {where};")
        elif isinstance(node, Ballot):
            lines.append(f"vote.sync.ballot.b32 {node.dest}, {node.predicate}, -1;")
        else:
            base = {"shared": "%d50", "global": "%d51", "local": "%d52"}[node.space]
            lines.append(
                f"and.b32 %r50, {node.index}, {WORDS - 1}; mul.wide.u32 %d53, %r50, 8;"
                f"add.u64 %d53, %d53, {base}; st.{node.space}.u64 [%d53], {node.value};"
                f"xor.b64 %d53, %d53, 8; ld.{node.space}.u64 {node.dest}, [%d53];"
            )

    def all(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.write(node)


def text_of(program: Program) -> str:
    writer = Writer()
    loads, stores, offset = [], [], 0
    for width, count in COUNTS.items():
        for k in range(count):
            name = register(width, k)
            if width == 1:
                loads.append(f"ld.global.u64 %d55, [%d56+{offset}]; setp.ne.u64 {name}, %d55, 0;")
                stores.append(f"selp.u64 %d55, 1, 0, {name}; st.global.u64 [%d56+{offset}], %d55;")
            else:
                loads.append(f"ld.global.b{width} {name}, [%d56+{offset}];")
                stores.append(
                    f"cvt.u64.u{width} %d55, {name}; st.global.u64 [%d56+{offset}], %d55;"
                )
            offset += 8
    writer.all(program.nodes)
    per_lane = offset
    head = f"""
.version 8.7\n.target sm_120\n.address_size 64{FUNCTION}
.visible .entry t(.param .u64 state, .param .u64 memory) {{
.reg .pred %p<10>; .reg .b16 %h<10>; .reg .b32 %r<60>; .reg .b64 %d<60>;
.shared .align 8 .b8 words[{8 * WORDS * LANES}]; .local .align 64 .b8 buffer[{8 * WORDS}];
mov.u32 %r51, %tid.x; ld.param.u64 %d56, [state]; mul.wide.u32 %d57, %r51, {per_lane};
add.u64 %d56, %d56, %d57; mul.wide.u32 %d57, %r51, {8 * WORDS}; mov.u64 %d50, words;
add.u64 %d50, %d50, %d57; ld.param.u64 %d51, [memory]; add.u64 %d51, %d51, %d57;
mov.u64 %d52, buffer; mov.b64 %d58, 0;
"""
    clear = "".join(
        f"st.shared.u64 [%d50+{8 * k}], %d58; st.local.u64 [buffer+{8 * k}], %d58;"
        for k in range(WORDS)
    )
    return "\n".join([head.strip(), *loads, clear, *writer.lines, *stores, "ret; }"])


# ---------------------------------------------------------------------- as Python
def _number(row: Row, bits: int) -> int:
    """The result with NaN replaced as the program does."""
    kind = row.output
    if kind in FORMATS and FORMATS[kind].is_nan(bits):
        return {"f32": 0x3F800000, "f64": 0x3FF0000000000000}.get(kind, 15360)
    if kind in ("f16x2", "bf16x2"):
        f = FORMATS[kind[:-2]]
        parts = [bits >> s & 0xFFFF for s in (0, 16)]
        low, high = (15360 if f.is_nan(p) else p for p in parts)
        return low | high << 16
    return bits


class Interpreter:
    """One lane at a time between the places where all meet."""

    def __init__(self, program: Program) -> None:
        self.lanes = [dict(lane) for lane in program.start]
        spaces = ("shared", "global", "local")
        self.memory = [{s: [0] * WORDS for s in spaces} for _ in self.lanes]

    def run(self, nodes: list[Node]) -> None:
        for node in nodes:
            if isinstance(node, Shuffle):
                values = np.array([lane[node.source] for lane in self.lanes], "u4")
                results = [
                    shuffle_model(node.mode, values, k, node.distance, node.control)[0]
                    for k in range(LANES)
                ]
                for lane, result in zip(self.lanes, results, strict=True):
                    lane[node.dest] = result
            elif isinstance(node, Ballot):
                bits = sum(lane[node.predicate] << k for k, lane in enumerate(self.lanes))
                for lane in self.lanes:
                    lane[node.dest] = bits
            else:
                for number in range(LANES):
                    self.step(node, number)

    def steps(self, nodes: list[Node], number: int) -> None:
        for node in nodes:
            self.step(node, number)

    def step(self, node: Node, number: int) -> None:
        lane = self.lanes[number]
        if isinstance(node, Operation):
            if node.guard is not None and bool(lane[node.guard[0]]) == node.guard[1]:
                return
            kinds = node.row.inputs
            masks = [(1 << max(WIDTH[k], 1)) - 1 for k in kinds]
            operands = [lane[s] & m for s, m in zip(node.sources, masks, strict=True)]
            result = _number(node.row, int(node.row.expect(*operands)))
            lane[node.dest] = result & (1 << width_of(node.row.output)) - 1
        elif isinstance(node, Branch):
            taken = bool(lane[node.predicate]) != node.negated
            self.steps(node.then if taken else node.other, number)
        elif isinstance(node, Loop):
            for _ in range(lane[node.turns] & 3):
                self.steps(node.body, number)
                if lane[node.leave]:
                    break
        elif isinstance(node, Call):
            a, b, c = (lane[r] for r in node.arguments)
            lane[node.dest] = mix(a, b, c)
        elif isinstance(node, Memory):
            words = self.memory[number][node.space]
            index = lane[node.index] & (WORDS - 1)
            words[index] = lane[node.value]
            lane[node.dest] = words[index ^ 1]
        else:
            raise AssertionError(node)


def names() -> list[str]:
    return [register(width, k) for width, count in COUNTS.items() for k in range(count)]


def check(program: Program, opt: int | None) -> None:
    """Run it both ways and compare every register of every lane."""
    text = text_of(program)  # first: it settles the guards
    interpreter = Interpreter(program)
    interpreter.run(program.nodes)
    state = np.array([[lane[n] for n in names()] for lane in program.start], "u8")
    memory = np.zeros(LANES * WORDS, "u8")
    outcome = Module(text, opt=opt).launch("t", (1,), (LANES,), [state, memory])
    assert outcome.kind == 0, (outcome.kind, text)
    for number, lane in enumerate(interpreter.lanes):
        for column, name in enumerate(names()):
            got = int(state[number, column])
            assert got == lane[name], (
                f"lane {number}, {name}: {got:#x}, expected {lane[name]:#x}\n{text}"
            )
        for word, value in enumerate(interpreter.memory[number]["global"]):
            assert int(memory[number * WORDS + word]) == value, (number, word, text)


def run(seed: int, opt: int | None, rows: list[Row] | None = None) -> None:
    check(Maker(seed, rows or _table()).program(), opt)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows, end, seed = _table(), time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        try:
            run(seed, (0, 1, 2, None)[seed % 4], rows)
        except Exception:
            print(f"seed {seed} fails", file=sys.stderr)
            raise
        seed += 1
    print(f"{seed - options.seed} programs agree (seeds {options.seed} to {seed - 1})")


if __name__ == "__main__":
    main()
