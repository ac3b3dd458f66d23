"""cvt: every pair of types against exact fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from tests.unit.softgpu_ptx import reference as ref
from tests.unit.softgpu_ptx.formrun import Row, check, table
from tests.unit.softgpu_ptx.reference import BF16, F16, F32, F64, FORMATS, Format
from tests.unit.softgpu_ptx.test_float_forms import saturate

INTS = [f"{s}{w}" for w in (8, 16, 32, 64) for s in "us"]
FLOATS = ("f16", "bf16", "f32", "f64")
MODES = ("rn", "rz", "rm", "rp")


def number(bits: int, kind: str) -> int:
    width = int(kind[1:])
    return ref.signed(bits, width) if kind[0] == "s" else ref.unsigned(bits, width)


def limits(kind: str) -> tuple[int, int]:
    width = int(kind[1:])
    return (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)


def clamp(value: int, kind: str) -> int:
    low, high = limits(kind)
    return max(low, min(high, value))


def register(kind: str) -> str:
    """8-bit values live in 16-bit registers."""
    return {"8": "b16", "16": "b16", "32": "b32", "64": "b64"}[kind[1:]]


def stored(value: int, kind: str) -> int:
    """What a register of the right size holds: 8-bit results are extended to 16."""
    width = int(kind[1:])
    value = ref.signed(value, width) if kind[0] == "s" else ref.unsigned(value, width)
    return ref.unsigned(value, max(width, 16))


def integer_rows() -> Iterator[Row]:
    for source in INTS:
        for target in INTS:
            yield Row(
                f"cvt.{target}.{source}",
                (register(source),),
                register(target),
                lambda a, s=source, t=target: stored(number(a, s), t),
            )
            yield Row(
                f"cvt.sat.{target}.{source}",
                (register(source),),
                register(target),
                lambda a, s=source, t=target: stored(clamp(number(a, s), t), t),
            )


def from_integer_rows() -> Iterator[Row]:
    for source in INTS:
        for target in FLOATS:
            f = FORMATS[target]
            for mode in MODES:
                for sat in (False, True):

                    def convert(
                        a: int, s: str = source, f: Format = f, mode: str = mode, sat: bool = sat
                    ) -> int:
                        bits = f.encode(Fraction(number(a, s)), mode)
                        return saturate(f, bits) if sat else bits

                    # no integer becomes a subnormal: .ftz changes nothing
                    for ftz in ("", ".ftz") if target == "f32" else ("",):
                        form = f"cvt.{mode}{ftz}{'.sat' if sat else ''}.{target}.{source}"
                        yield Row(form, (register(source),), target, convert)


def to_integer(f: Format, kind: str, mode: str, ftz: bool) -> Callable[[int], int]:
    def run(bits: int) -> int:
        width = int(kind[1:])
        x = ref.to_integral(f.decode(f.flush(bits) if ftz else bits), mode)
        if x == "nan":
            special = width == 64 or f is F64
            return stored(1 << width - 1 if special else 0, kind)
        low, high = limits(kind)
        if isinstance(x, str):
            return stored({"inf": high, "-inf": low, "-0": 0}[x], kind)
        return stored(clamp(int(x), kind), kind)

    return run


def to_integer_rows() -> Iterator[Row]:
    for source in FLOATS:
        f = FORMATS[source]
        for target in INTS:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                for ftz in (False, True) if source == "f32" else (False,):
                    run = to_integer(f, target, mode, ftz)
                    for sat in ("", ".sat"):  # out of range is limited anyway
                        form = f"cvt.{mode}{'.ftz' if ftz else ''}{sat}.{target}.{source}"
                        yield Row(form, (source,), register(target), run)


def between(
    source: Format,
    target: Format,
    mode: str = "rn",
    *,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    integral: str = "",
) -> Callable[[int], int]:
    def run(bits: int) -> int:
        if ftz and source is F32:
            bits = source.flush(bits)
        value = source.decode(bits)
        if integral:
            value = ref.to_integral(value, integral)
        result = target.encode(value, mode)
        if sat:
            result = saturate(target, result)
        if relu and result & target.sign and not target.is_nan(result):
            result = 0
        if ftz and target is F32:
            result = target.flush(result)
        return result

    return run


def float_rows() -> Iterator[Row]:
    def rows(
        head: str, source: Format, target: Format, flush: bool, clamp: bool, **how: str
    ) -> Iterator[Row]:
        for ftz in (False, True) if flush else (False,):
            for sat in (False, True) if clamp else (False,):
                words = f"{'.ftz' if ftz else ''}{'.sat' if sat else ''}"
                run = between(source, target, ftz=ftz, sat=sat, **how)  # type: ignore[arg-type]
                form = f"cvt{head}{words}.{target.name}.{source.name}"
                yield Row(form, (source.name,), target.name, run)

    # (source, target, .ftz allowed, .sat allowed)
    for source, target, flush, clamp in (
        (F32, F32, True, True),
        (F16, F32, True, True),
        (F64, F64, False, True),
        (F16, F64, False, True),
        (F32, F64, True, True),
        (F16, F16, False, True),
        (BF16, BF16, False, False),
        (BF16, F32, True, False),
        (BF16, F64, False, False),
    ):
        yield from rows("", source, target, flush, clamp)
    for mode in MODES:
        for source, target, flush, clamp in (
            (F64, F32, True, True),
            (F32, F16, True, True),
            (F64, F16, False, True),
            (F64, BF16, False, False),
            (F16, BF16, False, False),
            (BF16, F16, False, False),
        ):
            yield from rows(f".{mode}", source, target, flush, clamp, mode=mode)
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for f in (F32, F64, F16, BF16):
            yield from rows(f".{mode}", f, f, f is F32, f is not BF16, integral=mode)
    for mode in ("rn", "rz"):
        for target in (F16, BF16):
            for relu in (False, True):
                for finite in (False, True):
                    if target is F16 and not finite and (mode == "rz" or not relu):
                        continue  # the general forms
                    words = f".{mode}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"
                    run = bounded(F32, target, mode, relu, finite)
                    yield Row(f"cvt{words}.{target.name}.f32", ("f32",), target.name, run)


def bounded(
    source: Format, target: Format, mode: str, relu: bool, finite: bool
) -> Callable[[int], int]:
    """With .satfinite infinities become the largest finite number."""

    def run(bits: int) -> int:
        result = between(source, target, mode, relu=relu)(bits)
        if finite and result & ~target.sign == target.infinity:
            result -= 1
        return result

    return run


def pack_rows() -> Iterator[Row]:
    for target in (F16, BF16):
        for mode in ("rn", "rz"):
            for relu in (False, True):
                for finite in (False, True):
                    one = bounded(F32, target, mode, relu, finite)
                    words = f".{mode}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"
                    yield Row(
                        f"cvt{words}.{target.name}x2.f32",
                        ("f32", "f32"),
                        f"{target.name}x2",
                        lambda a, b, one=one: one(a) << 16 | one(b),
                    )
    tf32 = Format("tf32", 19, 10)
    for mode in ("rna", "rn", "rz"):
        for relu in (False, True) if mode != "rna" else (False,):
            for finite in (False, True):
                to_tf32 = bounded(F32, tf32, mode, relu, finite)
                words = f".{mode}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"
                yield Row(
                    f"cvt{words}.tf32.f32",
                    ("f32",),
                    "b32",
                    lambda a, c=to_tf32: c(a) << 13,
                    tolerance=lambda g, w: g == w or (F32.is_nan(g) and F32.is_nan(w)),
                )


# ---------------------------------------------------------------------- eight bits
E4M3, E5M2 = Format("e4m3", 8, 3), Format("e5m2", 8, 2)


def eight(f: Format, bits: int, source: Format, relu: bool) -> int:
    """To eight bits: the largest finite number instead of infinity, NaN as 0x7f."""
    value = source.decode(bits)
    if value == "nan":
        return 0x7F
    if relu and ref.negative(value):
        return 0
    largest = 0x7E if f is E4M3 else 0x7B
    # e4m3 uses the exponent of infinity for numbers, too: round with one exponent bit more
    wide = Format("wide", f.width + 2, f.fraction)
    if isinstance(value, str):
        return {"inf": largest, "-inf": 0x80 | largest, "-0": 0x80}[value]
    step = Fraction(2) ** (1 - f.bias - f.fraction)
    if abs(value) < Fraction(2) ** (1 - f.bias):
        whole, rest = divmod(abs(value) / step, 1)
        size = int(whole) + (2 * rest > 1 or (2 * rest == 1 and int(whole) & 1))
    else:
        exact = wide.encode(abs(value))
        size = exact - ((wide.bias - f.bias) << f.fraction)
    return (0x80 if value < 0 else 0) | min(size, largest)


def from_eight(f: Format, bits: int, relu: bool) -> int:
    size = bits & 0x7F
    if f is E4M3:
        if size == 0x7F:
            return F16.encode("nan")
        exponent, part = size >> 3, size & 7
        value = Fraction(part + 8 * (exponent > 0), 8) * Fraction(2) ** (max(exponent, 1) - 7)
        number = ("-0" if not value else -value) if bits & 0x80 else value
    else:
        number = E5M2.decode(bits)
    result = F16.encode(number)
    return 0 if relu and result & F16.sign and not F16.is_nan(result) else result


def eight_rows() -> Iterator[Row]:
    for f in (E4M3, E5M2):
        for relu in (False, True):
            word, kind = ".relu" if relu else "", f"{f.name}x2"

            def pack(a: int, b: int, f: Format = f, relu: bool = relu) -> int:
                return eight(f, a, F32, relu) << 8 | eight(f, b, F32, relu)

            def narrow(a: int, f: Format = f, relu: bool = relu) -> int:
                low, high = (eight(f, a >> s & 0xFFFF, F16, relu) for s in (0, 16))
                return low | high << 8

            def widen(a: int, f: Format = f, relu: bool = relu) -> int:
                low, high = (from_eight(f, a >> s & 0xFF, relu) for s in (0, 8))
                return low | high << 16

            yield Row(f"cvt.rn.satfinite{word}.{kind}.f32", ("f32", "f32"), "b16", pack)
            yield Row(f"cvt.rn.satfinite{word}.{kind}.f16x2", ("f16x2",), "b16", narrow)
            yield Row(f"cvt.rn{word}.f16x2.{kind}", ("b16",), "f16x2", widen)


def field_rows() -> Iterator[Row]:
    """cvt.pack: saturated integers side by side."""
    for kind in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):
        width = int(kind[1:])

        def fields(a: int, b: int, kind: str = kind, width: int = width) -> int:
            high, low = (ref.unsigned(clamp(ref.signed(v, 32), kind), width) for v in (a, b))
            return high << width | low

        if width == 16:
            yield Row(f"cvt.pack.sat.{kind}.s32", ("s32", "s32"), "b32", fields)
            continue
        yield Row(
            f"cvt.pack.sat.{kind}.s32.b32",
            ("s32", "s32", "b32"),
            "b32",
            lambda a, b, c, f=fields, w=width: ref.unsigned(c << 2 * w, 32) | f(a, b),
        )


def tables(rows: list[Row], count: int) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
    """Floats get halves and limits of the integer types too."""
    result = {inputs: table(inputs, count) for inputs in {r.inputs for r in rows}}
    for inputs, lines in result.items():
        if len(inputs) == 1 and inputs[0] in FORMATS:
            f = FORMATS[inputs[0]]
            for power in (7, 8, 15, 16, 24, 31, 32, 53, 63, 64):
                for offset in (-1, Fraction(-1, 2), 0, Fraction(1, 2), 1):
                    for sign in (1, -1):
                        lines.append((f.encode(sign * (Fraction(2) ** power + offset)),))
            lines += [(f.encode(Fraction(k, 2)),) for k in range(-9, 10)]
        elif len(inputs) == 1 and not inputs[0].endswith("x2"):
            width = int(inputs[0][1:])
            for bit in range(width):
                for low in (0, 1, (1 << bit >> 9) | 1, 1 << bit >> 24, 1 << bit >> 12):
                    lines.append(((1 << bit | low) & ((1 << width) - 1),))
                    lines.append((-(1 << bit | low) & ((1 << width) - 1),))
    return result


def test_between_integers() -> None:
    rows = list(integer_rows())
    assert check(rows, tables(rows, 100)) > 10000


def test_integers_to_floats() -> None:
    rows = list(from_integer_rows())
    assert check(rows, tables(rows, 100)) > 20000


def test_floats_to_integers() -> None:
    rows = list(to_integer_rows())
    assert check(rows, tables(rows, 100)) > 15000


def test_between_floats() -> None:
    rows = list(float_rows())
    assert check(rows, tables(rows, 350)) > 12000


def test_packing() -> None:
    rows = list(pack_rows())
    assert check(rows, tables(rows, 300)) > 4000


def test_eight_bit_numbers() -> None:
    rows = list(eight_rows())
    lines = tables(rows, 400)
    steps = [E5M2.decode(k) for k in range(0x7C)] + [Fraction(k) for k in (440, 448, 464, 480, 512)]
    extra = [
        F32.encode(v + d * Fraction(2) ** -20) | s
        for v in steps
        if not isinstance(v, str)
        for d in (-1, 0, 1)
        for s in (0, F32.sign)
    ]
    lines[("f32", "f32")] += [(a, b) for a, b in zip(extra, reversed(extra), strict=True)]
    lines[("f16x2",)] += [(a | (a * 7 & 0xFFFF) << 16,) for a in range(0, 0x10000, 13)]
    lines[("b16",)] = [(a | (a * 5 + 3 & 0xFF) << 8,) for a in range(256)]
    assert check(rows, lines) > 20000


def test_integer_fields() -> None:
    rows = list(field_rows())
    lines = tables(rows, 200)
    for inputs in lines:
        small = [tuple(k * (p + 1) - 150 & 0xFFFFFFFF for p in range(len(inputs)))
                 for k in range(300)]  # fmt: skip
        lines[inputs] += small
    assert check(rows, lines) > 3000
