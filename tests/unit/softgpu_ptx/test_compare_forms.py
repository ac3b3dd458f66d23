"""setp, set, selp, slct and mov."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.unit.softgpu_ptx import reference as ref
from tests.unit.softgpu_ptx.formrun import Row, check, table
from tests.unit.softgpu_ptx.reference import FORMATS, Format

INT_OPS = ("eq", "ne", "lt", "le", "gt", "ge")
FLOAT_OPS = (*INT_OPS, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
ALIAS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOL = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}


def integer(op: str, kind: str) -> Callable[[int, int], bool]:
    width = int(kind[1:])

    def run(a: int, b: int) -> bool:
        if kind[0] == "s":
            a, b = ref.signed(a, width), ref.signed(b, width)
        op_ = ALIAS.get(op, op)
        return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[
            op_
        ]

    return run


def floating(op: str, f: Format, ftz: bool) -> Callable[[int, int], bool]:
    def run(a: int, b: int) -> bool:
        if ftz:
            a, b = f.flush(a), f.flush(b)
        return ref.compare(op, f.decode(a), f.decode(b))

    return run


def comparisons() -> Iterator[tuple[str, str, str, Callable[[int, int], bool]]]:
    """(operator, .ftz or nothing, type, meaning)."""
    for width in (16, 32, 64):
        for op in ("eq", "ne"):
            yield op, "", f"b{width}", integer(op, f"b{width}")
        for op in INT_OPS:
            yield op, "", f"s{width}", integer(op, f"s{width}")
        for op in (*INT_OPS, *ALIAS):
            yield op, "", f"u{width}", integer(op, f"u{width}")
    for name, f in FORMATS.items():
        for op in FLOAT_OPS:
            yield op, "", name, floating(op, f, False)
            if name in ("f16", "f32"):
                yield op, ".ftz", name, floating(op, f, True)


def predicate_rows() -> Iterator[Row]:
    for op, ftz, kind, holds in comparisons():
        yield Row(
            f"setp.{op}{ftz}.{kind}", (kind, kind), "pred", lambda a, b, h=holds: int(h(a, b))
        )
        for name, combine in BOOL.items():
            boolean = f"setp.{op}.{name}{ftz}.{kind}"
            inputs = (kind, kind, "pred")
            yield Row(
                boolean,
                inputs,
                "pred",
                lambda a, b, c, h=holds, m=combine: int(m(h(a, b), bool(c))),
            )
            # the second destination gets the combination with the negated comparison
            yield Row(
                boolean,
                inputs,
                "pred",
                lambda a, b, c, h=holds, m=combine: int(m(not h(a, b), not c)),
                f"{boolean} {{e}}|{{d}}, {{a}}, {{b}}, !{{c}};",
            )


def truth(target: str) -> int:
    """What a set instruction writes where the comparison holds, in each element."""
    return {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80,
            "u16": 0xFFFF, "s16": 0xFFFF}.get(target, 0xFFFFFFFF)  # fmt: skip


def set_rows() -> Iterator[Row]:
    for op, ftz, kind, holds in comparisons():
        targets = ["u32", "s32", "f32"]
        if kind in ("f16", "bf16"):
            targets += [kind, *(["u16", "s16"] if kind == "f16" else [])]
        for target in targets:
            true, out = truth(target), f"b{target.removeprefix('b')[1:]}"
            yield Row(
                f"set.{op}{ftz}.{target}.{kind}",
                (kind, kind),
                out,
                lambda a, b, h=holds, t=true: t if h(a, b) else 0,
            )
            for name, combine in BOOL.items():
                yield Row(
                    f"set.{op}.{name}{ftz}.{target}.{kind}",
                    (kind, kind, "pred"),
                    out,
                    lambda a, b, c, h=holds, t=true, m=combine: t if m(h(a, b), bool(c)) else 0,
                )


def packed_comparisons() -> Iterator[Row]:
    """Two halves at once: set, and setp with a predicate for each."""
    for op, ftz, kind, holds in comparisons():
        if kind not in ("f16", "bf16"):
            continue
        packed = f"{kind}x2"
        for name, combine in {"": None, **BOOL}.items():
            word, inputs = name and f".{name}", (packed, packed)
            if combine is not None:
                inputs += ("pred",)

            def half(
                shift: int,
                a: int,
                b: int,
                *c: int,
                h: Callable[[int, int], bool] = holds,
                m: Callable[[bool, bool], bool] | None = combine,
            ) -> bool:
                result = h(a >> shift & 0xFFFF, b >> shift & 0xFFFF)
                return result if m is None else bool(m(result, bool(c[0])))

            for target in ("u32", "s32", packed):
                true = truth(target) & 0xFFFF
                yield Row(
                    f"set.{op}{word}{ftz}.{target}.{packed}",
                    inputs,
                    "b32",
                    lambda *v, half=half, t=true: sum(
                        (t if half(s, *v) else 0) << s for s in (0, 16)
                    ),
                )
            form, last = f"setp.{op}{word}{ftz}.{packed}", ", {c}" if combine else ""
            for shift, dest in ((0, "{d}|{e}"), (16, "{e}|{d}")):
                yield Row(
                    form,
                    inputs,
                    "pred",
                    lambda *v, half=half, s=shift: int(half(s, *v)),
                    f"{form} {dest}, {{a}}, {{b}}{last};",
                )


def selection_rows() -> Iterator[Row]:
    for kind in ("b16", "b32", "b64", "u16", "s16", "u32", "s32", "f32", "u64", "s64", "f64"):
        width = int(kind[1:])
        raw = f"b{width}"
        inputs = (raw, raw)
        yield Row(f"selp.{kind}", (*inputs, "pred"), raw, lambda a, b, c: a if c else b)
        text = f"selp.{kind} {{d}}, {{a}}, {{b}}, {{c}};"
        yield Row(f"selp.{kind}", (*inputs, "pred"), raw, lambda a, b, c: a if c else b, text)
        yield Row(
            f"slct.{kind}.s32",
            (*inputs, "s32"),
            raw,
            lambda a, b, c: a if ref.signed(c, 32) >= 0 else b,
        )
        for ftz in ("", ".ftz"):

            def by_float(a: int, b: int, c: int, ftz: str = ftz) -> int:
                f = FORMATS["f32"]
                value = f.decode(f.flush(c) if ftz else c)
                return a if value != "nan" and (value == "-0" or not ref.negative(value)) else b

            yield Row(f"slct{ftz}.{kind}.f32", (*inputs, "f32"), raw, by_float)
    for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        raw = f"b{kind[1:]}"
        yield Row(f"mov.{kind}", (raw,), raw, lambda a: a)
    for kind, raw in (("f16", "b16"), ("bf16", "b16"), ("f16x2", "b32"), ("bf16x2", "b32")):
        yield Row(f"mov.{kind}", (raw,), raw, lambda a: a)
    text = "{{ .reg .b128 %q; mov.b128 %q, {{{a}, {b}}}; mov.b128 {{_, {d}}}, %q; }}"
    yield Row("mov.b128", ("b64", "b64"), "b64", lambda a, b: b, text)
    text = "{{ .reg .b128 %q, %s; mov.b128 %q, {{{a}, {b}}}; mov.b128 %s, %q; mov.b128 {{{d}, _}}, %s; }}"
    yield Row("mov.b128", ("b64", "b64"), "b64", lambda a, b: a, text)
    yield Row("mov.pred", ("pred",), "pred", lambda a: a)
    text = "mov.b32 {d}, {{{a}, {b}}};"
    yield Row("mov.b32", ("b16", "b16"), "b32", lambda a, b: a | b << 16, text)
    text = "mov.b64 {d}, {{{a}, {b}}};"
    yield Row("mov.b64", ("b32", "b32"), "b64", lambda a, b: a | b << 32, text)
    text = "mov.b64 {d}, {{{a}, {b}, {c}, {x}}};"
    four = ("b16", "b16", "b16", "b16")
    yield Row("mov.b64", four, "b64", lambda a, b, c, x: a | b << 16 | c << 32 | x << 48, text)
    text = "mov.b64 {{%r10, {d}}}, {a};"
    yield Row("mov.b64", ("b64",), "b32", lambda a: a >> 32, text)
    text = "mov.b32 {{{d}, %h1}}, {a};"
    yield Row("mov.b32", ("b32",), "b16", lambda a: a & 0xFFFF, text)
    text = "mov.b64 {{%h0, %h1, {d}, _}}, {a};"
    yield Row("mov.b64", ("b64",), "b16", lambda a: a >> 32 & 0xFFFF, text)


def tables(rows: list[Row], count: int) -> dict[tuple[str, ...], list[tuple[int, ...]]]:
    result = {}
    for inputs in {r.inputs for r in rows}:
        lines = table(inputs, count)
        # equal operands are rare among random ones
        same = [(line[0], *line[:1], *line[2:]) for line in lines[::9]]
        if len(inputs) > 1 and inputs[0] == inputs[1]:
            lines += same
        result[inputs] = lines
    return result


def test_predicates() -> None:
    rows = list(predicate_rows())
    assert check(rows, tables(rows, 60), opt=0) > 40000


def test_set() -> None:
    rows = list(set_rows())
    assert check(rows, tables(rows, 30), opt=0) > 50000


def test_comparisons_of_pairs() -> None:
    rows = list(packed_comparisons())
    assert check(rows, tables(rows, 45), opt=0) > 20000


def test_selection_and_moves() -> None:
    rows = list(selection_rows())
    assert check(rows, tables(rows, 200)) > 5000
