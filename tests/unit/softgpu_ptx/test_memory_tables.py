"""Every form of ld, ldu, st, atom and red, as the whitelist lists them.

The forms come from the whitelist; what they mean comes from here: the words of a form are read
anew, and a word that this file does not know fails the test.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from remoting.softgpu.ptx import forms
from remoting.softgpu.ptx.families import load_all
from tests.unit.softgpu_ptx import reference as ref
from tests.unit.softgpu_ptx.harness import Module
from tests.unit.softgpu_ptx.reference import FORMATS

LANES, SLOT = 32, 32
ROWS_IN_A_KERNEL = 48

SPACES = {"global", "shared", "shared::cta", "local", "const", "param", "param::entry"}
TYPES = {f"{s}{w}" for s in "bus" for w in (8, 16, 32, 64)} | {
    "b128", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2",
}  # fmt: skip
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
OPERATIONS = {"add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min", "max"}
#: Words that say when other threads see an access, or what a cache does; values do not depend on
#: them.
QUIET = {
    "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu",
    "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "noftz", "L2::64B", "L2::128B",
    "L2::256B",
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate", "L2::evict_normal", "L2::evict_first", "L2::evict_last",
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """A form, read word by word."""

    form: str
    space: str
    type: str
    count: int
    operation: str
    policy: str
    """The last operand, if the form wants one."""

    @property
    def size(self) -> int:
        return {"f16x2": 4, "bf16x2": 4, "bf16": 2}.get(self.type) or int(self.type[1:]) // 8

    @property
    def bytes(self) -> int:
        return self.size * self.count

    @property
    def inner(self) -> str:
        """Where the test must put the data."""
        return self.space.split("::")[0] or "global"


def read_form(form: str) -> Access:
    space = type_name = operation = policy = ""
    count = 1
    for word in form.split(".")[1:]:
        if word in SPACES:
            space = word
        elif word in TYPES:
            type_name = word
        elif word in VECTORS:
            count = VECTORS[word]
        elif word in OPERATIONS:
            operation = word
        elif word == "L2::cache_hint":
            policy = ", %d60"
        else:
            assert word in QUIET, f"no reference knows .{word} of {form}"
    return Access(form, space, type_name, count, operation, policy)


@functools.cache
def examples(opcode: str) -> list[Access]:
    """One form for each thing that the opcode's generators may be given."""
    load_all()
    seen, result = set(), []
    for pattern in forms.all_patterns():
        if pattern.text.split(".")[0].split("{")[0] != opcode:
            continue
        for example, slots, _ in pattern.choices():
            key = (pattern.handler, tuple(sorted(slots.items())))
            if key not in seen:
                seen.add(key)
                result.append(read_form(example))
    return result


def covered_forms() -> Iterator[str]:
    for opcode in ("ld", "ldu", "st", "atom", "red"):
        yield from (access.form for access in examples(opcode))


BYTES = (1, 2, 4, 8, 16, 32)


def groups(opcode: str, size: int) -> Iterator[list[Access]]:
    """Kernels: accesses of equal size, so that one launch can make them all contiguous."""
    assert {a.bytes for a in examples(opcode)} <= set(BYTES)
    rows = [a for a in examples(opcode) if a.bytes == size]
    for start in range(0, len(rows), ROWS_IN_A_KERNEL):
        yield rows[start : start + ROWS_IN_A_KERNEL]


HEAD = """.version 8.8
.target sm_100
.address_size 64
.const .align 32 .b8 table[{constant_bytes}] = {{{constants}}};
.visible .entry t(.param .u64 p0, .param .u64 p1, .param .u32 stride, .param .align 16 .b8 block[32]) {{
.reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %d<80>; .reg .f32 %f<20>; .reg .f64 %g<20>;
.reg .b128 %q<9>; .reg .b16 %h<20>;
.shared .align 32 .b8 words[1024]; .local .align 32 .b8 buffer[32];
ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1]; ld.param.u32 %r2, [stride];
mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, %r2; mul.wide.u32 %d3, %r1, 32; mov.b64 %d60, 0;
add.u64 %d10, %d0, %d2; mov.u64 %d11, words; add.u64 %d11, %d11, %d2; mov.u64 %d12, buffer;
mov.u64 %d13, table; add.u64 %d13, %d13, %d2; add.u64 %d14, %d0, %d3;
"""
PLACE = {"global": "%d10", "shared": "%d11", "local": "%d12", "const": "%d13", "param": "block"}


def register(type_name: str, k: int) -> str:
    """A register that takes the type; integers get one that is wider."""
    letter = {"f32": "%f", "f64": "%g", "b128": "%q", "f16": "%h", "bf16": "%h"}.get(
        type_name, "%d"
    )
    if type_name in ("f16x2", "bf16x2"):
        letter = "%r"
    return f"{letter}{k + (20 if letter == '%d' else 10 if letter == '%r' else 0)}"


def braces(items: list[str]) -> str:
    return f"{{{', '.join(items)}}}" if len(items) > 1 else items[0]


def widened(type_name: str, source: str, k: int) -> str:
    """Put a register into %d70 (and %d71)."""
    if type_name == "f32":
        return f"mov.b32 %r19, {source}; cvt.u64.u32 %d70, %r19;"
    if type_name == "b128":
        return f"mov.b128 {{%d70, %d71}}, {source};"
    if type_name in ("f16", "bf16"):
        return f"cvt.u64.u16 %d70, {source};"
    if type_name in ("f16x2", "bf16x2"):
        return f"cvt.u64.u32 %d70, {source};"
    return f"mov.b64 %d70, {source};"


@functools.cache
def data() -> np.ndarray:
    """32 bytes for each lane."""
    return np.random.default_rng(11).integers(0, 256, LANES * SLOT).astype("u1")


def text_of(body: list[str]) -> str:
    constants = ", ".join(map(str, data()))
    head = HEAD.format(constant_bytes=LANES * SLOT, constants=constants)
    return head + "\n".join(body) + "\nret; }"


def element(raw: np.ndarray, access: Access, start: int, k: int) -> int:
    place = start + k * access.size
    return int.from_bytes(raw[place : place + access.size].tobytes(), "little")


def launch(module: Module, memory: np.ndarray, out: np.ndarray, stride: int, lanes: int) -> None:
    args = [memory, out, np.uint32(stride), data()[64:96].tobytes()]
    outcome = module.launch("t", (1,), (lanes,), args)
    assert outcome.kind == 0


# ---------------------------------------------------------------------- loads
FILL = " ".join(
    f"ld.global.b64 %d70, [%d14+{k}]; st.shared.b64 [%d15+{k}], %d70; st.local.b64 [buffer+{k}], %d70;"
    for k in range(0, SLOT, 8)
)


@pytest.mark.parametrize("opcode", ["ld", "ldu"])
@pytest.mark.parametrize("size", BYTES)
def test_every_load(opcode: str, size: int) -> None:
    compared = 0
    for rows in groups(opcode, size):
        body = [f"mov.u64 %d15, words; add.u64 %d15, %d15, %d3; {FILL} bar.sync 0;"]
        body.append(f"mul.wide.u32 %d4, %r1, {64 * len(rows)}; add.u64 %d5, %d1, %d4;")
        for number, a in enumerate(rows):
            items = [register(a.type, k) for k in range(a.count)]
            body.append(f"{a.form} {braces(items)}, [{PLACE[a.inner]}]{a.policy};")
            for k, item in enumerate(items):
                at = 64 * number + (8 * k)
                body.append(f"{widened(a.type, item, k)} st.global.b64 [%d5+{at}], %d70;")
                if a.type == "b128":
                    body.append(f"st.global.b64 [%d5+{at + 8}], %d71;")
        module = Module(text_of(body), opt=0)
        for stride, lanes in ((SLOT, 32), (size, 32), (size, 20)):
            out = np.zeros((LANES, len(rows), 8), "u8")
            launch(module, data().copy(), out, stride, lanes)
            for (number, a), lane in itertools.product(enumerate(rows), range(lanes)):
                raw, start = data(), lane * stride
                if a.inner == "param":
                    raw, start = data()[64:96], 0
                elif a.inner == "local":
                    start = lane * SLOT
                for k in range(a.count):
                    want = element(raw, a, start, k)
                    got = int(out[lane, number, k])
                    if a.type == "b128":
                        got |= int(out[lane, number, 1]) << 64
                    elif a.type[0] == "s":
                        want = ref.unsigned(ref.signed(want, 8 * a.size), 64)
                    assert got == want, (a.form, stride, lane, k)
                    compared += 1
    assert compared > 400 or (opcode, size) == ("ldu", 32)


# ---------------------------------------------------------------------- stores
@pytest.mark.parametrize("size", BYTES)
def test_every_store(size: int) -> None:
    compared = 0
    for rows in groups("st", size):
        body = []
        for number, a in enumerate(rows):
            items = [register(a.type, k) for k in range(a.count)]
            for k, item in enumerate(items):
                wide = {8: "64", 4: "32", 16: "64"}.get(a.size, "64")
                if a.type == "b128":
                    body.append(
                        f"ld.global.b64 %d70, [%d14]; ld.global.b64 %d71, [%d14+8];"
                        f"mov.b128 {item}, {{%d70, %d71}};"
                    )
                elif a.type in ("f32", "f64"):
                    body.append(f"ld.global.b{wide} {item}, [%d14+{k * a.size}];")
                else:  # the register holds more than is stored
                    body.append(f"ld.global.b{8 * a.size} %d70, [%d14+{k * a.size}];")
                    body.append("mov.b64 %d71, 0xA5A5A5A5A5A5A5A5;" if a.size < 8 else "")
                    if a.size < 8:
                        body.append(f"bfi.b64 {item}, %d70, %d71, 0, {8 * a.size};")
                    else:
                        body.append(f"mov.b64 {item}, %d70;")
            body.append(f"add.u64 %d16, %d1, {1024 * number}; add.u64 %d17, %d16, %d2;")
            target = {"global": "%d17", "shared": "%d11", "local": "%d12"}[a.inner]
            if a.inner != "global":
                body.append(
                    " ".join(
                        f"st.{a.inner}.b64 [{'%d15' if a.inner == 'shared' else 'buffer'}+{k}], -1;"
                        for k in range(0, SLOT, 8)
                    )
                )
                body.append("bar.sync 0;")
            body.append(f"{a.form} [{target}], {braces(items)}{a.policy};")
            if a.inner != "global":
                body.append("bar.sync 0; add.u64 %d17, %d16, %d3;")
                for k in range(0, SLOT, 8):
                    base = "%d15" if a.inner == "shared" else "buffer"
                    body.append(
                        f"ld.{a.inner}.b64 %d70, [{base}+{k}]; st.global.b64 [%d17+{k}], %d70;"
                    )
        module = Module(text_of(["mov.u64 %d15, words; add.u64 %d15, %d15, %d3;", *body]), opt=0)
        for stride, lanes in ((SLOT, 32), (size, 32), (size, 20)):
            out = np.full((len(rows), LANES * SLOT), 255, "u1")
            launch(module, data().copy(), out, stride, lanes)
            for number, a in enumerate(rows):
                want = np.full(LANES * SLOT, 255, "u1")
                for lane in range(lanes):
                    step = SLOT if a.inner == "local" else stride
                    given = data()[lane * SLOT : lane * SLOT + size]
                    want[lane * step : lane * step + size] = given
                assert np.array_equal(out[number], want), (a.form, stride, lanes)
                compared += 1
    assert compared > 90


# ---------------------------------------------------------------------- atomics
def _float(kind: str) -> Callable[[int, int], int]:
    f = FORMATS[kind]
    return lambda v, x: f.encode(ref.add(f.decode(v), f.decode(x)))


def _extreme(kind: str, greater: bool) -> Callable[[int, int], int]:
    f = FORMATS[kind]

    def run(v: int, x: int) -> int:
        order = [-(b & ~f.sign) - 1 if b & f.sign else b for b in (v, x)]
        return v if (order[0] > order[1]) == greater else x

    return run


def _pair(one: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda v, x: one(v & 0xFFFF, x & 0xFFFF) | one(v >> 16, x >> 16) << 16


def step_of(a: Access) -> Callable[[int, int], int]:
    """The new value from the old one and the operand."""
    bits = 8 * a.size
    mask = (1 << bits) - 1
    half = a.type.removesuffix("x2")
    if half in FORMATS:
        one = _float(half) if a.operation == "add" else _extreme(half, a.operation == "max")
        return _pair(one) if a.type.endswith("x2") else one

    def number(v: int) -> int:
        return ref.signed(v, bits) if a.type[0] == "s" else v

    return {
        "add": lambda v, x: v + x & mask,
        "and": lambda v, x: v & x,
        "or": lambda v, x: v | x,
        "xor": lambda v, x: v ^ x,
        "exch": lambda v, x: x,
        "inc": lambda v, x: 0 if v >= x else v + 1,
        "dec": lambda v, x: x if v == 0 or v > x else v - 1,
        "min": lambda v, x: min(v, x, key=number),
        "max": lambda v, x: max(v, x, key=number),
    }[a.operation]


def operands(a: Access) -> np.ndarray:
    """Bytes of the words and of each lane's operands: numbers of moderate size for floats."""
    rng = np.random.default_rng(5)
    half = a.type.removesuffix("x2")
    if half in FORMATS:
        count = LANES * SLOT // {"f64": 8, "f32": 4}.get(half, 2)
        values = rng.standard_normal(count) * 3
        if half == "bf16":
            return (values.astype("f4").view("u4") >> 16).astype("u2").view("u1")
        return values.astype({"f16": "f2", "f32": "f4", "f64": "f8"}[half]).view("u1")
    raw = rng.integers(0, 256, LANES * SLOT).astype("u1")
    if a.operation in ("inc", "dec"):
        raw.view("u4")[:] &= 7
    return raw


WORDS = 3


def exact_register(a: Access, k: int) -> str:
    """A register of the type's own size."""
    first = {2: "%h", 4: "%r", 8: "%d", 16: "%q"}[a.size]
    if a.type == "f32":
        first = "%f"
    return f"{first}{k + {'%r': 4, '%d': 40}.get(first, 0)}"


def _atomic_text(a: Access, number: int, opcode: str) -> list[str]:
    """Lane k works on word k % 3; its operands are its slot."""
    items = [exact_register(a, k) for k in range(a.count)]
    second = [exact_register(a, k + a.count) for k in range(a.count)] if opcode == "atom" else []
    body = [f"add.u64 %d30, %d0, {1024 * number}; add.u64 %d31, %d30, %d3;"]
    wide = max(8 * a.size, 16)
    for k, item in enumerate(items):
        if a.type == "b128":
            body.append(f"ld.global.b128 {item}, [%d31];")
        else:
            body.append(f"ld.global.b{wide} {item}, [%d31+{k * a.size}];")
    base = "%d33"
    body.append(f"add.u64 %d32, %d1, {2048 * number}; mul.wide.u32 %d34, %r3, 32;")
    if a.inner == "shared":
        body.append("mov.u64 %d33, words; add.u64 %d33, %d33, %d34;")
        body.append("add.u64 %d35, %d32, %d34;")
        body += [f"ld.global.b64 %d70, [%d35+{k}]; st.shared.b64 [%d33+{k}], %d70;"
                 for k in range(0, SLOT, 8)]  # fmt: skip
        body.append("bar.sync 0;")
    else:
        body.append("add.u64 %d33, %d32, %d34;")
    if opcode == "atom":
        body.append(f"{a.form} {braces(second)}, [{base}], {braces(items)}{a.policy};")
    else:
        body.append(f"{a.form} [{base}], {braces(items)}{a.policy};")
    body.append("add.u64 %d36, %d32, 1024; add.u64 %d36, %d36, %d3;")
    for k, item in enumerate(second):
        if a.type == "b128":
            body.append(f"st.global.b128 [%d36], {item};")
        else:
            body.append(f"st.global.b{wide} [%d36+{k * a.size}], {item};")
    if a.inner == "shared":
        body.append("bar.sync 0;")
        body += [f"ld.shared.b64 %d70, [%d33+{k}]; st.global.b64 [%d35+{k}], %d70;"
                 for k in range(0, SLOT, 8)]  # fmt: skip
    return body


@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize("scalar", [True, False])
def test_every_atomic_operation(opcode: str, scalar: bool) -> None:
    rows = [a for a in examples(opcode) if a.operation != "cas"]
    rows = [a for a in rows if (a.count == 1) == scalar]
    for start in range(0, len(rows), 24):
        part = rows[start : start + 24]
        body = [f"rem.u32 %r3, %r1, {WORDS};"]
        for number, a in enumerate(part):
            body += _atomic_text(a, number, opcode)
        module = Module(text_of(body), opt=0)
        given = np.concatenate([operands(a) for a in part])
        for lanes in (32, 20):
            out = np.zeros((len(part), 2048), "u1")
            for number, a in enumerate(part):
                out[number, :96] = operands(a)[-96:]
            before = out.copy()
            launch(module, given.copy(), out, SLOT, lanes)
            for number, a in enumerate(part):
                check_atomic(a, operands(a), before[number], out[number], lanes, opcode)


def check_atomic(
    a: Access, given: np.ndarray, before: np.ndarray, after: np.ndarray, lanes: int, opcode: str
) -> None:
    step = step_of(a)
    words = [[element(before, a, SLOT * w, k) for k in range(a.count)] for w in range(WORDS)]
    for lane in range(lanes):
        word = words[lane % WORDS]
        for k in range(a.count):
            x = element(given, a, lane * SLOT, k)
            if opcode == "atom":
                old = element(after, a, 1024 + lane * SLOT, k)
                assert old == word[k], (a.form, lane, k, hex(old), hex(word[k]))
            word[k] = step(word[k], x)
    for w, word in enumerate(words):
        for k, value in enumerate(word):
            assert element(after, a, SLOT * w, k) == value, (a.form, w, k)
        rest = slice(SLOT * w + a.bytes, SLOT * (w + 1))
        assert np.array_equal(after[rest], before[rest]), a.form


def test_every_compare_and_swap() -> None:
    """All lanes try to replace the word by their own: the first whose guess is right does."""
    rows = [a for a in examples("atom") if a.operation == "cas"]
    letters = {2: "%h", 4: "%r", 8: "%d", 16: "%q"}
    for start in range(0, len(rows), 24):
        part = rows[start : start + 24]
        body = []
        for number, a in enumerate(part):
            x, y, z = (f"{letters[a.size]}{k + (5 if a.size == 4 else 40 if a.size == 8 else 1)}"
                       for k in range(3))  # fmt: skip
            # compare with lane, replace by lane + 1
            body.append("cvt.u64.u32 %d70, %r1; add.u64 %d71, %d70, 1; mov.b64 %d72, 0;")
            if a.size == 16:
                body.append(f"mov.b128 {x}, {{%d70, %d72}}; mov.b128 {y}, {{%d71, %d72}};")
            else:
                kind = {2: "u16", 4: "u32", 8: "u64"}[a.size]
                body.append(f"cvt.{kind}.u64 {x}, %d70; cvt.{kind}.u64 {y}, %d71;")
            body.append(f"add.u64 %d32, %d1, {2048 * number};")
            base = "%d32"
            if a.inner == "shared":
                body.append("mov.u64 %d33, words; st.shared.b64 [words], 5;")
                body.append("st.shared.b64 [words+8], 0; bar.sync 0;")
                base = "%d33"
            body.append(f"{a.form} {z}, [{base}], {x}, {y}{a.policy};")
            body.append("add.u64 %d36, %d32, 1024; add.u64 %d36, %d36, %d3;")
            body.append(f"st.global.b{8 * a.size} [%d36], {z};")
            if a.inner == "shared":
                body.append("bar.sync 0; ld.shared.b64 %d70, [words]; st.global.b64 [%d32], %d70;")
        out = np.zeros((len(part), 2048), "u1")
        out[:, 0] = 5
        launch(Module(text_of(body), opt=0), data().copy(), out, SLOT, 32)
        for number, a in enumerate(part):
            olds = [element(out[number], a, 1024 + lane * SLOT, 0) for lane in range(32)]
            assert olds == [5] * 6 + list(range(6, 32)), a.form
            assert element(out[number], a, 0, 0) == 32, a.form
