"""Identities of people and machines, and how they appear where names must not."""

from __future__ import annotations

from security.identity.pseudonyms import Kind, Pseudonyms

__all__ = ["Kind", "Pseudonyms"]
