"""Integer and bit forms against Python's integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.unit.softgpu_ptx.formrun import Row, check, edges, table
from tests.unit.softgpu_ptx.reference import signed as sx
from tests.unit.softgpu_ptx.reference import unsigned as ux

SIZES = (16, 32, 64)


def value(bits: int, kind: str) -> int:
    """A raw operand as the type's number."""
    width = int(kind[1:])
    return sx(bits, width) if kind[0] == "s" else ux(bits, width)


def quotient(x: int, y: int) -> int:
    q = abs(x) // abs(y)
    return -q if (x < 0) != (y < 0) else q


def divide(kind: str, rest: bool, a: int, b: int) -> int:
    x, y, width = value(a, kind), value(b, kind), int(kind[1:])
    if y == 0:
        return ux(a if rest else -1, width)
    return ux(x - quotient(x, y) * y if rest else quotient(x, y), width)


def arithmetic() -> Iterator[Row]:
    for size in SIZES:
        for sign in "su":
            k = f"{sign}{size}"
            two, three = (k, k), (k, k, k)
            w = size

            def v(bits: int, k: str = k) -> int:
                return value(bits, k)

            yield Row(f"add.{k}", two, k, lambda a, b, w=w: ux(a + b, w))
            yield Row(f"sub.{k}", two, k, lambda a, b, w=w: ux(a - b, w))
            yield Row(f"mul.lo.{k}", two, k, lambda a, b, w=w: ux(a * b, w))
            yield Row(f"mul.hi.{k}", two, k, lambda a, b, v=v, w=w: ux(v(a) * v(b) >> w, w))
            yield Row(f"mad.lo.{k}", three, k, lambda a, b, c, w=w: ux(a * b + c, w))
            yield Row(
                f"mad.hi.{k}", three, k, lambda a, b, c, v=v, w=w: ux((v(a) * v(b) >> w) + c, w)
            )
            yield Row(f"div.{k}", two, k, lambda a, b, k=k: divide(k, False, a, b))
            yield Row(f"rem.{k}", two, k, lambda a, b, k=k: divide(k, True, a, b))
            yield Row(f"min.{k}", two, k, lambda a, b, v=v, w=w: ux(min(v(a), v(b)), w))
            yield Row(f"max.{k}", two, k, lambda a, b, v=v, w=w: ux(max(v(a), v(b)), w))
            yield Row(f"sad.{k}", three, k, lambda a, b, c, v=v, w=w: ux(c + abs(v(a) - v(b)), w))
            if size < 64:
                d = f"{sign}{2 * size}"
                yield Row(f"mul.wide.{k}", two, d, lambda a, b, v=v, w=w: ux(v(a) * v(b), 2 * w))
                yield Row(
                    f"mad.wide.{k}",
                    (k, k, d),
                    d,
                    lambda a, b, c, v=v, w=w: ux(v(a) * v(b) + c, 2 * w),
                )
            if sign == "s":
                yield Row(f"abs.{k}", (k,), k, lambda a, v=v, w=w: ux(abs(v(a)), w))
                yield Row(f"neg.{k}", (k,), k, lambda a, w=w: ux(-a, w))


def clamp32(x: int) -> int:
    return ux(max(-(1 << 31), min((1 << 31) - 1, x)), 32)


def low24(bits: int, sign: str) -> int:
    return sx(bits, 24) if sign == "s" else ux(bits, 24)


def halves(bits: int, sign: str) -> list[int]:
    return [sx(bits >> s, 16) if sign == "s" else ux(bits >> s, 16) for s in (0, 16)]


def join16(parts: list[int]) -> int:
    return ux(parts[0], 16) | ux(parts[1], 16) << 16


def special_arithmetic() -> Iterator[Row]:
    s, ss = ("s32", "s32"), ("s32", "s32", "s32")
    yield Row("add.sat.s32", s, "s32", lambda a, b: clamp32(sx(a, 32) + sx(b, 32)))
    yield Row("sub.sat.s32", s, "s32", lambda a, b: clamp32(sx(a, 32) - sx(b, 32)))
    yield Row(
        "mad.hi.sat.s32",
        ss,
        "s32",
        lambda a, b, c: clamp32((sx(a, 32) * sx(b, 32) >> 32) + sx(c, 32)),
    )
    for sign in "su":
        k = f"{sign}32"
        for half, shift in (("lo", 0), ("hi", 16)):
            yield Row(
                f"mul24.{half}.{k}",
                (k, k),
                k,
                lambda a, b, sign=sign, shift=shift: ux(
                    low24(a, sign) * low24(b, sign) >> shift, 32
                ),
            )
            yield Row(
                f"mad24.{half}.{k}",
                (k, k, k),
                k,
                lambda a, b, c, sign=sign, shift=shift: ux(
                    (low24(a, sign) * low24(b, sign) >> shift) + c, 32
                ),
            )
        p = f"{sign}16x2"
        for op, f in (
            ("add", lambda x, y: x + y),
            ("sub", lambda x, y: x - y),
            ("min", min),
            ("max", max),
        ):
            yield Row(
                f"{op}.{p}",
                (p, p),
                p,
                lambda a, b, f=f, sign=sign: join16(
                    [f(x, y) for x, y in zip(halves(a, sign), halves(b, sign), strict=True)]
                ),
            )
    yield Row(
        "mad24.hi.sat.s32",
        ss,
        "s32",
        lambda a, b, c: clamp32(sx(low24(a, "s") * low24(b, "s") >> 16, 32) + sx(c, 32)),
    )
    for op, f in (("min", min), ("max", max)):
        yield Row(f"{op}.relu.s32", s, "s32", lambda a, b, f=f: max(0, f(sx(a, 32), sx(b, 32))))
        yield Row(
            f"{op}.relu.s16x2",
            ("s16x2", "s16x2"),
            "s16x2",
            lambda a, b, f=f: join16(
                [max(0, f(x, y)) for x, y in zip(halves(a, "s"), halves(b, "s"), strict=True)]
            ),
        )
    for left in "us":
        for right in "us":
            types = (f"{left}32", f"{right}32", "s32")
            yield Row(
                f"dp4a.{left}32.{right}32",
                types,
                "b32",
                lambda a, b, c, left=left, right=right: ux(
                    c
                    + sum(
                        value(a >> s & 255, f"{left}8") * value(b >> s & 255, f"{right}8")
                        for s in (0, 8, 16, 24)
                    ),
                    32,
                ),
            )
            for half, start in (("lo", 0), ("hi", 16)):
                yield Row(
                    f"dp2a.{half}.{left}32.{right}32",
                    types,
                    "b32",
                    lambda a, b, c, left=left, right=right, start=start: ux(
                        c
                        + sum(
                            halves(a, left)[k] * value(b >> start + 8 * k & 255, f"{right}8")
                            for k in (0, 1)
                        ),
                        32,
                    ),
                )


def carry_chains() -> Iterator[Row]:
    """Each row is a chain that spans two words; the second word shows the carry."""
    for size in (32, 64):
        for sign in "us":
            k = f"{sign}{size}"
            w = size
            mask = (1 << w) - 1
            text = f"add.cc.{k} {{d}}, {{a}}, {{b}}; addc.{k} {{d}}, {{b}}, {{c}};"
            yield Row(
                f"addc.{k}",
                (k, k, k),
                k,
                lambda a, b, c, w=w, m=mask: (b + c + ((a + b) >> w)) & m,
                text,
            )
            text = (
                f"add.cc.{k} {{d}}, {{a}}, {{b}}; addc.cc.{k} {{d}}, {{b}}, {{c}};"
                f" addc.{k} {{d}}, {{a}}, 0;"
            )
            yield Row(
                f"addc.cc.{k}",
                (k, k, k),
                k,
                lambda a, b, c, w=w, m=mask: (a + ((b + c + ((a + b) >> w)) >> w)) & m,
                text,
            )
            text = f"sub.cc.{k} {{d}}, {{a}}, {{b}}; subc.{k} {{d}}, {{b}}, {{c}};"
            yield Row(
                f"subc.{k}",
                (k, k, k),
                k,
                lambda a, b, c, m=mask: (b - c - (a < b)) & m,
                text,
            )
            text = (
                f"sub.cc.{k} {{d}}, {{a}}, {{b}}; subc.cc.{k} {{d}}, {{b}}, {{c}};"
                f" subc.{k} {{d}}, {{a}}, 0;"
            )
            yield Row(
                f"subc.cc.{k}",
                (k, k, k),
                k,
                lambda a, b, c, m=mask: (a - (b - c - (a < b) < 0)) & m,
                text,
            )
            for half in ("lo", "hi"):

                def part(a: int, b: int, k: str = k, half: str = half, w: int = w) -> int:
                    product = value(a, k) * value(b, k)
                    return ux(product if half == "lo" else product >> w, w)

                text = (
                    f"mad.{half}.cc.{k} {{d}}, {{a}}, {{b}}, {{c}};"
                    f" madc.{half}.{k} {{d}}, {{b}}, {{c}}, {{a}};"
                )
                yield Row(
                    f"madc.{half}.{k}",
                    (k, k, k),
                    k,
                    lambda a, b, c, p=part, w=w, m=mask: (p(b, c) + a + ((p(a, b) + c) >> w)) & m,
                    text,
                )
                text = (
                    f"mad.{half}.cc.{k} {{d}}, {{a}}, {{b}}, {{c}};"
                    f" madc.{half}.cc.{k} {{d}}, {{b}}, {{c}}, {{a}}; addc.{k} {{d}}, {{c}}, {{b}};"
                )
                yield Row(
                    f"madc.{half}.cc.{k}",
                    (k, k, k),
                    k,
                    lambda a, b, c, p=part, w=w, m=mask: (
                        (c + b + ((p(b, c) + a + ((p(a, b) + c) >> w)) >> w)) & m
                    ),
                    text,
                )


def tables(rows: list[Row], count: int) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
    return {inputs: table(inputs, count) for inputs in {r.inputs for r in rows}}


def test_arithmetic() -> None:
    rows = list(arithmetic())
    assert check(rows, tables(rows, 400)) > 20000


def test_special_arithmetic() -> None:
    rows = list(special_arithmetic())
    assert check(rows, tables(rows, 300)) > 8000


def test_carry_chains() -> None:
    rows = list(carry_chains())
    assert check(rows, tables(rows, 500)) > 10000


# ---------------------------------------------------------------------- bits
def bit_field(kind: str, a: int, b: int, c: int) -> int:
    """The definition in the PTX manual, bit by bit."""
    width = int(kind[1:])
    start, length = b & 255, c & 255
    top = width - 1
    sign = 0
    if kind[0] == "s" and length:
        sign = a >> min(start + length - 1, top) & 1
    return sum(
        ((a >> start + k & 1) if k < length and start + k <= top else sign) << k
        for k in range(width)
    )


def bit_insert(width: int, a: int, b: int, c: int, x: int) -> int:
    start, length = c & 255, x & 255
    result = b
    for k in range(length):
        if start + k < width:
            result = result & ~(1 << start + k) | (a >> k & 1) << start + k
    return result


def leading(bits: int, width: int, sign: str) -> int:
    """Position of the most significant bit that is no sign bit, or -1."""
    if sign == "s" and bits >> (width - 1):
        bits = ~bits & ((1 << width) - 1)
    return bits.bit_length() - 1


def permute(mode: str, a: int, b: int, c: int) -> int:
    source = [(a >> 8 * k) & 255 for k in range(4)] + [(b >> 8 * k) & 255 for k in range(4)]
    if not mode:
        parts = []
        for k in range(4):
            nibble = c >> 4 * k & 15
            byte = source[nibble & 7]
            parts.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    else:
        n = c & 3
        picks = {
            "f4e": [n, n + 1, n + 2, n + 3],
            "b4e": [n, n - 1 & 7, n - 2 & 7, n - 3 & 7],
            "rc8": [n] * 4,
            "ecl": [max(k, n) for k in range(4)],
            "ecr": [min(k, n) for k in range(4)],
            "rc16": [0, 1, 0, 1] if n in (0, 2) else [2, 3, 2, 3],
        }[mode]
        parts = [source[p] for p in picks]
    return sum(p << 8 * k for k, p in enumerate(parts))


def find_nth(mask: int, base: int, offset: int) -> int:
    """The n-th set bit at or beyond the base; upwards, or downwards for a negative n."""
    steps = sx(offset, 32)
    if base > 31:
        return ux(-1, 32)
    if steps == 0:
        return base if mask >> base & 1 else ux(-1, 32)
    places = range(base, 32) if steps > 0 else range(base, -1, -1)
    found = [p for p in places if mask >> p & 1]
    return found[abs(steps) - 1] if len(found) >= abs(steps) else ux(-1, 32)


def bit_rows() -> Iterator[Row]:
    for w in SIZES:
        k, m = f"b{w}", (1 << w) - 1
        yield Row(f"and.{k}", (k, k), k, lambda a, b: a & b)
        yield Row(f"or.{k}", (k, k), k, lambda a, b: a | b)
        yield Row(f"xor.{k}", (k, k), k, lambda a, b: a ^ b)
        yield Row(f"not.{k}", (k,), k, lambda a, m=m: ~a & m)
        yield Row(f"cnot.{k}", (k,), k, lambda a: int(a == 0))
        yield Row(f"shl.{k}", (k, "u32"), k, lambda a, b, w=w, m=m: a << b & m if b < w else 0)
        for sign in "bu":
            yield Row(f"shr.{sign}{w}", (k, "u32"), k, lambda a, b, w=w: a >> b if b < w else 0)
        yield Row(f"shr.s{w}", (k, "u32"), k, lambda a, b, w=w: ux(sx(a, w) >> min(b, w - 1), w))
    for w in (32, 64):
        k = f"b{w}"
        yield Row(f"popc.{k}", (k,), "u32", lambda a: a.bit_count())
        yield Row(f"clz.{k}", (k,), "u32", lambda a, w=w: w - a.bit_length())
        yield Row(f"brev.{k}", (k,), k, lambda a, w=w: int(format(a, f"0{w}b")[::-1], 2))
        yield Row(f"bfi.{k}", (k, k, "u32", "u32"), k, lambda *v, w=w: bit_insert(w, *v))
        for sign in "us":
            t = f"{sign}{w}"
            yield Row(f"bfind.{t}", (t,), "u32", lambda a, w=w, s=sign: ux(leading(a, w, s), 32))
            yield Row(
                f"bfind.shiftamt.{t}",
                (t,),
                "u32",
                lambda a, w=w, s=sign: (
                    ux(-1, 32) if leading(a, w, s) < 0 else w - 1 - leading(a, w, s)
                ),
            )
            yield Row(f"bfe.{t}", (t, "u32", "u32"), t, lambda *v, t=t: bit_field(t, *v))
    for op, f in (("and", min), ("or", max), ("xor", lambda a, b: a ^ b)):
        yield Row(f"{op}.pred", ("pred", "pred"), "pred", f)
    yield Row("not.pred", ("pred",), "pred", lambda a: 1 - a)
    three = ("b32", "b32", "b32")
    for mode in ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        form = "prmt.b32" + (f".{mode}" if mode else "")
        yield Row(form, three, "b32", lambda *v, mode=mode: permute(mode, *v))
    for lut in (0, 1, 0x1B, 0x80, 0x96, 0xCA, 0xE8, 0xF0, 0xFE, 0xFF):

        def look_up(a: int, b: int, c: int, lut: int = lut) -> int:
            rows = [(a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1) for k in range(32)]
            return sum((lut >> r & 1) << k for k, r in enumerate(rows))

        text = f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {lut:#x};"
        yield Row("lop3.b32", three, "b32", look_up, text)
    text = (
        "setp.gt.u32 {e}, {a}, {b}; lop3.or.b32 {d}|{e}, {a}, {b}, {c}, 0x80, {e};"
        " selp.b32 {d}, 1, 0, {e};"
    )
    yield Row("lop3.or.b32", three, "b32", lambda a, b, c: int(a & b & c != 0 or a > b), text)
    text = (
        "setp.gt.u32 {e}, {a}, {b}; lop3.and.b32 {d}|{e}, {a}, {b}, {c}, 0x80, {e};"
        " selp.b32 {d}, 1, 0, {e};"
    )
    yield Row("lop3.and.b32", three, "b32", lambda a, b, c: int(a & b & c != 0 and a > b), text)
    yield Row("fns.b32", ("b32", "u32", "s32"), "b32", find_nth)
    for mode in ("clamp", "wrap"):

        def amount(n: int, mode: str = mode) -> int:
            return min(n, 32) if mode == "clamp" else n & 31

        yield Row(
            f"shf.l.{mode}.b32",
            three,
            "b32",
            lambda a, b, c, n=amount: ux((b << 32 | a) << n(c) >> 32, 32),
        )
        yield Row(
            f"shf.r.{mode}.b32",
            three,
            "b32",
            lambda a, b, c, n=amount: ux((b << 32 | a) >> n(c), 32),
        )
        yield Row(
            f"bmsk.{mode}.b32",
            ("b32", "b32"),
            "b32",
            lambda a, b, n=amount: ux(((1 << n(b)) - 1) << n(a), 32),
        )
        for sign in "us":
            yield Row(
                f"szext.{mode}.{sign}32",
                ("b32", "u32"),
                "b32",
                lambda a, b, n=amount, sign=sign: (
                    0 if n(b) == 0 else ux(sx(a, n(b)) if sign == "s" else ux(a, n(b)), 32)
                ),
            )


POSITIONS = [0, 1, 5, 16, 31, 32, 33, 63, 64, 100, 255, 256, 259, 0xFFFFFFFF]


def bit_tables(rows: list[Row]) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
    result = tables(rows, 300)
    for inputs, lines in result.items():
        places = [k for k, t in enumerate(inputs) if t == "u32" and k]
        spread = []
        for number, line in enumerate(lines):
            changed = list(line)
            for k in places:
                changed[k] = POSITIONS[(number * (7 * k + 3) + number // 9) % len(POSITIONS)]
            spread.append(tuple(changed))
        if places:
            result[inputs] = spread + lines[:100]
    return result


def test_bits() -> None:
    rows = list(bit_rows())
    lines = bit_tables(rows)
    lines[("b32", "u32", "s32")] += [
        (0x9E3779B9 * k & 0xFFFFFFFF, k % 32, (k * 7 % 41) - 20 & 0xFFFFFFFF) for k in range(400)
    ]
    assert check(rows, lines) > 15000


# ---------------------------------------------------------------------- packed video
def elements(bits: int, kind: str, width: int) -> list[int]:
    parts = [bits >> s & (1 << width) - 1 for s in range(0, 32, width)]
    return [sx(p, width) if kind[0] == "s" else p for p in parts]


VIDEO = {
    "vadd": lambda x, y: x + y,
    "vsub": lambda x, y: x - y,
    "vabsdiff": lambda x, y: abs(x - y),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda x, y: x + y + (x + y >= 0) >> 1,
}
ORDER = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}


def video_rows() -> Iterator[Row]:
    inputs = ("b32", "b32", "b32")
    kinds = [(a, b) for a in ("u32", "s32") for b in ("u32", "s32")]
    for count in (2, 4):
        width = 32 // count

        def joined(values: list[int], width: int = width) -> int:
            return sum(ux(v, width) << width * k for k, v in enumerate(values))

        for op, one in VIDEO.items():
            for to in ("u32", "s32"):
                low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to == "s32" else (
                    0, (1 << width) - 1)  # fmt: skip
                for x, y in kinds:

                    def each(a: int, b: int, one=one, x=x, y=y, width=width) -> list[int]:  # type: ignore[no-untyped-def]
                        pairs = zip(elements(a, x, width), elements(b, y, width), strict=True)
                        return [one(p, q) for p, q in pairs]

                    form = f"{op}{count}.{to}.{x}.{y}"
                    yield Row(form, inputs, "b32", lambda a, b, c, e=each, j=joined: j(e(a, b)))
                    yield Row(
                        f"{form}.sat",
                        inputs,
                        "b32",
                        lambda a, b, c, e=each, j=joined, low=low, high=high: j(
                            [max(low, min(high, v)) for v in e(a, b)]
                        ),
                    )
                    yield Row(
                        f"{form}.add",
                        inputs,
                        "b32",
                        lambda a, b, c, e=each: ux(c + sum(e(a, b)), 32),
                    )
        for cmp, holds in ORDER.items():
            for x, y in kinds:

                def which(a: int, b: int, holds=holds, x=x, y=y, width=width) -> list[int]:  # type: ignore[no-untyped-def]
                    pairs = zip(elements(a, x, width), elements(b, y, width), strict=True)
                    return [int(holds(p, q)) for p, q in pairs]

                form = f"vset{count}.{x}.{y}.{cmp}"
                yield Row(form, inputs, "b32", lambda a, b, c, e=which, j=joined: j(e(a, b)))
                yield Row(
                    f"{form}.add", inputs, "b32", lambda a, b, c, e=which: ux(c + sum(e(a, b)), 32)
                )


def test_packed_video() -> None:
    rows = list(video_rows())
    assert check(rows, tables(rows, 150)) > 50000


# ---------------------------------------------------------------------- faults that others had
def test_bit_fields_at_every_position() -> None:
    """Positions and lengths count modulo 256; beyond the word there is nothing, or the sign."""
    places = [
        0,
        1,
        7,
        31,
        32,
        33,
        62,
        63,
        64,
        65,
        127,
        128,
        254,
        255,
        256,
        259,
        256 + 31,
        0xFFFFFF20,
    ]
    rng = np.random.default_rng(6)
    compared = 0
    for kind in ("u32", "s32", "u64", "s64", "b32", "b64"):
        width = int(kind[1:])
        values = [*edges(f"u{width}")[:14], *(int(v) & (1 << width) - 1 for v in
                  rng.integers(0, 1 << 63, 5, dtype="u8") * np.uint64(2) + np.uint64(1))]  # fmt: skip
        if kind[0] == "b":
            row = Row(
                f"bfi.{kind}",
                (kind, kind, "u32", "u32"),
                kind,
                lambda *v, w=width: bit_insert(w, *v),
            )
            lines = [(v, values[(k * 5 + 3) % len(values)], p, n)
                     for k, v in enumerate(values) for p in places for n in places]  # fmt: skip
        else:
            row = Row(
                f"bfe.{kind}", (kind, "u32", "u32"), kind, lambda *v, t=kind: bit_field(t, *v)
            )
            lines = [(v, p, n) for v in values for p in places for n in places]
        compared += check([row], {row.inputs: lines})
    assert compared > 6 * 6000


def test_a_comparison_with_nan_is_false_and_its_negation_true() -> None:
    text = "setp.{c}.f32 {{e}}, {{a}}, {{b}}; not.pred {{e}}, {{e}}; selp.b32 {{d}}, {{a}}, {{b}}, {{e}};"
    nan, one = 0x7FC00001, 0x3F800000
    rows = [
        Row(f"setp.{c}.f32", ("f32", "f32"), "b32", lambda a, b: a, text.format(c=c))
        for c in ("eq", "ne", "lt", "le", "gt", "ge")
    ]
    lines = [(nan, one), (one, nan), (nan, nan), (0xFFFFFFFF, 0), (0x7F800001, 0x80000000)]
    assert check(rows, {("f32", "f32"): lines}) == 30


def test_a_hundred_thousand_carry_chains() -> None:
    """Random and near the limits: mad.hi and mad.hi.cc, addc, subc, and a product of 128 bits."""
    m32, m64 = (1 << 32) - 1, (1 << 64) - 1
    rng = np.random.default_rng(7)
    rows32 = [
        Row("mad.hi.u32", ("u32",) * 3, "u32", lambda a, b, c: (a * b >> 32) + c & m32),
        Row(
            "mad.hi.s32",
            ("s32",) * 3,
            "s32",
            lambda a, b, c: (sx(a, 32) * sx(b, 32) >> 32) + c & m32,
        ),
        *(r for r in carry_chains() if r.inputs == ("u32",) * 3),
    ]
    rows64 = [
        Row("mad.hi.u64", ("u64",) * 3, "u64", lambda a, b, c: (a * b >> 64) + c & m64),
        *(r for r in carry_chains() if r.inputs == ("u64",) * 3),
    ]
    # 32-bit pieces of two 64-bit factors; the upper half of the product of 128 bits
    text = (
        "{{ .reg .b32 %x<12>; mov.b64 {{%x0, %x1}}, {a}; mov.b64 {{%x2, %x3}}, {b};"
        "mul.hi.u32 %x5, %x0, %x2; mad.lo.cc.u32 %x5, %x0, %x3, %x5; madc.hi.u32 %x6, %x0, %x3, 0;"
        "mad.lo.cc.u32 %x5, %x1, %x2, %x5; madc.hi.cc.u32 %x6, %x1, %x2, %x6; addc.u32 %x7, 0, 0;"
        "mad.lo.cc.u32 %x6, %x1, %x3, %x6; madc.hi.u32 %x7, %x1, %x3, %x7;"
        "mov.b64 {d}, {{%x6, %x7}}; }}"
    )
    rows64.append(Row("madc.hi.u32", ("u64", "u64"), "u64", lambda a, b: a * b >> 64, text))
    compared = 0
    for rows, width in ((rows32, 32), (rows64, 64)):
        raw = rng.integers(0, 1 << 63, (5400, 3), dtype="u8") * np.uint64(2) + np.uint64(1)
        near = rng.integers(0, 4, (5400, 3))
        lines = [
            tuple(
                (
                    int(v)
                    if n == 0
                    else (1 << width - 1) + int(v) % 5 - 2
                    if n == 1
                    else int(v) % 5 - 2
                )
                & (1 << width) - 1
                for v, n in zip(line, kinds, strict=True)
            )
            for line, kinds in zip(raw, near, strict=True)
        ]
        compared += check(rows, {r.inputs: [t[: len(r.inputs)] for t in lines] for r in rows})
    assert compared > 100_000
