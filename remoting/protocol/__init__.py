"""The data protocol: message definitions and their Python codec."""
