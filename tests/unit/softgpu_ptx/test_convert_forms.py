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

                def convert(
                    a: int, s: str = source, f: Format = f, mode: str = mode, sat: bool = False
                ) -> int:
                    bits = f.encode(Fraction(number(a, s)), mode)
                    return saturate(f, bits) if sat else bits

                yield Row(f"cvt.{mode}.{target}.{source}", (register(source),), target, convert)
            yield Row(
                f"cvt.rn.sat.{target}.{source}",
                (register(source),),
                target,
                lambda a, c=convert: c(a, mode="rn", sat=True),
            )


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
                run = to_integer(f, target, mode, False)
                yield Row(f"cvt.{mode}.{target}.{source}", (source,), register(target), run)
            form = f"cvt.rpi.{'ftz.' if source == 'f32' else ''}sat.{target}.{source}"
            run = to_integer(f, target, "rpi", source == "f32")
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
    def row(form: str, source: Format, target: Format, run: Callable[[int], int]) -> Row:
        return Row(form, (source.name,), target.name, run)

    for source, target in ((F16, F32), (F16, F64), (F32, F64), (BF16, F32), (BF16, F64)):
        form = f"{target.name}.{source.name}"
        yield row(f"cvt.{form}", source, target, between(source, target))
        if source is not BF16:
            yield row(f"cvt.sat.{form}", source, target, between(source, target, sat=True))
        if F32 in (source, target):
            yield row(f"cvt.ftz.{form}", source, target, between(source, target, ftz=True))
    for mode in MODES:
        for source, target in ((F64, F32), (F32, F16), (F64, F16)):
            form = f"{target.name}.{source.name}"
            yield row(f"cvt.{mode}.{form}", source, target, between(source, target, mode))
            run = between(source, target, mode, sat=True)
            yield row(f"cvt.{mode}.sat.{form}", source, target, run)
            if F32 in (source, target):
                run = between(source, target, mode, ftz=True)
                yield row(f"cvt.{mode}.ftz.{form}", source, target, run)
        for source, target in ((F64, BF16), (F16, BF16), (BF16, F16)):
            form = f"cvt.{mode}.{target.name}.{source.name}"
            yield row(form, source, target, between(source, target, mode))
    for mode in ("rn", "rz"):
        yield row(f"cvt.{mode}.bf16.f32", F32, BF16, between(F32, BF16, mode))
        yield row(f"cvt.{mode}.relu.bf16.f32", F32, BF16, between(F32, BF16, mode, relu=True))
    yield row("cvt.rn.relu.f16.f32", F32, F16, between(F32, F16, relu=True))
    for f in (F32, F64, F16, BF16):
        same = f"{f.name}.{f.name}"
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield row(f"cvt.{mode}.{same}", f, f, between(f, f, integral=mode))
            if f is not BF16:
                run = between(f, f, integral=mode, sat=True)
                yield row(f"cvt.{mode}.sat.{same}", f, f, run)
        if f is not BF16:
            yield row(f"cvt.sat.{same}", f, f, between(f, f, sat=True))
    yield row("cvt.rni.ftz.f32.f32", F32, F32, between(F32, F32, ftz=True, integral="rni"))
    yield row("cvt.ftz.f32.f32", F32, F32, between(F32, F32, ftz=True))


def pack_rows() -> Iterator[Row]:
    for target in (F16, BF16):
        for mode in ("rn", "rz"):
            for relu in (False, True):
                for finite in (False, True):

                    def one(
                        bits: int,
                        target: Format = target,
                        mode: str = mode,
                        relu: bool = relu,
                        finite: bool = finite,
                    ) -> int:
                        result = between(F32, target, mode, relu=relu)(bits)
                        if finite and result & ~target.sign == target.infinity:
                            result -= 1
                        return result

                    words = f".{mode}{'.relu' if relu else ''}{'.satfinite' if finite else ''}"
                    yield Row(
                        f"cvt{words}.{target.name}x2.f32",
                        ("f32", "f32"),
                        f"{target.name}x2",
                        lambda a, b, one=one: one(a) << 16 | one(b),
                    )
    tf32 = Format("tf32", 19, 10)
    for mode in ("rna", "rn", "rz"):

        def convert(a: int, mode: str = mode) -> int:
            return tf32.encode(F32.decode(a), mode) << 13

        yield Row(
            f"cvt.{mode}.tf32.f32",
            ("f32",),
            "b32",
            convert,
            tolerance=lambda g, w: g == w or (F32.is_nan(g) and F32.is_nan(w)),
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
        elif len(inputs) == 1:
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
