"""The pool's CA: a root that signs once, and an issuing CA that signs everything else.

Folder: `root.pem`, `root.key` (may go off-line: nothing here needs it again), `issuing.pem`,
`issuing.key`. Keys are 0600. Only `headracectl`, the daemon and the installer's tokens come here;
no worker ever holds a key of the CA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from security.pki import files, keys
from security.pki.errors import PkiError, PublicKeyError, StateError
from security.pki.identities import ClientIdentity, Identity, SessionIdentity
from security.profiles import tls_profile

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The wall clock, whole seconds, as certificates count."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class IssuedCertificate:
    """A signed certificate; what a peer needs besides it is the issuing CA's certificate."""

    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def der(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain_der(self) -> bytes:
        """Intermediate certificates, concatenated."""
        return self.issuer.public_bytes(serialization.Encoding.DER)

    @property
    def pem(self) -> bytes:
        """The certificate followed by its chain, as TLS libraries read it."""
        return self.certificate.public_bytes(serialization.Encoding.PEM) + self.issuer.public_bytes(
            serialization.Encoding.PEM
        )

    @property
    def expires(self) -> datetime:
        """The last second at which it is accepted."""
        return self.certificate.not_valid_after_utc


class CertificateAuthority:
    """Signs certificates of clients, sessions and workers' servers with the issuing key."""

    def __init__(
        self,
        root: x509.Certificate,
        issuing: x509.Certificate,
        key: keys.PrivateKey,
        clock: Clock = utc_now,
    ) -> None:
        self.root = root
        self.issuing = issuing
        self._key = key
        self._clock = clock

    @classmethod
    def create(cls, folder: Path, clock: Clock = utc_now) -> CertificateAuthority:
        """Make a CA in a folder that has none. root.pem is written last: only with it there is a
        CA, so one that was interrupted is simply made again."""
        if (folder / "root.pem").exists():
            raise StateError(f"there is a CA in {folder} already")
        files.make_private_folder(folder)
        profile, now = tls_profile(), clock()
        root_key, issuing_key = keys.make_key(), keys.make_key()
        root = _sign_authority(
            "Headrace root CA", None, root_key, root_key, now, profile.root_lifetime, path_length=1
        )
        issuing = _sign_authority(
            "Headrace issuing CA",
            root,
            issuing_key,
            root_key,
            now,
            profile.issuing_lifetime,
            path_length=0,
        )
        files.write_file(folder / "root.key", keys.private_pem(root_key), files.PRIVATE)
        files.write_file(folder / "issuing.key", keys.private_pem(issuing_key), files.PRIVATE)
        files.write_file(folder / "issuing.pem", _pem(issuing), files.PUBLIC)
        files.write_file(folder / "root.pem", _pem(root), files.PUBLIC, replace=False)
        return cls(root, issuing, issuing_key, clock)

    @classmethod
    def load(cls, folder: Path, clock: Clock = utc_now) -> CertificateAuthority:
        """Open the CA in a folder. Its root key is not needed."""
        if not (folder / "root.pem").exists():
            raise StateError(
                f"there is no CA in {folder}", hint=f"python -m security.pki init {folder}"
            )
        root = _load_certificate(folder, "root.pem")
        issuing = _load_certificate(folder, "issuing.pem")
        try:
            key = keys.load_private_pem(files.read_private_file(folder / "issuing.key"))
        except PublicKeyError as error:
            raise _damaged(folder, f"issuing.key is {error.message}") from error
        try:
            issuing.verify_directly_issued_by(root)
        except (ValueError, TypeError, InvalidSignature) as error:
            raise _damaged(folder, "its chain does not verify") from error
        if keys.public_der(key.public_key()) != _spki(issuing):
            raise _damaged(folder, "issuing.key is not issuing.pem's")
        return cls(root, issuing, key, clock)

    @classmethod
    def open(cls, folder: Path, clock: Clock = utc_now) -> CertificateAuthority:
        """Load the CA, or make it at the first start."""
        if (folder / "root.pem").exists():
            return cls.load(folder, clock)
        return cls.create(folder, clock)

    @property
    def root_pem(self) -> bytes:
        """What everyone pins."""
        return _pem(self.root)

    @property
    def trust_der(self) -> bytes:
        """What client certificates are checked against, as the protocol carries it."""
        return self.root.public_bytes(serialization.Encoding.DER)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the root certificate, as people compare it."""
        return self.root.fingerprint(hashes.SHA256()).hex()

    def issue_client(
        self, name: str, public_key: keys.PublicKey, lifetime: timedelta | None = None
    ) -> IssuedCertificate:
        """A certificate for an enrolled client."""
        return self._issue_identity(
            ClientIdentity(name), public_key, lifetime or tls_profile().client_lifetime
        )

    def issue_session(
        self,
        identity: SessionIdentity,
        public_key: keys.PublicKey,
        lifetime: timedelta | None = None,
    ) -> IssuedCertificate:
        """A certificate with which the processes of one reservation attach."""
        return self._issue_identity(
            identity, public_key, lifetime or tls_profile().session_lifetime
        )

    def issue_server(
        self,
        hosts: Sequence[str],
        public_key: keys.PublicKey,
        lifetime: timedelta | None = None,
    ) -> IssuedCertificate:
        """A server certificate for one worker, for the names and addresses of the appliance."""
        if not hosts:
            raise PkiError("a server certificate needs at least one name or address")
        alternatives = x509.SubjectAlternativeName([_host_name(host) for host in hosts])
        return self._issue(
            "server",
            alternatives,
            ExtendedKeyUsageOID.SERVER_AUTH,
            public_key,
            lifetime or tls_profile().server_lifetime,
        )

    def _issue_identity(
        self, identity: Identity, public_key: keys.PublicKey, lifetime: timedelta
    ) -> IssuedCertificate:
        kind = "client" if isinstance(identity, ClientIdentity) else "session"
        alternatives = x509.SubjectAlternativeName(
            [x509.UniformResourceIdentifier(identity.to_uri())]
        )
        return self._issue(
            kind, alternatives, ExtendedKeyUsageOID.CLIENT_AUTH, public_key, lifetime
        )

    def _issue(
        self,
        kind: str,
        alternatives: x509.SubjectAlternativeName,
        purpose: x509.ObjectIdentifier,
        public_key: keys.PublicKey,
        lifetime: timedelta,
    ) -> IssuedCertificate:
        now = self._clock()
        until = min(now + lifetime, self.issuing.not_valid_after_utc)
        if until <= now:
            raise PkiError("the issuing CA has expired", hint="make a new pool CA and enrol again")
        certificate = (
            x509.CertificateBuilder()
            # The identity is in the alternative name alone, so that there is one place to look.
            .subject_name(_name(f"Headrace {kind}"))
            .issuer_name(self.issuing.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - tls_profile().backdate)
            .not_valid_after(until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(alternatives, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(_authority_key_identifier(self.issuing), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return IssuedCertificate(certificate, self.issuing)


def _damaged(folder: Path, why: str) -> StateError:
    return StateError(
        f"the CA in {folder} is damaged: {why}",
        hint=f"restore {folder} from a backup; without one: mv {folder} {folder}.damaged, "
        "start again, and enrol every client anew",
    )


def _load_certificate(folder: Path, name: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(files.read_file(folder / name))
    except ValueError as error:  # whose text is a library's, for its own users
        raise _damaged(folder, f"{name} is not a certificate in PEM") from error


def _sign_authority(
    name: str,
    issuer: x509.Certificate | None,
    key: keys.PrivateKey,
    signing_key: keys.PrivateKey,
    now: datetime,
    lifetime: timedelta,
    path_length: int,
) -> x509.Certificate:
    subject = _name(name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - tls_profile().backdate)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if issuer:
        builder = builder.add_extension(_authority_key_identifier(issuer), critical=False)
    return builder.sign(signing_key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Headrace"),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise PkiError(f"{host!r} is neither an address nor an ASCII host name") from error


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _spki(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
