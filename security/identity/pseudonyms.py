"""Keyed pseudonyms: what logs, metrics and tables show instead of names.

`u-7f3k9q2m` is the first 40 bits of HMAC-SHA-256 under a key of the current epoch. The same name
gives the same pseudonym within an epoch, so lines can be joined; without the key nobody can try
names; when an epoch's key is destroyed, nobody can at all.
"""

from __future__ import annotations

import hmac
import secrets
from enum import StrEnum
from pathlib import Path

from security.pki import files
from security.pki.errors import StateError

_KEY_BYTES = 32
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no i, l, o, u to misread
_LETTERS = 8


class Kind(StrEnum):
    """What a name is of; the same word as a user and as a host gives unrelated pseudonyms."""

    USER = "u"
    CLIENT = "c"
    HOST = "h"
    ADDRESS = "a"


class Pseudonyms:
    """Makes pseudonyms with one epoch's key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a pseudonym key has {_KEY_BYTES} bytes")
        self._key = key

    @classmethod
    def open(cls, path: Path) -> Pseudonyms:
        """Read the key file, or make it at the first start."""
        if not path.exists():
            files.write_file(path, secrets.token_bytes(_KEY_BYTES), files.PRIVATE, replace=False)
        key = files.read_private_file(path)
        if len(key) != _KEY_BYTES:
            raise StateError(f"{path} is damaged: {len(key)} bytes, not {_KEY_BYTES}")
        return cls(key)

    def of(self, kind: Kind, name: str) -> str:
        """The pseudonym of a name."""
        message = kind.value.encode() + b"\0" + name.encode("utf-8", "surrogatepass")
        digest = hmac.digest(self._key, message, "sha256")
        bits = int.from_bytes(digest[: _LETTERS * 5 // 8], "big")
        letters = [_ALPHABET[bits >> shift & 31] for shift in range(_LETTERS * 5 - 5, -1, -5)]
        return f"{kind.value}-{''.join(letters)}"
