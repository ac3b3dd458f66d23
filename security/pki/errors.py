"""What can go wrong with keys and certificates.

PkiError              message and hint for people
├── IdentityError     a name that is not one of ours, or not written the one permitted way
├── CertificateError  a certificate that is not accepted; `reason` says why
├── PublicKeyError    a key that is not accepted
└── StateError        files that are missing, in the way, or damaged
"""

from __future__ import annotations

from enum import StrEnum


class PkiError(Exception):
    """A failure with a text and, where there is one, the next step."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class IdentityError(PkiError):
    """Not an identity of ours."""


class Reason(StrEnum):
    """Why a certificate is not accepted, for logs and for the peer."""

    MALFORMED = "malformed"
    OTHER_CA = "of another CA"
    EXPIRED = "expired"
    NOT_YET_VALID = "not yet valid"
    PURPOSE = "of another purpose"
    IDENTITY = "without an identity of ours"


class CertificateError(PkiError):
    """A certificate that is not accepted."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PublicKeyError(PkiError):
    """A public or private key that is not accepted."""


class StateError(PkiError):
    """Files of the CA that are missing, in the way, or damaged."""
