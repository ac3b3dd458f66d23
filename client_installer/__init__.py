"""Installs the client on machines over SSH."""
