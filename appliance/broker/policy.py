"""What grants say that is the same for all: where clients connect, and what workers load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GrantPolicy:
    """Decided once at start by the composition root."""

    server: str | None
    """HOST:PORT that clients are told; None: the address at which they came in."""
    port: int
    """The port of the data plane, for an address at which somebody came in."""
    hosts: tuple[str, ...]
    """Names and addresses for the workers' server certificates."""
    driver_library: str
    software: bool
    environment: Mapping[str, str] = field(default_factory=dict)
    """What a worker sets before it loads the driver."""
    handshake_seconds: float = 10.0
    idle_seconds: float = 60.0
    stop_seconds: float = 5.0
    max_connections: int = 1024
