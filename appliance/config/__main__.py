"""`python -m appliance.config`: write docs/reference/settings.md anew."""

from __future__ import annotations

from appliance.config.document import PAGE, settings_page

if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
