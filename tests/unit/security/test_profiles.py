"""`tls.toml` is what both languages use."""

from __future__ import annotations

import re
from pathlib import Path

from security.profiles import tls_profile

COMMON = Path(__file__).resolve().parents[3] / "remoting" / "common"


def sources() -> str:
    """All C++ of both ends, string literals that are written in pieces joined."""
    text = "\n".join(path.read_text() for path in sorted(COMMON.glob("*.[ch]*")))
    return re.sub(r'"\s*\n\s*"', "", text)


def test_cpp_uses_the_ciphersuites_and_groups_of_the_profile() -> None:
    profile, text = tls_profile(), sources()
    assert re.findall(r'set_ciphersuites\(\s*\w+,\s*"([^"]*)"', text) == [
        ":".join(profile.ciphersuites)
    ]
    assert re.findall(r'set1_groups_list\(\s*\w+,\s*"([^"]*)"', text) == [":".join(profile.groups)]


def test_cpp_speaks_the_version_of_the_profile_and_no_other() -> None:
    profile, text = tls_profile(), sources()
    assert (profile.minimum, profile.maximum) == ("1.3", "1.3")
    assert set(re.findall(r"set_(?:min|max)_proto_version\(\w+, (\w+)\)", text)) == {
        "TLS1_3_VERSION"
    }
    assert not profile.session_tickets
    assert "SSL_CTX_set_num_tickets(context, 0)" in text


def test_cpp_offers_the_alpn_of_the_profile() -> None:
    assert f'"{tls_profile().alpn_data}"' in sources()
