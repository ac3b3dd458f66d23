"""Pseudonyms: stable under one key, unrelated under another, readable."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from security.identity import Kind, Pseudonyms
from security.pki import StateError


def test_the_form_is_readable_and_the_name_is_not_in_it() -> None:
    pseudonym = Pseudonyms(b"k" * 32).of(Kind.USER, "joerg")
    assert re.fullmatch(r"u-[0-9a-hjkmnp-tv-z]{8}", pseudonym)


def test_known_answer() -> None:
    # HMAC-SHA-256 by definition; a change here makes old and new logs impossible to join.
    assert Pseudonyms(bytes(32)).of(Kind.CLIENT, "lab-3") == "c-p4qyqsqf"


def test_stable_per_key_and_unrelated_across_kinds_and_keys() -> None:
    one, two = Pseudonyms(b"1" * 32), Pseudonyms(b"2" * 32)
    assert one.of(Kind.USER, "a") == one.of(Kind.USER, "a")
    tails = {one.of(kind, "a")[2:] for kind in Kind} | {two.of(kind, "a")[2:] for kind in Kind}
    assert len(tails) == 2 * len(Kind)


def test_the_key_is_made_once_private_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "pseudonym.key"
    first = Pseudonyms.open(path).of(Kind.USER, "a")
    assert Pseudonyms.open(path).of(Kind.USER, "a") == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(StateError, match="damaged"):
        Pseudonyms.open(path)
