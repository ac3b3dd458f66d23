"""Who a certificate speaks for, written as a URI in its subject alternative name.

    headrace://client/NAME                       an enrolled machine, container or pod template
    headrace://session/CLIENT/USER/RESERVATION   the processes of one reservation

Every part is percent-encoded the one canonical way: unreserved characters (RFC 3986) literally,
everything else as %XX of its UTF-8 bytes in upper case. Any other spelling is refused, so that two
different URIs never mean the same identity.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

from security.pki.errors import IdentityError

_SCHEME = "headrace://"
_MAX_PART_BYTES = 256
_MAX_URI = 4096


@dataclass(frozen=True)
class ClientIdentity:
    """An enrolled client."""

    name: str

    def to_uri(self) -> str:
        """The URI of this client."""
        return _join("client", self.name)


@dataclass(frozen=True)
class SessionIdentity:
    """The right to attach to one reservation, for one user of one client."""

    client: str
    user: str
    reservation: str

    def to_uri(self) -> str:
        """The URI of this session."""
        return _join("session", self.client, self.user, self.reservation)


Identity = ClientIdentity | SessionIdentity


def parse_identity(uri: str) -> Identity:
    """Read a URI. Only the canonical form of the two kinds is accepted."""
    if len(uri) > _MAX_URI or not uri.startswith(_SCHEME):
        raise IdentityError("not a headrace:// identity")
    kind, *encoded = uri[len(_SCHEME) :].split("/")
    parts = [_decode(part) for part in encoded]
    match kind, parts:
        case "client", [name]:
            return ClientIdentity(name)
        case "session", [client, user, reservation]:
            return SessionIdentity(client, user, reservation)
    raise IdentityError("not a client or session identity")


def check_name(part: str, what: str = "name") -> str:
    """Accept a name for use in an identity, or say what is wrong with it."""
    size = len(part.encode("utf-8", "surrogatepass"))
    if not part:
        raise IdentityError(f"the {what} is empty")
    if size > _MAX_PART_BYTES:
        raise IdentityError(f"the {what} has {size} bytes, at most {_MAX_PART_BYTES} are permitted")
    # Controls, surrogates and unassigned code points; also the line and paragraph separators:
    # none belongs in a name, and each could forge a line somewhere.
    if any(unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" for c in part):
        raise IdentityError(f"the {what} contains a control or unassigned character")
    return part


def _join(kind: str, *parts: str) -> str:
    return _SCHEME + "/".join([kind, *(quote(check_name(part), safe="") for part in parts)])


def _decode(encoded: str) -> str:
    try:
        part = unquote_to_bytes(encoded).decode("utf-8")
    except UnicodeError as error:
        raise IdentityError("a part of the identity is not UTF-8") from error
    if quote(part, safe="") != encoded:
        raise IdentityError("a part of the identity is not in its canonical encoding")
    return check_name(part, "part of the identity")
