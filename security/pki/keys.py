"""P-256 keys: making, storing, and reading those that strangers send."""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from security.pki.errors import PublicKeyError

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

_MAX_SPKI = 1024


def make_key() -> PrivateKey:
    """A new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def private_pem(key: PrivateKey) -> bytes:
    """PKCS#8 PEM, not encrypted: the file's mode protects it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_private_pem(pem: bytes) -> PrivateKey:
    """Read what `private_pem` wrote."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise PublicKeyError("not a private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not _is_p256(key.curve):
        raise PublicKeyError("not a P-256 private key")
    return key


def public_der(key: PublicKey) -> bytes:
    """DER SubjectPublicKeyInfo."""
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def load_public_der(der: bytes) -> PublicKey:
    """Read a SubjectPublicKeyInfo from a stranger: P-256, in its one usual encoding."""
    if len(der) > _MAX_SPKI:
        raise PublicKeyError(f"a public key of {len(der)} bytes")
    try:
        key = serialization.load_der_public_key(der)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PublicKeyError("not a public key in DER") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not _is_p256(key.curve):
        raise PublicKeyError("not a P-256 public key")
    if public_der(key) != der:
        raise PublicKeyError("a public key in an unusual encoding")
    return key


def _is_p256(curve: ec.EllipticCurve) -> bool:
    return isinstance(curve, ec.SECP256R1)
