"""Names, literals and constant expressions of PTX."""

from __future__ import annotations

import re
import struct

from .model import Float, Int

IDENT = r"(?:[A-Za-z][\w$]*|[_$%][\w$]+)"

_HEX_FLOAT = re.compile(r"(-?)0(?:[fF]([0-9a-fA-F]{8})|[dD]([0-9a-fA-F]{16}))$")
_DEC_FLOAT = re.compile(
    r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)$"
)
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9]\d*)U?$")

#: Characters. Python refuses to read decimal numbers of thousands of digits.
LONGEST_INTEGER = 64


def f32_bits(value: float) -> int:
    """Bits of a float rounded to single precision (overflow gives infinity)."""
    try:
        packed = struct.pack("<f", value)
    except OverflowError:
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return int.from_bytes(packed, "little")


def f64_bits(value: float) -> int:
    """Bits of a double."""
    return int.from_bytes(struct.pack("<d", value), "little")


def parse_int(text: str) -> int | None:
    """An integer literal with an optional sign, or None."""
    match = _INTEGER.match(text)
    if match is None or len(match.group(2)) > LONGEST_INTEGER:
        return None
    digits = match.group(2)
    if digits[:2] in ("0x", "0X"):
        value = int(digits, 16)
    elif digits[:2] in ("0b", "0B"):
        value = int(digits, 2)
    elif digits[0] == "0":
        value = int(digits, 8)
    else:
        value = int(digits)
    return -value if match.group(1) == "-" else value


def parse_literal(text: str) -> Int | Float | None:
    """An integer or floating literal, or None when the text is something else."""
    value = parse_int(text)
    if value is not None:
        return Int(value)
    match = _HEX_FLOAT.match(text)
    if match is not None:
        width = 32 if match.group(2) else 64
        bits = int(match.group(2) or match.group(3), 16)
        if match.group(1):
            bits ^= 1 << (width - 1)
        raw = bits.to_bytes(width // 8, "little")
        number = float(struct.unpack("<f" if width == 32 else "<d", raw)[0])
        return Float(bits, width, number)
    if _DEC_FLOAT.match(text):
        number = float(text)
        return Float(f64_bits(number), 0, number)
    return None
