"""Starts workers where there is no systemd, with the contract that systemd has with them."""

from __future__ import annotations

from appliance.spawner.compile_helper import CompileHelper
from appliance.spawner.spawner import Limits, Spawner, SpawnError

__all__ = ["CompileHelper", "Limits", "SpawnError", "Spawner"]
