"""The whitelist: which complete instruction forms exist, and who generates them.

A form is an opcode with all its modifiers and types.  Each generator in ``families/`` declares the
forms it covers with a pattern: text in which ``{name:.a|.b|}`` stands for one of the alternatives
(an empty one makes it optional).  The generator gets the chosen alternative of every named slot,
without its dot, so it never has to search modifiers.  A form that no pattern matches is refused
by name: nothing is ever guessed from a part of it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .errors import UnsupportedForm

if TYPE_CHECKING:
    from .generator import Generator
    from .model import Instr

Slots = dict[str, str]
Handler = Callable[["Generator", "Instr", Slots], None]

_SLOT = re.compile(r"\{(?:(\w+):)?([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One whitelisted family of forms."""

    text: str
    regex: re.Pattern[str]
    handler: Handler
    writes: bool
    """The first operand is a destination."""
    operands: tuple[int, int]
    """Least and greatest number of operands."""

    def expand(self) -> Iterator[str]:
        """Every complete form of the pattern."""
        parts: list[list[str]] = []
        pos = 0
        for match in _SLOT.finditer(self.text):
            parts += [[self.text[pos : match.start()]], match.group(2).split("|")]
            pos = match.end()
        parts.append([self.text[pos:]])
        for choice in itertools.product(*parts):
            yield "".join(choice)

    def choices(self) -> Iterator[Choice]:
        """Everything that the generator may be given, each with one complete form.

        The words without a name take turns in these forms.
        """
        slots = [(m.group(1), m.group(2).split("|"), m.span()) for m in _SLOT.finditer(self.text)]
        named = [(name, options) for name, options, _ in slots if name]
        silent = [options for name, options, _ in slots if not name]
        count = math.prod(len(options) for options in silent)
        for number, chosen in enumerate(itertools.product(*(options for _, options in named))):
            given = iter(chosen)
            turn = number % count
            text, pos = "", 0
            for name, options, (start, end) in slots:
                text += self.text[pos:start]
                if name:
                    text += next(given)
                else:
                    turn, pick = divmod(turn, len(options))
                    text += options[pick]
                pos = end
            values = [option.removeprefix(".") for option in chosen]
            names = [name for name, _ in named]
            yield Choice(text + self.text[pos:], dict(zip(names, values, strict=True)), count)


class Choice(NamedTuple):
    """What a generator may be given."""

    example: str
    """One complete form that means this."""
    slots: Slots
    forms: int
    """How many complete forms mean this."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form found in the whitelist."""

    pattern: Pattern
    slots: Slots


_by_opcode: dict[str, list[Pattern]] = {}
_found: dict[str, Form | None] = {}


def _compile(text: str) -> re.Pattern[str]:
    out, pos = "", 0
    for match in _SLOT.finditer(text):
        out += re.escape(text[pos : match.start()])
        choices = "|".join(re.escape(c) for c in match.group(2).split("|"))
        out += f"(?P<{match.group(1)}>{choices})" if match.group(1) else f"(?:{choices})"
        pos = match.end()
    return re.compile(out + re.escape(text[pos:]))


def form(
    *patterns: str, operands: int | tuple[int, int], writes: bool = True
) -> Callable[[Handler], Handler]:
    """Declare the forms that a generator covers, and how many operands they take."""
    limits = (operands, operands) if isinstance(operands, int) else operands

    def register(handler: Handler) -> Handler:
        for text in patterns:
            opcode = re.split(r"[.{]", text, maxsplit=1)[0]
            pattern = Pattern(text, _compile(text), handler, writes, limits)
            _by_opcode.setdefault(opcode, []).append(pattern)
        return handler

    return register


def find(name: str) -> Form | None:
    """The whitelist's entry for a complete form."""
    if name not in _found:
        _found[name] = None
        for pattern in _by_opcode.get(name.split(".", 1)[0], ()):
            match = pattern.regex.fullmatch(name)
            if match is not None:
                slots = {
                    key: (value or "").removeprefix(".") for key, value in match.groupdict().items()
                }
                _found[name] = Form(pattern, slots)
                break
    return _found[name]


def require(name: str, line: int) -> Form:
    """The whitelist's entry, or the refusal by name."""
    found = find(name)
    if found is None:
        raise UnsupportedForm(name, line)
    return found


def all_patterns() -> list[Pattern]:
    """Everything that is whitelisted (for tests and the coverage page)."""
    return [pattern for patterns in _by_opcode.values() for pattern in patterns]
