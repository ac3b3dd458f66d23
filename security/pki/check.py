"""Is this certificate one of ours, now, and whom does it speak for?

TLS has checked a peer's certificate already, in the worker. The daemon checks it again, since a
worker reads hostile bytes and the decision is the daemon's.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID

from security.pki.errors import CertificateError, IdentityError, Reason
from security.pki.identities import Identity, parse_identity
from security.profiles import tls_profile

_MAX_DER = 8192

# What our CA puts into a certificate of a client or session; a critical one besides these is
# something that we do not understand and must therefore refuse.
_KNOWN_CRITICAL = (x509.BasicConstraints, x509.KeyUsage)


def check_peer(der: bytes, issuing: x509.Certificate, now: datetime) -> Identity:
    """The identity in a client or session certificate, or CertificateError with the reason."""
    certificate = _parse(der)
    _check_signature(certificate, issuing)
    _check_time(certificate, now)
    try:
        _check_purpose(certificate)
        return _identity(certificate)
    except (ValueError, x509.DuplicateExtension) as error:
        raise CertificateError(Reason.MALFORMED, "an extension cannot be read") from error


def _parse(der: bytes) -> x509.Certificate:
    if len(der) > _MAX_DER:
        raise CertificateError(Reason.MALFORMED, f"a certificate of {len(der)} bytes")
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, TypeError) as error:
        raise CertificateError(Reason.MALFORMED, "not a certificate in DER") from error


def _check_signature(certificate: x509.Certificate, issuing: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(issuing)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise CertificateError(
            Reason.OTHER_CA, "the certificate was not issued by this pool's CA"
        ) from error


def _check_time(certificate: x509.Certificate, now: datetime) -> None:
    if now > certificate.not_valid_after_utc:
        raise CertificateError(
            Reason.EXPIRED,
            f"the certificate expired at {certificate.not_valid_after_utc:%F %T} UTC",
        )
    if now + tls_profile().accept_early < certificate.not_valid_before_utc:
        raise CertificateError(
            Reason.NOT_YET_VALID,
            f"the certificate is valid from {certificate.not_valid_before_utc:%F %T} UTC",
        )


def _check_purpose(certificate: x509.Certificate) -> None:
    def wrong(what: str) -> CertificateError:
        return CertificateError(Reason.PURPOSE, what)

    for extension in certificate.extensions:
        if extension.critical and not isinstance(extension.value, _KNOWN_CRITICAL):
            raise wrong(f"a critical extension {extension.oid.dotted_string} that is not known")
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
        extended = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound as error:
        raise wrong("the certificate does not say what it is for") from error
    if basic.ca or not usage.digital_signature:
        raise wrong("the certificate is not one of a client")
    if list(extended) != [ExtendedKeyUsageOID.CLIENT_AUTH]:
        raise wrong("the certificate is not for clients")


def _identity(certificate: x509.Certificate) -> Identity:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise CertificateError(Reason.IDENTITY, "the certificate names nobody") from error
    match list(names):
        case [x509.UniformResourceIdentifier() as uri]:
            try:
                return parse_identity(uri.value)
            except IdentityError as error:
                raise CertificateError(Reason.IDENTITY, error.message) from error
    raise CertificateError(Reason.IDENTITY, "the certificate does not name exactly one identity")
