"""The pool's certificates: CA, issuing, identities, and the check of what a peer shows."""

from __future__ import annotations

from security.pki.authority import CertificateAuthority, IssuedCertificate, utc_now
from security.pki.check import check_peer
from security.pki.enroll import write_client_folder
from security.pki.errors import (
    CertificateError,
    IdentityError,
    PkiError,
    PublicKeyError,
    Reason,
    StateError,
)
from security.pki.identities import (
    ClientIdentity,
    Identity,
    SessionIdentity,
    check_name,
    parse_identity,
)
from security.pki.keys import load_public_der, make_key, private_pem, public_der

__all__ = [
    "CertificateAuthority",
    "CertificateError",
    "ClientIdentity",
    "Identity",
    "IdentityError",
    "IssuedCertificate",
    "PkiError",
    "PublicKeyError",
    "Reason",
    "SessionIdentity",
    "StateError",
    "check_name",
    "check_peer",
    "load_public_der",
    "make_key",
    "parse_identity",
    "private_pem",
    "public_der",
    "utc_now",
    "write_client_folder",
]
