"""May this peer do what it asks? Certificates, roles and requests, before the pool is touched."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509

from appliance.core.errors import InvalidRequest, NotPermitted
from appliance.core.ids import ReservationId
from appliance.core.pool import Pool
from appliance.core.reservation import Reservation
from remoting.protocol.gen import messages as m
from security.identity import Kind, Pseudonyms
from security.pki import (
    CertificateError,
    ClientIdentity,
    Identity,
    IdentityError,
    PublicKeyError,
    SessionIdentity,
    check_name,
    check_peer,
    load_public_der,
)
from security.pki.keys import PublicKey

ROLE_AGENT, ROLE_SESSION = 1, 2


def admit_peer(certificate: bytes, issuing: x509.Certificate, now: float) -> Identity:
    """The identity that a certificate proves, or NotPermitted with the reason."""
    try:
        return check_peer(certificate, issuing, datetime.fromtimestamp(now, UTC))
    except CertificateError as error:
        raise NotPermitted(
            f"certificate {error.reason}: {error.message}",
            hint="ask the administrator for a certificate of this pool",
        ) from error


def admit_agent(identity: Identity) -> ClientIdentity:
    """Only an enrolled client may reserve."""
    if not isinstance(identity, ClientIdentity):
        raise NotPermitted("a session certificate cannot reserve; the client's own is needed")
    return identity


def admit_session(identity: Identity, pool: Pool) -> Reservation:
    """Only the holder of a reservation that is alive may attach to it."""
    if not isinstance(identity, SessionIdentity):
        raise NotPermitted(
            "a client certificate attaches to nothing; reserve first", hint="headrace run …"
        )
    reservation = pool.alive(ReservationId(identity.reservation))
    if (identity.client, identity.user) != (reservation.holder.client, reservation.holder.user):
        raise NotPermitted("the certificate is not of this reservation's holder")
    return reservation


def check_reserve_request(request: m.ReserveRequest) -> PublicKey:
    """Names that can be certified, and a key of the right kind; InvalidRequest names the field."""
    for field, value in (("user", request.user), ("host", request.host)):
        try:
            check_name(value, field)
        except IdentityError as error:
            raise InvalidRequest(error.message) from error
    try:
        return load_public_der(request.public_key)
    except PublicKeyError as error:
        raise InvalidRequest(f"public_key: {error.message}") from error


def principal(identity: Identity, pseudonyms: Pseudonyms) -> str:
    """Who it is, for log lines: the daemon's and the worker's."""
    match identity:
        case ClientIdentity(name):
            return pseudonyms.of(Kind.CLIENT, name)
        case SessionIdentity(client, user, _):
            return f"{pseudonyms.of(Kind.CLIENT, client)}/{pseudonyms.of(Kind.USER, user)}"
