"""Declarations of variables and parameters, with their initialisers."""

from __future__ import annotations

import re

from .errors import PtxError, invalid
from .literals import IDENT, f32_bits, f64_bits, parse_int, parse_literal
from .model import TYPE_BYTES, Float, InitRef, Int, Variable

_ATTRIBUTE = re.compile(r"\.attribute\s*\(([^)]*)\)")
_POINTER = re.compile(r"\.ptr(?:\s*\.(?:global|shared|const|local))?(?:\s*\.align\s+\d+)?")
_PREFIX = re.compile(r"\s*\.(?:align\s+(\d+)|([a-z]\w*(?:::\w+)?))")
_DECLARATOR = re.compile(rf"\s*({IDENT})\s*((?:\[[^\]]*\]\s*)*)(?:=\s*(.*))?$", re.S)
_DIMENSION = re.compile(r"\[\s*(\w*)\s*\]")
_ADDRESS = re.compile(
    rf"(?:(0[xX][fF]+0*)\s*\(\s*)?(generic\s*\(\s*)?({IDENT})\s*(?:([-+])\s*(\w+)\s*)?(\)?)\s*"
    rf"(?:([-+])\s*(\w+)\s*)?(\)?)$"
)
#: More than hardware knows of.
LARGEST_ALIGN = 1 << 16
_LINKAGE = ("visible", "extern", "weak", "common")
_SPACES = ("global", "const", "shared", "param", "local", "reg")
_OPAQUE = ("texref", "samplerref", "surfref")

Nested = str | list["Nested"]


def whole_number(text: str, line: int) -> int:
    """A number of the text; names are none here."""
    value = parse_int(text)
    if value is None:
        raise invalid(f"{text[:40]!r} is not a number", line)
    return value


def _alignment(text: str, line: int) -> int:
    align = whole_number(text, line)
    if align == 0 or align & (align - 1) or align > LARGEST_ALIGN:
        raise invalid(f"an alignment of {align}", line)
    return align


def split_top(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts: list[str] = []
    depth = start = 0
    for index, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    last = text[start:]
    return [*parts, last] if last.strip() or parts else parts


def parse_variables(text: str, offset: int, line: int) -> list[Variable]:
    """``.global .align 4 .b8 a[4] = {1, 2}, b`` -> variables.  Opaque types have count -1."""
    source = text
    managed = False
    if match := _ATTRIBUTE.search(source):
        managed = "managed" in match.group(1)
        source = source[: match.start()] + " " + source[match.end() :]
    source = _POINTER.sub(" ", source)
    linkage = space = type_name = ""
    align, vector, pos = 0, 1, 0
    while match := _PREFIX.match(source, pos):
        word = match.group(2)
        if word is None:
            align = _alignment(match.group(1), line)
        elif word in _LINKAGE:
            linkage = word
        elif word in _SPACES:
            space = word
        elif word in ("v2", "v4", "v8"):
            vector = int(word[1:])
        elif word in TYPE_BYTES:
            type_name = word
        elif word in _OPAQUE:
            type_name = "b64"
            managed = True
        else:
            raise invalid(f"unknown directive .{word} in a declaration", line)
        pos = match.end()
    if not space or not type_name:
        raise invalid("a declaration needs a state space and a type", line)
    if align & (align - 1):
        raise invalid(f".align {align} is not a power of two", line)
    result = []
    for part in split_top(source[pos:]):
        match = _DECLARATOR.match(part)
        if match is None:
            raise invalid(f"cannot read the declaration of {part.strip()[:40]!r}", line)
        variable = Variable(
            match.group(1),
            space,
            type_name,
            align or TYPE_BYTES[type_name] * vector,
            vector,
            offset,
            linkage,
        )
        dims = [whole_number(d, line) if d else 0 for d in _DIMENSION.findall(match.group(2))]
        if match.group(3):
            _initialise(variable, match.group(3).strip(), dims, vector, line)
        else:
            for dim in dims:
                variable.count *= dim
            variable.unsized = bool(dims) and dims[0] == 0
        if managed:
            variable.count = -1
        result.append(variable)
    if not result:
        raise invalid("a declaration without a name", line)
    return result


def parse_parameters(text: str, offset: int, line: int) -> list[Variable]:
    """The parameter list of a function."""
    return [v for part in split_top(text) for v in parse_variables(part, offset, line)]


def _nested(text: str, line: int) -> Nested:
    text = text.strip()
    if not text.startswith("{"):
        return text
    if not text.endswith("}"):
        raise invalid("initialiser is not closed", line)
    return [_nested(part, line) for part in split_top(text[1:-1])]


def _flatten(value: Nested, dims: list[int]) -> list[str]:
    """Rows that are shorter than their dimension are filled with zeros, as in C."""
    if isinstance(value, str):
        return [value]
    inner = dims[1:]
    row = 1
    for dim in inner:
        row *= dim
    flat: list[str] = []
    for item in value:
        part = _flatten(item, inner)
        if isinstance(item, list):
            part += ["0"] * (row - len(part))
        flat += part
    return flat


def _initialise(variable: Variable, text: str, dims: list[int], vector: int, line: int) -> None:
    shape = dims if vector == 1 else [*dims, vector]
    values = _flatten(_nested(text, line), shape)
    items: list[int | InitRef] = [0] * len(values)
    try:
        items = _items(values, variable.type, line)
    except PtxError as error:
        if error.kind != "unsupported_form":
            raise
        variable.broken = error.message
    count = vector
    for dim in dims[1:]:
        count *= dim
    if dims and dims[0]:
        count *= dims[0]
    elif dims:
        count *= -(-len(items) // count)
    if len(items) > count:
        raise invalid(f"{variable.name} has more initial values than elements", line)
    variable.count = count
    variable.init = tuple(items)
    variable.init_bytes = TYPE_BYTES[variable.type]


def _items(values: list[str], type_name: str, line: int) -> list[int | InitRef]:
    items: list[int | InitRef] = []
    masked: list[tuple[int, InitRef]] = []
    for value in values:
        entry = _value(value.strip(), type_name, line)
        if isinstance(entry, tuple) and not isinstance(entry, InitRef):
            shift, reference = entry
            masked.append((shift, reference))
            items.append(0)
            _join_masked(items, masked, line)
        else:
            if masked:
                raise PtxError("unsupported_form", "part of an address in an initialiser", line)
            items.append(entry)
    if masked:
        raise PtxError("unsupported_form", "part of an address in an initialiser", line)
    return items


def _join_masked(items: list[int | InitRef], masked: list[tuple[int, InitRef]], line: int) -> None:
    """Eight bytes ``0xFF(sym), 0xFF00(sym), ...`` in a row are one address."""
    shift, reference = masked[-1]
    if shift != 8 * (len(masked) - 1) or reference != masked[0][1]:
        raise PtxError("unsupported_form", "part of an address in an initialiser", line)
    if len(masked) == 8:
        items[-8] = reference
        masked.clear()


def _value(text: str, type_name: str, line: int) -> int | InitRef | tuple[int, InitRef]:
    literal = parse_literal(text)
    width = 8 * TYPE_BYTES[type_name]
    if isinstance(literal, Int):
        if type_name in ("f32", "f64"):
            return f32_bits(literal.value) if width == 32 else f64_bits(literal.value)
        return literal.value & ((1 << width) - 1)
    if isinstance(literal, Float):
        if literal.width == width:
            return literal.bits
        if width == 32:
            return f32_bits(literal.value)
        if width == 64:
            return f64_bits(literal.value)
        raise invalid(f"floating initial value for type .{type_name}", line)
    match = _ADDRESS.match(text)
    if match is None:
        raise invalid(f"cannot read the initial value {text[:40]!r}", line)
    addend = 0
    for sign, number in ((match.group(4), match.group(5)), (match.group(7), match.group(8))):
        if number:
            addend += whole_number(number, line) * (-1 if sign == "-" else 1)
    reference = InitRef(match.group(3), addend, bool(match.group(2)))
    mask = match.group(1)
    if mask is None:
        if width != 64:
            raise PtxError(
                "unsupported_form",
                f"address of {reference.symbol} in a .{type_name} initialiser",
                line,
            )
        return reference
    bits = int(mask, 16)
    shift = (bits & -bits).bit_length() - 1
    if width != 8 or bits >> shift != 0xFF:
        raise PtxError("unsupported_form", f"address mask {mask} in an initialiser", line)
    return (shift, reference)
