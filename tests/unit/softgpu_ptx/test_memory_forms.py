"""Loads, stores, address spaces, range checks, atomics."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.softgpu_ptx.harness import Module, arena
from tests.unit.softgpu_ptx.reference import F32, signed, unsigned

HEAD = ".version 8.7\n.target sm_120\n.address_size 64\n"
REGS = """
.reg .pred %p<9>; .reg .b16 %h<40>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<20>;
.reg .f64 %g<20>;
mov.u32 %r1, %tid.x; cvt.u64.u32 %d9, %r1;
"""
ILLEGAL, MISALIGNED, TRAP = 1, 2, 3


@functools.cache
def kernel(body: str, params: int = 2, module: str = "", locals_: str = "") -> Module:
    """A kernel ``t`` whose 64-bit parameters arrive in %d0, %d1, ..."""
    names = ", ".join(f".param .u64 p{k}" for k in range(params))
    loads = " ".join(f"ld.param.u64 %d{k}, [p{k}];" for k in range(params))
    text = (
        f"{HEAD}{module}\n.visible .entry t({names}) {{ {locals_} {REGS} {loads}\n{body}\nret; }}"
    )
    return Module(text)


def run(body: str, *args: np.ndarray | int, block: int = 32, **options: str) -> int:
    module = kernel(body, len(args), **options)
    return int(module.launch("t", (1,), (block,), list(args)).kind)


TYPES = [
    "b8",
    "u8",
    "s8",
    "b16",
    "u16",
    "s16",
    "b32",
    "u32",
    "s32",
    "b64",
    "u64",
    "s64",
    "f32",
    "f64",
]


@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_every_type_is_extended_by_its_sign(space: str) -> None:
    """Store with the type's width, load into the widest register."""
    lines, space_text = [], "" if space == "generic" else f".{space}"
    base = {"global": "%d20", "generic": "%d20", "shared": "%d21", "local": "buffer"}[space]
    for k, kind in enumerate(TYPES):
        width = int(kind[1:])
        wide = "%g1" if kind == "f64" else "%f1" if kind == "f32" else "%d5"
        source = "%g0" if kind == "f64" else "%f0" if kind == "f32" else "%d4"
        lines.append(f"st{space_text}.{kind} [{base}+8], {source};")
        if kind in ("f32", "f64"):
            lines.append(f"ld{space_text}.{kind} {wide}, [{base}+8];")
            lines.append(f"st.global.b{width} [%d3+{8 * k}], {wide};")
        else:
            lines.append(
                f"ld{space_text}.{kind} %d5, [{base}+8]; st.global.b64 [%d3+{8 * k}], %d5;"
            )
    body = f"""
    mul.wide.u32 %d2, %r1, {8 * len(TYPES)}; add.u64 %d3, %d1, %d2;
    mul.wide.u32 %d2, %r1, 8; add.u64 %d4, %d0, %d2; ld.global.u64 %d4, [%d4];
    mov.b64 %g0, %d4; cvt.u32.u64 %r5, %d4; mov.b32 %f0, %r5;
    mul.wide.u32 %d2, %r1, 16; mov.u64 %d21, words; add.u64 %d21, %d21, %d2;
    add.u64 %d20, %d0, 1024;
    add.u64 %d20, %d20, %d2;
    """ + "\n".join(lines)
    values = np.random.default_rng(3).integers(0, 1 << 63, 256, dtype="u8") * np.uint64(2)
    values[:4] = [0x80, 0x8000, 0x80000000, 1 << 63]
    out = np.zeros((32, len(TYPES)), "u8")
    places = ".shared .align 16 .b8 words[528]; .local .align 8 .b8 buffer[24];"
    assert run(body, values.copy(), out, locals_=places) == 0
    for lane in range(32):
        for k, kind in enumerate(TYPES):
            width, raw = int(kind[1:]), int(values[lane])
            want = unsigned(signed(raw, width), 64) if kind[0] == "s" else unsigned(raw, width)
            assert int(out[lane, k]) == want, (lane, kind)


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(("vector", "kind"), [(2, "u8"), (4, "u8"), (2, "b16"), (4, "u16"),
                                              (2, "f32"), (4, "b32"), (2, "u64")])  # fmt: skip
@pytest.mark.parametrize("active", ["1", "{lane} != 5", "{lane} == 3 || {lane} == 20"])
def test_vectors(space: str, vector: int, kind: str, active: str) -> None:
    """Full warps take the inline path, others the helpers."""
    width = int(kind[1:])
    size, letter = vector * width // 8, {8: "h", 16: "h", 32: "r", 64: "d"}[width]
    items = ", ".join(f"%{letter}{30 + k}" for k in range(vector))
    guard = {
        "1": "setp.eq.u32 %p1, 0, 0;",
        "{lane} != 5": "setp.ne.u32 %p1, %r1, 5;",
        "{lane} == 3 || {lane} == 20": "setp.eq.u32 %p1, %r1, 3; setp.eq.or.u32 %p1, %r1, 20, %p1;",
    }[active]
    body = f"""
    mul.wide.u32 %d2, %r1, {size}; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    mov.u64 %d5, words; add.u64 %d6, %d5, %d2; {guard}
    @%p1 ld.global.v{vector}.{kind} {{{items}}}, [%d3];
    {f"@%p1 st.shared.v{vector}.{kind} [%d6], {{{items}}};" if space == "shared" else ""}
    {f"@%p1 ld.shared.v{vector}.{kind} {{{items}}}, [%d6];" if space == "shared" else ""}
    @%p1 st.global.v{vector}.{kind} [%d4], {{{items}}};
    """
    data = np.random.default_rng(1).integers(0, 256, 32 * size).astype("u1")
    out = np.zeros_like(data)
    assert run(body, data, out, locals_=".shared .align 16 .b8 words[512];") == 0
    on = [eval(active.format(lane=k).replace("||", "or")) for k in range(32)]
    want = np.where(np.repeat(on, size), data, 0)
    assert np.array_equal(out, want)


LOAD_PATTERNS = [
    "8",
    "(i * 7) % 32",
    "i // 2",
    "i // 16",
    "i % 16",
    "31 - i",
    "i + (i > 7)",
    "16 * (i // 16)",
    "i + 64 * (i // 16)",
]


@pytest.mark.parametrize("pattern", LOAD_PATTERNS)
@pytest.mark.parametrize("kind", ["u8", "b16", "b32", "b64"])
def test_address_patterns(pattern: str, kind: str) -> None:
    """Contiguous, uniform, by halves, scattered: the same result by every path, all masks."""
    size = int(kind[1:]) // 8
    letter = {1: "h", 2: "h", 4: "r", 8: "d"}[size]
    body = f"""
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];
    mul.wide.u32 %d4, %r2, {size}; add.u64 %d5, %d0, %d4; mul.lo.u32 %r3, %r2, {size};
    mov.u32 %r4, words; add.u32 %r5, %r4, %r3;
    ld.global.u32 %r6, [%d3+128]; setp.ne.u32 %p1, %r6, 0;
    mov.b{max(8 * size, 16)} %{letter}31, 0;
    @%p1 ld.global.{kind} %{letter}30, [%d5];
    @%p1 st.shared.{kind} [%r5], %{letter}30;
    @%p1 ld.shared.{kind} %{letter}31, [%r5];
    mul.wide.u32 %d6, %r1, {size}; add.u64 %d8, %d0, %d6;
    st.global.{kind} [%d8+2048], %{letter}31;
    """
    rng = np.random.default_rng(2)
    for active in ([1] * 32, [1] * 20 + [0] * 12, [0] * 3 + [1] * 29, [1] * 16 + [0] * 16,
                   [k % 3 == 0 for k in range(32)], [0] * 32):  # fmt: skip
        index = np.array([eval(pattern, {"i": i}) for i in range(32)], "u4")
        data = rng.integers(0, 256, 4096).astype("u1")
        before = data.view(f"u{size}").copy()
        control = np.concatenate([index, np.array(active, "u4")])
        assert run(body, data, control, locals_=".shared .align 16 .b8 words[1024];") == 0
        got = data.view(f"u{size}")[2048 // size :][:32]
        want = np.where(active, before[index], 0)
        assert np.array_equal(got, want), active


STORE_PATTERNS = ["i", "(i * 5) % 32", "i + 32 * (i // 16)", "7", "i // 2"]


@pytest.mark.parametrize("pattern", STORE_PATTERNS)
def test_conflicting_stores_keep_one_value_and_order(pattern: str) -> None:
    body = """
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];
    mul.wide.u32 %d4, %r2, 4; add.u64 %d5, %d0, %d4; add.u32 %r3, %r1, 100;
    st.global.u32 [%d5], %r3;
    """
    index = np.array([eval(pattern, {"i": i}) for i in range(32)], "u4")
    out = np.zeros(80, "u4")
    assert run(body, out, index) == 0
    want = np.zeros(80, "u4")
    for lane, place in enumerate(index):
        want[place] = lane + 100
    assert np.array_equal(out, want)


@pytest.mark.parametrize("words", ["", ".weak", ".volatile", ".relaxed.gpu", ".relaxed.sys"])
def test_orders_and_cache_operators_do_not_change_values(words: str) -> None:
    release = {".relaxed.gpu": ".release.gpu", ".relaxed.sys": ".release.cta"}.get(words, words)
    acquire = {".relaxed.sys": ".acquire.gpu"}.get(words, words)
    cache = ".cg" if words == "" else ""
    body = f"""
    mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
    ld{acquire}.global{cache}.u32 %r2, [%d3]; st{release}.global.u32 [%d4], %r2;
    ld.global.nc.L1::no_allocate.L2::128B.u32 %r3, [%d3]; st.global.cs.u32 [%d4+128], %r3;
    """
    data, out = np.arange(32, dtype="u4"), np.zeros(64, "u4")
    assert run(body, data, out) == 0
    assert np.array_equal(out, np.tile(data, 2))


# ---------------------------------------------------------------------- address spaces
def test_generic_addresses_of_windows_and_isspacep() -> None:
    spaces = ["global", "shared", "local", "const", "param"]
    checks = "\n".join(
        f"isspacep.{s} %p1, %d{20 + a}; selp.u32 %r2, 1, 0, %p1;"
        f" st.global.u32 [%d1+{4 * (5 * a + k)}], %r2;"
        for a in range(5)
        for k, s in enumerate(spaces)
    )
    body = f"""
    mov.u64 %d20, %d0;
    mov.u64 %d2, words; cvta.shared.u64 %d21, %d2; mov.u64 %d3, buffer; cvta.local.u64 %d22, %d3;
    mov.u64 %d23, table; mov.b64 %d4, p0; cvta.param.u64 %d24, %d4; {checks}
    st.shared.u32 [words], 77; ld.u32 %r3, [%d21]; st.global.u32 [%d1+100], %r3;
    st.local.u32 [buffer+4], %r1; ld.u32 %r4, [%d22+4];
    mul.wide.u32 %d5, %r1, 4; add.u64 %d6, %d1, %d5; st.global.u32 [%d6+104], %r4;
    ld.u64 %d7, [%d24]; sub.u64 %d8, %d7, %d0; st.global.u64 [%d1+240], %d8;
    cvta.to.shared.u64 %d10, %d21; st.global.u64 [%d1+248], %d10;
    ld.const.u32 %r5, [table+4]; st.global.u32 [%d1+256], %r5;
    """
    out = np.zeros(66, "u4")
    places = ".shared .align 4 .b32 words[4]; .local .align 4 .b32 buffer[4];"
    module = ".const .align 4 .u32 table[3] = {5, 6, 7};"
    assert run(body, np.zeros(4, "u4"), out, module=module, locals_=places) == 0
    assert out[:25].reshape(5, 5).tolist() == np.eye(5, dtype=int).tolist()
    assert out[25] == 77
    assert out[26:58].tolist() == list(range(32))
    assert out[60:64].tolist() == [0, 0, 0, 0]
    assert out[64] == 6


# ---------------------------------------------------------------------- faults
FAULTS = [
    ("ld.global.u32 %r2, [%d1];", 0, ILLEGAL),
    ("ld.global.u32 %r2, [%d0+2];", None, MISALIGNED),
    ("ld.global.v4.u32 {%r2,%r3,%r4,%r5}, [%d0+8];", None, MISALIGNED),
    ("ld.u64 %d2, [%d1];", 0x7FFF00000000, ILLEGAL),
    ("st.global.u8 [%d1], %r1;", "hi", ILLEGAL),
    ("st.global.u64 [%d1], %d9;", "hi-4", MISALIGNED),
    ("ld.global.u32 %r2, [%d1];", "lo-4", ILLEGAL),
    ("atom.global.add.u32 %r2, [%d1], 1;", 64, ILLEGAL),
    ("atom.global.add.u64 %d2, [%d0+4], 1;", None, MISALIGNED),
    ("ld.shared.u32 %r2, [64];", None, ILLEGAL),
    ("mov.u32 %r2, 0xfffffffc; ld.shared.u32 %r3, [%r2];", None, ILLEGAL),
    ("st.shared.u32 [words+62], %r1;", None, MISALIGNED),
    ("atom.shared.exch.b32 %r2, [%r3+4096], %r1;", None, ILLEGAL),
    ("ld.local.u32 %r2, [buffer+16];", None, ILLEGAL),
    ("mov.u64 %d2, buffer; ld.local.u32 %r3, [%d2+-4];", None, ILLEGAL),
    ("mov.u64 %d2, -8; ld.local.u64 %d3, [%d2];", None, ILLEGAL),
    ("mov.b64 %d2, p0; ld.param.u64 %d3, [%d2+64];", None, ILLEGAL),
    ("mov.b64 %d2, p0; cvta.param.u64 %d3, %d2; st.u32 [%d3], %r1;", None, ILLEGAL),
    ("mov.u64 %d2, words; cvta.shared.u64 %d3, %d2; ld.u32 %r2, [%d3+64];", None, ILLEGAL),
    ("mov.u64 %d2, words; cvta.shared.u64 %d3, %d2; ld.global.u32 %r2, [%d3+-4];", None, ILLEGAL),
    ("trap;", None, TRAP),
]


@pytest.mark.parametrize(("body", "where", "kind"), FAULTS)
def test_faults(body: str, where: int | str | None, kind: int) -> None:
    """Each instruction for a full warp and for one lane only."""
    space = arena()
    address = {"hi": space.hi, "hi-4": space.hi - 4, "lo-4": space.lo - 4}.get(where, where)  # type: ignore[call-overload]
    places = ".shared .align 16 .b8 words[64]; .local .align 8 .b8 buffer[16];"
    first, _, last = body.rpartition("; ")
    for guard in ("", "setp.eq.u32 %p1, %r1, 9; @%p1 "):
        prefix = f"{first}; " if first else ""
        assert run(f"mov.u32 %r3, 0; {prefix}{guard}{last}", np.zeros(64, "u4"), address or 0,
                   locals_=places) == kind  # fmt: skip


def test_inactive_lanes_touch_nothing() -> None:
    body = """
    setp.lt.u32 %p1, %r1, 4; mul.wide.u32 %d2, %r1, 0x10000000; add.u64 %d3, %d0, %d2;
    setp.eq.u32 %p2, %r1, 0;
    @!%p1 bra SKIP; @%p2 st.global.u32 [%d3], 5;
    SKIP:
    """
    out = np.zeros(4, "u4")
    assert run(body, out, 0) == 0
    assert out[0] == 5


def test_pinned_memory_is_allowed() -> None:
    """The second window: host memory registered with the driver."""
    host = np.arange(64, dtype="u4")
    module = kernel("ld.global.u32 %r2, [%d0]; st.global.u32 [%d1], %r2;")
    assert module.launch("t", (1,), (32,), [host.ctypes.data, np.zeros(1, "u4")]).kind == ILLEGAL


# ---------------------------------------------------------------------- atomics
def _float_add(kind: str, flush: bool = False) -> Callable[[int, int], int]:
    real = {"f32": "f4", "f64": "f8"}[kind]
    bits = "u" + real[1]

    def add(v: int, x: int) -> int:
        if flush:
            v, x = F32.flush(v), F32.flush(x)
        a, b = (np.array(k, bits).view(real) for k in (v, x))
        total = int((a + b).astype(real).view(bits))
        return F32.flush(total) if flush else total

    return add


def _atomics(space: str) -> list[tuple[str, str, Callable[[int, int], int]]]:
    rows: list[tuple[str, str, Callable[[int, int], int]]] = []
    for w in (32, 64):
        m = (1 << w) - 1
        rows += [
            ("add", f"u{w}", lambda v, x, m=m: v + x & m),
            ("and", f"b{w}", lambda v, x: v & x),
            ("or", f"b{w}", lambda v, x: v | x),
            ("xor", f"b{w}", lambda v, x: v ^ x),
            ("exch", f"b{w}", lambda v, x: x),
            ("min", f"u{w}", min),
            ("max", f"u{w}", max),
            ("min", f"s{w}", lambda v, x, w=w: min(v, x, key=lambda k: signed(k, w))),
            ("max", f"s{w}", lambda v, x, w=w: max(v, x, key=lambda k: signed(k, w))),
        ]
    rows += [
        ("add", "s32", lambda v, x: v + x & 0xFFFFFFFF),
        ("inc", "u32", lambda v, x: 0 if v >= x else v + 1),
        ("dec", "u32", lambda v, x: x if v == 0 or v > x else v - 1),
        # in global memory subnormals are flushed
        ("add", "f32", _float_add("f32", space != "shared")),
        ("add", "f64", _float_add("f64")),
    ]
    return rows


@pytest.mark.parametrize("space", ["global", "shared", ""])
@pytest.mark.parametrize("guarded", [False, True])
def test_atomics(space: str, guarded: bool) -> None:
    """Every operation on three words shared by the lanes, in lane order; old values returned."""
    rows = _atomics(space)
    text = []
    dot = f".{space}" if space else ""
    for k, (op, kind, _) in enumerate(rows):
        width = int(kind[1:])
        r = {32: "%r", 64: "%d"}[width]
        setup = f"ld.global.b{width} {r}20, [%d3]; cvt.u64.u32 %d21, %r2; shl.b64 %d21, %d21, 3;"
        where = f"add.u64 %d22, %d1, {4096 + 64 * k}; add.u64 %d22, %d22, %d21;"
        if space == "shared":
            where = f"mov.u64 %d22, words; add.u64 %d22, %d22, {64 * k}; add.u64 %d22, %d22, %d21;"
        prefix = ["", ".relaxed.gpu", ".acq_rel.cta"][k % 3] + dot
        if dot and k % 2:  # as Triton writes it
            prefix = dot + [".gpu.acq_rel", ".release.cta", ".sys.relaxed"][k % 3]
        guard = "@%p1 " if guarded else ""
        text.append(
            f"{setup} {where} mov.b{width} {r}24, 0;"
            f"{guard}atom{prefix}.{op}.{kind} {r}24, [%d22], {r}20;"
            f"st.global.b{width} [%d4+{8 * 32 * k}], {r}24;"
        )
        if op not in ("exch",):
            text.append(f"{guard}red{dot}.{op}.{kind} [%d22], {r}20;")
        if space == "shared":
            text.append(f"ld.shared.b{width} {r}25, [%d22]; add.u64 %d26, %d1, %d21;")
            text.append(f"st.global.b{width} [%d26+{4096 + 64 * k}], {r}25;")
    size = 64 * len(rows)
    body = """
    rem.u32 %r2, %r1, 3; setp.ne.u32 %p1, %r1, 7;
    mul.wide.u32 %d2, %r1, 8; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2; add.u64 %d4, %d4, 16384;
    """ + "\n".join(text)
    rng = np.random.default_rng(4)
    operands = rng.integers(0, 1 << 63, 32, dtype="u8") * np.uint64(2) + np.uint64(1)
    operands[::5] &= np.uint64(0xFFFFFFFF0000000F)
    for k in range(32):  # numbers of moderate size for the floating rows
        if k % 2:
            low = int(np.array(rng.standard_normal(), "f4").view("u4"))
            operands[k] = (
                np.array(rng.standard_normal(), "f8").view("u8") & np.uint64(0xFFFFFFFF00000000)
                | low
            )
    memory = np.zeros(16384 + 8 * 32 * len(rows), "u1")
    if space == "shared":
        zero = f"""
        mov.u32 %r50, %tid.x;
        ZERO: mov.u64 %d50, words; mul.wide.u32 %d51, %r50, 8; add.u64 %d50, %d50, %d51;
        st.shared.u64 [%d50], 0; add.u32 %r50, %r50, 32; setp.lt.u32 %p8, %r50, {size // 8};
        @%p8 bra ZERO; bar.sync 0;
        """
        body = zero + body
    places = f".shared .align 8 .b8 words[{size}];"
    assert run(body, operands.copy(), memory, locals_=places) == 0
    lanes = [k for k in range(32) if not guarded or k != 7]
    for k, (op, kind, step) in enumerate(rows):
        width = int(kind[1:])
        mask = (1 << width) - 1
        words = [0, 0, 0]
        olds = memory[16384 + 8 * 32 * k :][: 8 * 32].view("u8")
        for lane in lanes:
            x, place = int(operands[lane]) & mask, lane % 3
            assert int(olds[lane]) & mask == words[place], (op, kind, lane)
            words[place] = step(words[place], x)
        if op != "exch":
            for lane in lanes:
                words[lane % 3] = step(words[lane % 3], int(operands[lane]) & mask)
        left = [int(v) & mask for v in memory[4096 + 64 * k :][:24].view("u8")]
        assert left == words, (op, kind)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_compare_and_swap(width: int) -> None:
    r = {16: "%h", 32: "%r", 64: "%d"}[width]
    body = f"""
    cvt.u{width}.u32 {r}20, %r1; add.u{width} {r}21, {r}20, 1;
    atom.global.cas.b{width} {r}22, [%d0], {r}20, {r}21;
    mul.wide.u32 %d2, %r1, 8; add.u64 %d3, %d1, %d2; st.global.b{width} [%d3], {r}22;
    atom.acquire.gpu.global.cas.b{width} {r}22, [%d0+8], {r}21, {r}20;
    """
    word, old = np.zeros(2, "u8"), np.zeros(32, "u8")
    word[1] = 5
    assert run(body, word, old) == 0
    assert old.tolist() == list(range(32))
    # the chain counts up; the other word changes once, when the lane with 5 comes
    assert word.tolist() == [32, 4]


def test_half_atomics() -> None:
    body = """
    mov.b16 %h1, 0x3C00; mov.b32 %r2, 0x3C004000; mov.b16 %h2, 0x3F80;
    red.global.add.noftz.f16 [%d0], %h1; atom.global.add.noftz.f16x2 %r3, [%d0+4], %r2;
    atom.global.add.noftz.bf16 %h3, [%d0+8], %h2;
    """
    memory = np.zeros(16, "u1")
    assert run(body, memory) == 0
    assert memory.view("f2")[:4].tolist() == [32.0, 0.0, 64.0, 32.0]
    assert memory.view("u2")[4] == 0x4200  # 32 in bf16
