"""The instruction families.  Importing them fills the whitelist."""

from __future__ import annotations


def load_all() -> None:
    """Register every family."""
    from . import (  # noqa: F401
        approx,
        atomics,
        bits,
        compare,
        convert,
        floating,
        half,
        integer,
        matrix,
        memory,
        moves,
        narrow,
        sync,
        system_calls,
        video,
        warp,
        wmma,
    )
