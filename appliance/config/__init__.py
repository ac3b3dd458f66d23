"""Settings of the daemon: one declaration each feeds flag, environment, file and help."""

from __future__ import annotations

from appliance.config.endpoint import Endpoint
from appliance.config.load import ConfigError, flag_of, load_settings
from appliance.config.settings import Settings

__all__ = ["ConfigError", "Endpoint", "Settings", "flag_of", "load_settings"]
