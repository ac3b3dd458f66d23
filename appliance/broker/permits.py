"""Which message a worker may send in which phase (PROTOCOL.md §11). Everything else ends it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from remoting.protocol.codec import Message
from remoting.protocol.gen import messages as m


class Phase(StrEnum):
    """How far a worker's connection has come."""

    NEW = "new"
    IDENTIFIED = "identified"
    AGENT = "agent"
    SESSION = "session"
    ATTACHED = "attached"


_ALWAYS: tuple[type[Message], ...] = (m.Ping, m.Pong, m.Close)

PERMITS: Mapping[Phase, frozenset[type[Message]]] = {
    Phase.NEW: frozenset({*_ALWAYS, m.WorkerHello}),
    Phase.IDENTIFIED: frozenset({*_ALWAYS, m.WorkerReport, m.PeerCheck}),
    Phase.AGENT: frozenset(
        {*_ALWAYS, m.WorkerReport, m.ListRequest, m.ReserveRequest, m.ReleaseRequest}
    ),
    Phase.SESSION: frozenset({*_ALWAYS, m.WorkerReport, m.StatusRequest, m.SessionRequest}),
    Phase.ATTACHED: frozenset({*_ALWAYS, m.WorkerReport, m.MemoryRequest}),
}
