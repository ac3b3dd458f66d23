"""What workers ask the daemon on its Unix socket (PROTOCOL.md §11).

A worker reads hostile bytes, so it may have been taken over: its frames are checked as a
stranger's, every phase permits only its own messages, and whatever it does ends that one
connection at most.
"""

from __future__ import annotations

from appliance.broker.policy import GrantPolicy
from appliance.broker.server import Broker

__all__ = ["Broker", "GrantPolicy"]
