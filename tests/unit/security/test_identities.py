"""Identities in certificates: one spelling each, and nothing else accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from security.pki import ClientIdentity, IdentityError, SessionIdentity, parse_identity

names = st.text(
    st.characters(exclude_categories=["C"], exclude_characters="\u2028\u2029"),
    min_size=1,
    max_size=60,
)


@given(names)
def test_a_client_identity_reads_back(name: str) -> None:
    assert parse_identity(ClientIdentity(name).to_uri()) == ClientIdentity(name)


@given(names, names, names)
def test_a_session_identity_reads_back(client: str, user: str, reservation: str) -> None:
    identity = SessionIdentity(client, user, reservation)
    assert parse_identity(identity.to_uri()) == identity
    assert identity.to_uri().isascii()


@given(st.text(max_size=80))
def test_what_is_accepted_is_canonical(tail: str) -> None:
    uri = "headrace://" + tail
    try:
        identity = parse_identity(uri)
    except IdentityError:
        return
    assert identity.to_uri() == uri


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "headrace://",
        "headrace://client",
        "headrace://client/",
        "headrace://client/a/b",
        "headrace://client/a/",
        "headrace://client/a?x",
        "headrace://client/a b",
        "headrace://client/%61",  # 'a' needs no escape
        "headrace://client/%c3%bc",  # lower-case hex
        "headrace://client/%C3",  # half a character
        "headrace://client/%",
        "headrace://client/%0A",
        "headrace://client/%00",
        "headrace://client/%E2%80%A8",  # a line separator
        "headrace://client/\u00fc",
        "Headrace://client/a",
        "headrace://CLIENT/a",
        "headrace://admin/a",
        "headrace://session/a/b",
        "headrace://session/a/b/c/d",
        "headrace://session//b/c",
        "headrace://client/" + "a" * 257,
        "headrace://client/" + "%20" * 2000,
        "https://client/a",
    ],
)
def test_refused(uri: str) -> None:
    with pytest.raises(IdentityError):
        parse_identity(uri)


@pytest.mark.parametrize("name", ["", "a\nb", "a\x00", "a\u2028b", "x" * 257, "\ud800"])
def test_a_name_that_cannot_be_certified_is_refused(name: str) -> None:
    with pytest.raises(IdentityError):
        ClientIdentity(name).to_uri()
