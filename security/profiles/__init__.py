"""Security parameters that are data: `tls.toml` here is the one place for TLS and certificates."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

TLS_PROFILE_FILE = Path(__file__).with_name("tls.toml")


@dataclass(frozen=True)
class TlsProfile:
    """`tls.toml`, typed."""

    minimum: str
    maximum: str
    ciphersuites: tuple[str, ...]
    groups: tuple[str, ...]
    session_tickets: bool
    alpn_data: str
    alpn_enroll: str
    curve: str
    hash: str
    root_lifetime: timedelta
    issuing_lifetime: timedelta
    client_lifetime: timedelta
    session_lifetime: timedelta
    server_lifetime: timedelta
    backdate: timedelta
    accept_early: timedelta


@cache
def tls_profile() -> TlsProfile:
    """Read `tls.toml`. A missing or misspelt key is a programming error and raises KeyError."""
    document = tomllib.loads(TLS_PROFILE_FILE.read_text(encoding="utf-8"))
    tls, certificate = document["tls"], document["certificate"]
    lifetime, skew = document["lifetime"], document["skew"]
    return TlsProfile(
        minimum=tls["minimum"],
        maximum=tls["maximum"],
        ciphersuites=tuple(tls["ciphersuites"]),
        groups=tuple(tls["groups"]),
        session_tickets=tls["session_tickets"],
        alpn_data=tls["alpn_data"],
        alpn_enroll=tls["alpn_enroll"],
        curve=certificate["curve"],
        hash=certificate["hash"],
        root_lifetime=timedelta(days=lifetime["root_days"]),
        issuing_lifetime=timedelta(days=lifetime["issuing_days"]),
        client_lifetime=timedelta(days=lifetime["client_days"]),
        session_lifetime=timedelta(hours=lifetime["session_hours"]),
        server_lifetime=timedelta(minutes=lifetime["server_minutes"]),
        backdate=timedelta(seconds=skew["backdate_seconds"]),
        accept_early=timedelta(seconds=skew["accept_early_seconds"]),
    )
