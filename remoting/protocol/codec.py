"""What the generated message classes are made of: a writer, a bounded reader, and their base.

Encoding refuses what the other side would refuse (a value over its limit, a number that does not
fit), and decoding refuses everything that `messages.toml` does not allow, without partial results.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Self, TypeVar

T = TypeVar("T")

_FORMATS = {
    word: struct.Struct("<" + letter)
    for word, letter in {
        "u8": "B",
        "u16": "H",
        "u32": "I",
        "u64": "Q",
        "i32": "i",
        "i64": "q",
        "f32": "f",
        "f64": "d",
    }.items()
}


class CodecError(ValueError):
    """A payload that does not decode, or a value that cannot be encoded. The text says why."""


class Writer:
    """Appends values to a payload."""

    def __init__(self) -> None:
        """Start empty."""
        self._parts: list[bytes] = []

    def scalar(self, word: str, value: float) -> None:
        """Append a number of the given type word."""
        try:
            self._parts.append(_FORMATS[word].pack(value))
        except struct.error as error:
            raise CodecError(f"{value!r} is no {word}") from error

    def flag(self, value: bool) -> None:
        """Append one byte, 0 or 1."""
        self._parts.append(b"\1" if value else b"\0")

    def raw(self, value: bytes, size: int) -> None:
        """Append exactly `size` raw bytes."""
        if len(value) != size:
            raise CodecError(f"{len(value)} bytes where {size} belong")
        self._parts.append(bytes(value))

    def block(self, value: bytes, limit: int) -> None:
        """Append a length and the bytes."""
        if len(value) > limit:
            raise CodecError(f"{len(value)} bytes are over the limit of {limit}")
        self.scalar("u32", len(value))
        self._parts.append(value)

    def text(self, value: str, limit: int) -> None:
        """Append a length and the text in UTF-8."""
        try:
            self.block(value.encode(), limit)
        except UnicodeEncodeError as error:
            raise CodecError(f"{value!r} is no UTF-8 text") from error

    def items(self, values: Sequence[T], limit: int, write: Callable[[T], None]) -> None:
        """Append a count and the elements."""
        if len(values) > limit:
            raise CodecError(f"{len(values)} elements are over the limit of {limit}")
        self.scalar("u32", len(values))
        for value in values:
            write(value)

    def payload(self) -> bytes:
        """What was appended."""
        return b"".join(self._parts)


class Reader:
    """Takes values from a payload, never past its end."""

    def __init__(self, payload: bytes) -> None:
        """Start at the first byte."""
        self._payload = memoryview(payload)
        self._at = 0

    def _take(self, count: int) -> memoryview:
        if count > len(self._payload) - self._at:
            raise CodecError(
                f"{count} bytes wanted at {self._at}, {len(self._payload) - self._at} are left"
            )
        view = self._payload[self._at : self._at + count]
        self._at += count
        return view

    def integer(self, word: str) -> int:
        """A whole number of the given type word."""
        form = _FORMATS[word]
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def real(self, word: str) -> float:
        """A floating-point number of the given type word."""
        form = _FORMATS[word]
        (value,) = form.unpack(self._take(form.size))
        return float(value)

    def flag(self) -> bool:
        """One byte, which must be 0 or 1."""
        byte = self._take(1)[0]
        if byte > 1:
            raise CodecError(f"{byte} where a bool belongs")
        return byte == 1

    def raw(self, size: int) -> bytes:
        """Exactly `size` raw bytes."""
        return bytes(self._take(size))

    def block(self, limit: int) -> bytes:
        """A length within the limit, and that many bytes."""
        count = self.integer("u32")
        if count > limit:
            raise CodecError(f"{count} bytes are over the limit of {limit}")
        return bytes(self._take(count))

    def text(self, limit: int) -> str:
        """A length within the limit, and that many bytes of UTF-8."""
        try:
            return self.block(limit).decode()
        except UnicodeDecodeError as error:
            raise CodecError(f"text that is not UTF-8: {error.reason}") from error

    def items(self, limit: int, smallest: int, read: Callable[[], T]) -> list[T]:
        """A count within the limit, and the elements, each of at least `smallest` bytes."""
        count = self.integer("u32")
        if count > limit:
            raise CodecError(f"{count} elements are over the limit of {limit}")
        if count * smallest > len(self._payload) - self._at:
            raise CodecError(f"{count} elements are more than the payload holds")
        return [read() for _ in range(count)]

    def finish(self) -> None:
        """Refuse bytes that are left over."""
        left = len(self._payload) - self._at
        if left:
            raise CodecError(f"{left} bytes are left over")


class Message(ABC):
    """Base of every message."""

    __slots__ = ()

    TYPE: ClassVar[int]
    PHASE: ClassVar[str]
    SENDER: ClassVar[str]
    ANSWER: ClassVar[int]
    """Type of the expected answer, 0 for none."""
    OPEN: ClassVar[bool]
    """Whether later versions may have appended fields, which are passed over."""

    @abstractmethod
    def write(self, writer: Writer) -> None:
        """Append all fields."""

    @classmethod
    @abstractmethod
    def read(cls, reader: Reader) -> Self:
        """Take all fields."""

    def encode(self) -> bytes:
        """The payload; raises CodecError when a field is over its limit."""
        writer = Writer()
        self.write(writer)
        return writer.payload()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Read a payload; raises CodecError when anything is off or, unless open, left over."""
        reader = Reader(payload)
        message = cls.read(reader)
        if not cls.OPEN:
            reader.finish()
        return message
