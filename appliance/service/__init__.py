"""headraced: the composition root. `python -m appliance.service --help` lists its settings."""

from __future__ import annotations
