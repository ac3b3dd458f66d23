"""Which instruction forms are accepted, and which of them a test compares with a reference.

A *form* is an opcode with all its modifiers.  Forms that reach the same generator with the same
choices are one *meaning*: they differ only in words that name caches, scopes or a default, which
the generator is not even told (``forms.py``).  So a meaning is tested when one of its forms is.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from remoting.softgpu.ptx import forms
from remoting.softgpu.ptx.families import load_all
from tests.unit.softgpu_ptx import (
    test_barrier_forms,
    test_compare_forms,
    test_convert_forms,
    test_float_forms,
    test_integer_forms,
    test_matrix_forms,
    test_memory_tables,
    test_warp_tables,
    test_wmma_forms,
)
from tests.unit.softgpu_ptx.formrun import Row

_INSTRUCTION = re.compile(r"(?:^|[;}])\s*(?:@!?\S+\s+)?([a-z]\w*(?:\.\w+(?:::\w+)*)+)")

#: Made by the translator itself, never read from a text; what runs them is named.
INTERNAL = {
    "%ldparam": "test_warp_forms.test_calls_are_expanded_with_their_own_registers",
    "%stparam": "test_warp_forms.test_calls_are_expanded_with_their_own_registers",
    "%stackbase": "test_recursion",
    "%stackcheck": "test_recursion.test_too_deep_ends_the_launch",
    "%badpointer": "test_function_pointers.test_other_pointers_end_the_launch",
    "call": "tests/integration/test_softgpu_output.py",
}

ROWS: tuple[Callable[[], Iterable[Row]], ...] = (
    test_integer_forms.arithmetic,
    test_integer_forms.special_arithmetic,
    test_integer_forms.carry_chains,
    test_integer_forms.bit_rows,
    test_integer_forms.video_rows,
    test_float_forms.wide_rows,
    test_float_forms.mixed_rows,
    test_float_forms.half_rows,
    test_float_forms.simple_rows,
    test_float_forms.packed_f32_rows,
    test_float_forms.approximate_rows,
    test_float_forms.half_approximation_rows,
    test_float_forms.upper_half_rows,
    test_convert_forms.integer_rows,
    test_convert_forms.from_integer_rows,
    test_convert_forms.to_integer_rows,
    test_convert_forms.float_rows,
    test_convert_forms.pack_rows,
    test_convert_forms.eight_rows,
    test_convert_forms.field_rows,
    test_compare_forms.predicate_rows,
    test_compare_forms.set_rows,
    test_compare_forms.packed_comparisons,
    test_compare_forms.selection_rows,
)

#: Tables of complete forms that tests run one by one.
TABLES: tuple[Callable[[], Iterable[str]], ...] = (
    test_memory_tables.covered_forms,
    test_warp_tables.covered_forms,
    test_barrier_forms.covered_forms,
    test_matrix_forms.covered_forms,
    test_wmma_forms.covered_forms,
)


class Meaning(NamedTuple):
    """What a generator is given."""

    opcode: str
    handler: str
    slots: tuple[tuple[str, str], ...]


def meaning_of(name: str) -> Meaning | None:
    found = forms.find(name)
    if found is None:
        return None
    handler = found.pattern.handler
    slots = tuple(sorted(found.slots.items()))
    return Meaning(name.split(".", 1)[0], f"{handler.__module__}.{handler.__qualname__}", slots)


@functools.cache
def accepted() -> dict[Meaning, int]:
    """Every meaning with the number of its complete forms."""
    load_all()
    counts: collections.Counter[Meaning] = collections.Counter()
    for pattern in forms.all_patterns():
        handler = f"{pattern.handler.__module__}.{pattern.handler.__qualname__}"
        for example, slots, number in pattern.choices():
            opcode = example.split(".", 1)[0]
            counts[Meaning(opcode, handler, tuple(sorted(slots.items())))] += number
    return dict(counts)


def forms_in(row: Row) -> Iterator[str]:
    """The forms that a row runs: its own, and those of a text with several instructions."""
    yield row.form
    yield from _INSTRUCTION.findall(row.text)


@functools.cache
def tested() -> frozenset[Meaning]:
    """Every meaning that some table of tests names."""
    load_all()
    names = {name for rows in ROWS for row in rows() for name in forms_in(row)}
    names.update(name for table in TABLES for name in table())
    return frozenset(m for m in map(meaning_of, names) if m is not None)


def untested() -> list[Meaning]:
    """Meanings that are accepted and that no test runs."""
    return sorted(m for m in accepted() if m not in tested() and m.opcode not in INTERNAL)
