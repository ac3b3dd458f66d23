"""Build-time generator for driver calls and messages."""
