"""f32, f64, f16 and bf16 arithmetic against exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from tests.unit.softgpu_ptx import reference as ref
from tests.unit.softgpu_ptx.formrun import Row, check, table
from tests.unit.softgpu_ptx.reference import F32, FORMATS, Format, Number

MODES = ("rn", "rz", "rm", "rp")
Exact = Callable[..., Number]

EXACT: dict[str, Exact] = {
    "add": lambda m, x, y: ref.add(x, y, m),
    "sub": lambda m, x, y: ref.add(x, ref.neg(y), m),
    "mul": lambda m, x, y: ref.mul(x, y),
    "div": lambda m, x, y: ref.div(x, y),
    "fma": lambda m, x, y, z: ref.fma(x, y, z, m),
    "rcp": lambda m, x: ref.div(Fraction(1), x),
    "sqrt": lambda m, x: ref.sqrt(x),
}


def saturate(f: Format, bits: int) -> int:
    if f.is_nan(bits) or bits & f.sign:
        return 0
    return min(bits, f.bias << f.fraction)


def rounded(
    f: Format, op: str, mode: str, ftz: bool = False, sat: bool = False, relu: bool = False
) -> Callable[..., int]:
    """The operation on raw bits, rounded once."""

    def run(*bits: int) -> int:
        operands = [f.decode(f.flush(b) if ftz else b) for b in bits]
        result = f.encode(EXACT[op](mode, *operands), mode)
        if ftz:
            result = f.flush(result)
        if sat:
            result = saturate(f, result)
        if relu and result & f.sign and not f.is_nan(result):
            result = 0
        return result

    return run


def pair(one: Callable[..., int]) -> Callable[..., int]:
    """The same on both halves."""

    def run(*bits: int) -> int:
        return one(*(b & 0xFFFF for b in bits)) | one(*(b >> 16 for b in bits)) << 16

    return run


#: (words, flush, clamp) of f32 and f16
FLAGS = [("", False, False), (".ftz", True, False), (".sat", False, True), (".ftz.sat", True, True)]


def flags_of(name: str) -> list[tuple[str, bool, bool]]:
    return FLAGS if name in ("f32", "f16") else FLAGS[:1]


def wide_rows() -> Iterator[Row]:
    for name in ("f32", "f64"):
        f = FORMATS[name]
        for op in ("add", "sub", "mul", "fma", "mad"):
            three = op in ("fma", "mad")
            inputs = (name,) * (3 if three else 2)
            named = op == "fma" or (op, name) == ("mad", "f64")
            for mode in MODES if named else (*MODES, ""):
                for words, ftz, sat in flags_of(name):
                    form = f"{op}{mode and f'.{mode}'}{words}.{name}"
                    exact = "fma" if three else op
                    yield Row(form, inputs, name, rounded(f, exact, mode or "rn", ftz, sat))
        for op in ("div", "rcp", "sqrt"):
            inputs = (name,) * (2 if op == "div" else 1)
            # what is only approximate on a GPU is rounded correctly here
            extra = {"div": ("full", "approx", ""), "rcp": ("approx",), "sqrt": ("approx",)}[op]
            if name == "f64":
                extra = ("",) if op == "div" else ()
            for mode in (*MODES, *extra):
                exact_mode = mode if mode in MODES else "rn"
                for words, ftz, _ in flags_of(name)[:2]:
                    form = f"{op}{mode and f'.{mode}'}{words}.{name}"
                    yield Row(form, inputs, name, rounded(f, op, exact_mode, ftz))


def mixed_rows() -> Iterator[Row]:
    """One or two operands are halves."""
    for half in ("f16", "bf16"):
        h = FORMATS[half]
        for op in ("add", "sub", "fma"):
            for mode in (*MODES, "") if op != "fma" else MODES:
                for sat in (False, True):

                    def run(
                        *bits: int,
                        h: Format = h,
                        op: str = op,
                        mode: str = mode or "rn",
                        sat: bool = sat,
                    ) -> int:
                        last = F32.decode(bits[-1])
                        operands = [h.decode(b) for b in bits[:-1]]
                        result = F32.encode(EXACT[op](mode, *operands, last), mode)
                        return saturate(F32, result) if sat else result

                    words = f"{mode and f'.{mode}'}{'.sat' if sat else ''}"
                    inputs = (*((half,) * (2 if op == "fma" else 1)), "f32")
                    yield Row(f"{op}{words}.f32.{half}", inputs, "f32", run)


def half_rows() -> Iterator[Row]:
    for name in ("f16", "bf16"):
        f = FORMATS[name]
        for op in ("add", "sub", "mul", "fma"):
            count = 3 if op == "fma" else 2
            for words, ftz, sat in flags_of(name):
                one = rounded(f, op, "rn", ftz, sat)
                yield Row(f"{op}.rn{words}.{name}", (name,) * count, name, one)
                yield Row(
                    f"{op}.rn{words}.{name}x2", (f"{name}x2",) * count, f"{name}x2", pair(one)
                )
        for words, ftz, _ in flags_of(name)[:2]:
            one = rounded(f, "fma", "rn", ftz, relu=True)
            form = f"fma.rn{words}.relu.{name}"
            yield Row(form, (name,) * 3, name, one)
            yield Row(f"{form}x2", (f"{name}x2",) * 3, f"{name}x2", pair(one))


def extreme(f: Format, op: str, ftz: bool, nan: bool, xorsign: bool) -> Callable[[int, int], int]:
    def run(a: int, b: int) -> int:
        if ftz:
            a, b = f.flush(a), f.flush(b)
        sign = (a ^ b) & f.sign
        if xorsign:
            a, b = a & ~f.sign, b & ~f.sign
        if f.is_nan(a) or f.is_nan(b):
            both = f.is_nan(a) and f.is_nan(b)
            result = f.encode("nan") if nan or both else b if f.is_nan(a) else a
        else:
            # -0 < +0: order the patterns as sign and magnitude
            key = [-(v & ~f.sign) - 1 if v & f.sign else v for v in (a, b)]
            result = (a, b)[(key[0] > key[1]) == (op == "min") and key[0] != key[1]]
        if xorsign and not f.is_nan(result):
            result = result & ~f.sign | sign
        return result

    return run


def simple_rows() -> Iterator[Row]:
    for name in ("f32", "f64", "f16", "bf16"):
        f = FORMATS[name]
        flush = [False, True] if name in ("f32", "f16") else [False]
        for ftz in flush:
            z = ".ftz" if ftz else ""

            def prepared(a: int, f: Format = f, ftz: bool = ftz) -> int:
                return f.flush(a) if ftz else a

            rows = [
                (f"abs{z}.{name}", 1, lambda a, p=prepared, f=f: p(a) & ~f.sign),
                (f"neg{z}.{name}", 1, lambda a, p=prepared, f=f: p(a) ^ f.sign),
            ]
            for op in ("min", "max"):
                for nan in (False, True) if name != "f64" else (False,):
                    for xorsign in (False, True) if name != "f64" else (False,):
                        words = ".NaN" * nan + ".xorsign.abs" * xorsign
                        form = f"{op}{z}{words}.{name}"
                        rows.append((form, 2, extreme(f, op, ftz, nan, xorsign)))
            for form, count, one in rows:
                yield Row(form, (name,) * count, name, one)
                if f.width == 16:
                    yield Row(f"{form}x2", (f"{name}x2",) * count, f"{name}x2", pair(one))
        if f.width >= 32:
            yield Row(
                f"copysign.{name}",
                (name, name),
                f"b{f.width}",
                lambda a, b, f=f: a & f.sign | b & ~f.sign,
            )
            inf, least = f.infinity, 1 << f.fraction
            tests: dict[str, Callable[[int], bool]] = {
                "finite": lambda s, inf=inf: s < inf,
                "infinite": lambda s, inf=inf: s == inf,
                "number": lambda s, inf=inf: s <= inf,
                "notanumber": lambda s, inf=inf: s > inf,
                "normal": lambda s, inf=inf, least=least: least <= s < inf,
                "subnormal": lambda s, least=least: 0 < s < least,
            }
            for test, holds in tests.items():
                yield Row(
                    f"testp.{test}.{name}",
                    (name,),
                    "pred",
                    lambda a, h=holds, f=f: int(h(a & ~f.sign)),
                )


def packed_f32_rows() -> Iterator[Row]:
    cases = [
        (op, mode, ftz)
        for op in ("add", "sub", "mul", "fma")
        for mode in (*MODES, *(() if op == "fma" else ("",)))
        for ftz in (False, True)
    ]
    for op, mode, ftz in cases:
        for count in (3 if op == "fma" else 2,):
            one = rounded(F32, op, mode or "rn", ftz)

            def run(*bits: int, one: Callable[..., int] = one) -> int:
                return one(*(b & 0xFFFFFFFF for b in bits)) | one(*(b >> 32 for b in bits)) << 32

            def close(got: int, want: int) -> bool:
                parts = [((got >> s) & 0xFFFFFFFF, (want >> s) & 0xFFFFFFFF) for s in (0, 32)]
                return all(g == w or (F32.is_nan(g) and F32.is_nan(w)) for g, w in parts)

            form = f"{op}{mode and f'.{mode}'}{'.ftz' if ftz else ''}.f32x2"
            yield Row(form, ("f32x2",) * count, "f32x2", run, tolerance=close)


def tables(rows: list[Row], count: int) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
    return {inputs: table(inputs, count) for inputs in {r.inputs for r in rows}}


def test_f32_and_f64_arithmetic_in_all_rounding_modes() -> None:
    rows = list(wide_rows())
    assert check(rows, tables(rows, 300)) > 25000


def test_sums_of_a_half_and_a_single() -> None:
    rows = list(mixed_rows())
    assert check(rows, tables(rows, 200)) > 5000


def test_half_arithmetic_rounds_once() -> None:
    rows = list(half_rows())
    assert check(rows, tables(rows, 450)) > 12000


def test_signs_and_extremes() -> None:
    rows = list(simple_rows())
    assert check(rows, tables(rows, 300)) > 12000


def test_pairs_of_f32() -> None:
    rows = list(packed_f32_rows())
    low = table(("f32",) * 3, 300)
    lines = [
        tuple(a | b << 32 for a, b in zip(x, y, strict=True))
        for x, y in zip(low, low[1:] + low[:1], strict=True)
    ]
    assert check(rows, {r.inputs: [t[: len(r.inputs)] for t in lines] for r in rows}) > 2000


# ---------------------------------------------------------------------- approximate functions
def _f32(bits: int) -> float:
    return float(np.array(bits, "u4").view("f4"))


def _within(
    exact: Callable[[float], float], ulps: float, absolute: float = 0.0
) -> Callable[[int, int], bool]:
    def close(got: int, bits: int) -> bool:
        x = _f32(bits)
        try:
            want = exact(x)
        except (ValueError, ZeroDivisionError, OverflowError):
            want = math.nan
        value = _f32(got)
        if math.isnan(want):
            return math.isnan(value)
        as_f32 = float(np.float32(want)) if abs(want) < 3.5e38 else math.copysign(math.inf, want)
        if math.isinf(as_f32) or as_f32 == 0:
            return (
                value == as_f32
                or abs(value - want) <= absolute
                or (abs(value) <= 1.5e-45 and not want)
            )
        step = float(np.spacing(np.float32(abs(want))))
        return abs(value - want) <= max(ulps * step, absolute)

    return close


def _exp2(x: float) -> float:
    return math.inf if x > 200 else 2.0**x


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.nan if x < 0 else math.log2(x)


def _rsqrt(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    return 0.0 if x == math.inf else 1 / math.sqrt(x)


def approximate_rows() -> Iterator[Row]:
    functions = {
        "ex2": _within(_exp2, 2),
        "lg2": _within(_log2, 2, 2.0**-22),
        "rsqrt": _within(_rsqrt, 2),
        "sin": _within(math.sin, 0, 2.0**-20.5),
        "cos": _within(math.cos, 0, 2.0**-20.5),
        "tanh": _within(math.tanh, 2.0**12),
    }
    for name, close in functions.items():
        yield Row(f"{name}.approx.f32", ("f32",), "f32", lambda a: a, tolerance=close)
        if name == "tanh":
            continue

        def flushed(
            got: int, bits: int, close: Callable[[int, int], bool] = close, name: str = name
        ) -> bool:
            """Subnormal operands and results are zeros."""
            if got & 0x7FFFFFFF and F32.flush(got) != got:
                return False
            return close(got, F32.flush(bits)) or (name in ("ex2",) and got == 0)

        yield Row(f"{name}.approx.ftz.f32", ("f32",), "f32", lambda a: a, tolerance=flushed)


def test_approximate_functions_stay_within_the_errors_of_the_manual() -> None:
    rows = list(approximate_rows())
    rng = np.random.default_rng(5)
    values = np.concatenate([rng.uniform(-125, 127, 1500), rng.uniform(-7, 7, 1500)]).astype("f4")
    lines = [(int(v),) for v in values.view("u4")] + [
        (b,) for (b,) in table(("f32",), 100) if abs(_f32(b)) < 1e5 or not math.isfinite(_f32(b))
    ]
    assert check(rows, {("f32",): lines}) > 30000
    # results below the normal range
    low = [(int(v),) for v in rng.uniform(-150, -126, 500).astype("f4").view("u4")]
    assert check(rows[:2], {("f32",): low}) == 1000


def half_approximation_rows() -> Iterator[Row]:
    for name, rel in (("f16", 2.0**-9.9), ("bf16", 2.0**-7)):
        f = FORMATS[name]

        def number(bits: int, f: Format = f) -> float:
            x = f.decode(bits)
            table = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "-0": -0.0}
            return table[x] if isinstance(x, str) else float(x)

        def near(
            got: int,
            bits: int,
            function: Callable[[float], float],
            number: Callable[[int], float] = number,
            rel: float = rel,
        ) -> bool:
            x = number(bits)
            want, value = (math.nan if math.isnan(x) else function(x)), number(got)
            if math.isnan(want) or math.isnan(value):
                return math.isnan(want) and math.isnan(value)
            if math.isinf(value) or (abs(want) < 6.2e-5 and rel < 2.0**-8):
                return abs(want) > 65000 or abs(value - want) < 7e-8 or value == want
            if abs(want) < 2.0**-126 and value == 0:
                return True  # flushed
            return abs(value - want) <= rel * abs(want)

        ex2 = "ex2.approx.ftz.bf16" if name == "bf16" else "ex2.approx.f16"
        for form, function in ((ex2, _exp2), (f"tanh.approx.{name}", math.tanh)):

            def one(
                got: int,
                bits: int,
                near: Callable[..., bool] = near,
                function: Callable[[float], float] = function,
            ) -> bool:
                return near(got, bits, function)

            def both(got: int, bits: int, one: Callable[[int, int], bool] = one) -> bool:
                return all(one(got >> s & 0xFFFF, bits >> s & 0xFFFF) for s in (0, 16))

            yield Row(form, (name,), name, lambda a: a, tolerance=one)
            yield Row(f"{form}x2", (f"{name}x2",), f"{name}x2", lambda a: a, tolerance=both)


def test_approximate_halves() -> None:
    rows = list(half_approximation_rows())
    every = [(b,) for b in range(0, 0x10000, 7)]
    pairs = [(a | b << 16,) for (a,), (b,) in zip(every, every[1234:], strict=False)]
    lines = {("f16",): every, ("bf16",): every, ("f16x2",): pairs, ("bf16x2",): pairs}
    assert check(rows, lines) > 60000


def upper_half_rows() -> Iterator[Row]:
    f = FORMATS["f64"]

    def high(op: str) -> Callable[[int], int]:
        def run(bits: int) -> int:
            cut = f.flush(bits if f.is_nan(bits) else bits >> 32 << 32)
            x = f.decode(cut)
            if op == "rsqrt":
                x = ref.sqrt(x)
            result = f.flush(f.encode(ref.div(Fraction(1), x)))
            return f.encode("nan") if f.is_nan(result) else result >> 32 << 32

        return run

    def near(got: int, want: int) -> bool:
        return (f.is_nan(got) and f.is_nan(want)) or abs(got - want) <= 1 << 32

    for op in ("rcp", "rsqrt"):
        yield Row(f"{op}.approx.ftz.f64", ("f64",), "f64", high(op), tolerance=near)
    yield Row(
        "rsqrt.approx.f64",
        ("f64",),
        "f64",
        lambda a: f.encode(ref.div(Fraction(1), ref.sqrt(f.decode(a)))),
        tolerance=lambda g, w: (f.is_nan(g) and f.is_nan(w)) or abs(g - w) <= 2,
    )


def test_upper_half_approximations_of_f64() -> None:
    rows = list(upper_half_rows())
    assert check(rows, {("f64",): table(("f64",), 800)}) > 500
