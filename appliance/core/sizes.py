"""Amounts of memory: how they are written, read and rounded."""

from __future__ import annotations

import re

KIB, MIB, GIB, TIB = (1024**power for power in (1, 2, 3, 4))

GRANULE = 2 * MIB
"""Workers account device memory in these; the driver maps physical memory in the same."""

_UNITS = {
    "": 1,
    "KIB": KIB,
    "K": KIB,
    "MIB": MIB,
    "M": MIB,
    "GIB": GIB,
    "G": GIB,
    "TIB": TIB,
    "T": TIB,
}
_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.([0-9]{1,6}))?\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Read `512MiB`, `8GiB`, `8G`, `1.5GiB` or plain bytes; ValueError says what is wrong."""
    match = _AMOUNT.fullmatch(text.strip())
    unit = _UNITS.get(match[3].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not an amount of memory; write for example 512MiB or 8GiB")
    whole, fraction = int(match[1]), match[2] or ""
    return whole * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)


def format_size(size: int) -> str:
    """Write an amount for people, never more than there is: `8 GiB`, `1.5 GiB`, `300 MiB`."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            tenths = size * 10 // unit
            return (
                f"{tenths // 10}.{tenths % 10} {name}" if tenths % 10 else f"{tenths // 10} {name}"
            )
    return f"{size} B"


def round_up(size: int) -> int:
    """The next whole number of granules."""
    return -(-size // GRANULE) * GRANULE
