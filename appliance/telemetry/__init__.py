"""What the appliance says about itself."""

from __future__ import annotations

from appliance.telemetry.logs import open_log

__all__ = ["open_log"]
