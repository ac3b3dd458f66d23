"""The CA: what it issues, what it accepts, and why it refuses the rest."""

from __future__ import annotations

import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from security.pki import (
    CertificateAuthority,
    CertificateError,
    ClientIdentity,
    PkiError,
    PublicKeyError,
    Reason,
    SessionIdentity,
    StateError,
    check_peer,
    load_public_der,
    make_key,
    public_der,
    utc_now,
    write_client_folder,
)
from security.profiles import tls_profile


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority.create(tmp_path_factory.mktemp("pki") / "ca")


SESSION = SessionIdentity("lab-3", "jörg", "r-1")


def test_an_issued_session_certificate_is_accepted(authority: CertificateAuthority) -> None:
    issued = authority.issue_session(SESSION, make_key().public_key())
    assert check_peer(issued.der, authority.issuing, utc_now()) == SESSION


def test_an_issued_client_certificate_passes_an_independent_verifier(
    authority: CertificateAuthority,
) -> None:
    issued = authority.issue_client("lab-3", make_key().public_key())
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store([authority.root]))
        .build_client_verifier()
    )
    verified = verifier.verify(issued.certificate, [authority.issuing])
    assert verified.subjects is not None
    assert [name.value for name in verified.subjects] == ["headrace://client/lab-3"]


def test_an_issued_server_certificate_passes_an_independent_verifier(
    authority: CertificateAuthority,
) -> None:
    issued = authority.issue_server(["gpu1.lab", "127.0.0.1", "::1"], make_key().public_key())
    builder = verification.PolicyBuilder().store(verification.Store([authority.root]))
    builder.build_server_verifier(x509.DNSName("gpu1.lab")).verify(
        issued.certificate, [authority.issuing]
    )
    lifetime = issued.expires - utc_now()
    assert lifetime <= tls_profile().server_lifetime
    with pytest.raises(verification.VerificationError):
        builder.build_server_verifier(x509.DNSName("other.lab")).verify(
            issued.certificate, [authority.issuing]
        )


def test_a_certificate_of_another_ca_is_refused(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    other = CertificateAuthority.create(tmp_path / "other")
    issued = other.issue_client("lab-3", make_key().public_key())
    assert refusal(issued.der, authority) is Reason.OTHER_CA


def test_expiry_is_sharp_at_the_end_and_tolerant_at_the_start(
    authority: CertificateAuthority,
) -> None:
    issued = authority.issue_client("lab-3", make_key().public_key(), timedelta(minutes=5))
    start = issued.certificate.not_valid_before_utc
    second = timedelta(seconds=1)
    assert refusal(issued.der, authority, issued.expires) is None
    assert refusal(issued.der, authority, issued.expires + second) is Reason.EXPIRED
    early = start - tls_profile().accept_early
    assert refusal(issued.der, authority, early) is None
    assert refusal(issued.der, authority, early - second) is Reason.NOT_YET_VALID


def test_a_clock_that_is_behind_accepts_a_fresh_certificate(
    authority: CertificateAuthority,
) -> None:
    issued = authority.issue_client("lab-3", make_key().public_key())
    behind = utc_now() - tls_profile().backdate
    assert refusal(issued.der, authority, behind) is None


def test_a_server_certificate_is_no_client_certificate(authority: CertificateAuthority) -> None:
    issued = authority.issue_server(["localhost"], make_key().public_key())
    assert refusal(issued.der, authority) is Reason.PURPOSE


def test_the_issuing_certificate_is_no_client_certificate(
    authority: CertificateAuthority,
) -> None:
    der = authority.issuing.public_bytes(serialization.Encoding.DER)
    assert refusal(der, authority) is Reason.OTHER_CA


@pytest.mark.parametrize("der", [b"", b"\x30\x03\x02\x01\x01", b"x" * 100, b"\x30" * 9000])
def test_garbage_is_malformed(authority: CertificateAuthority, der: bytes) -> None:
    assert refusal(der, authority) is Reason.MALFORMED


def test_a_certificate_with_bytes_after_it_is_malformed(authority: CertificateAuthority) -> None:
    issued = authority.issue_client("lab-3", make_key().public_key())
    assert refusal(issued.der + b"\0", authority) is Reason.MALFORMED


URI = x509.UniformResourceIdentifier
CLIENT = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


@pytest.mark.parametrize(
    ("names", "purpose", "reason"),
    [
        ([URI("headrace://client/a")], CLIENT, None),
        ([URI("headrace://client/a"), URI("headrace://client/b")], CLIENT, Reason.IDENTITY),
        ([URI("headrace://client/a"), x509.DNSName("b")], CLIENT, Reason.IDENTITY),
        ([x509.DNSName("headrace")], CLIENT, Reason.IDENTITY),
        ([URI("https://client/a")], CLIENT, Reason.IDENTITY),
        ([], CLIENT, Reason.IDENTITY),
        ([URI("headrace://client/a")], None, Reason.PURPOSE),
        (
            [URI("headrace://client/a")],
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            Reason.PURPOSE,
        ),
    ],
)
def test_what_the_ca_would_never_issue_is_refused(
    authority: CertificateAuthority,
    names: list[x509.GeneralName],
    purpose: x509.ExtendedKeyUsage | None,
    reason: Reason | None,
) -> None:
    der = sign_odd(authority, names, purpose)
    assert refusal(der, authority) is reason


def test_a_critical_extension_that_we_do_not_know_is_refused(
    authority: CertificateAuthority,
) -> None:
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    der = sign_odd(authority, [URI("headrace://client/a")], CLIENT, critical=unknown)
    assert refusal(der, authority) is Reason.PURPOSE


def test_keys_from_strangers_must_be_p256() -> None:
    assert load_public_der(public_der(make_key().public_key()))
    p384 = ec.generate_private_key(ec.SECP384R1()).public_key()
    rsa_key = rsa.generate_private_key(65537, 2048).public_key()
    encode = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    for der in (b"", b"\x30\x00", p384.public_bytes(*encode), rsa_key.public_bytes(*encode)):
        with pytest.raises(PublicKeyError):
            load_public_der(der)
    with pytest.raises(PublicKeyError):
        load_public_der(public_der(make_key().public_key()) + b"\0")
    with pytest.raises(PublicKeyError):
        load_public_der(b"\0" * 2000)


def test_key_files_are_private_and_the_ca_opens_again(tmp_path: Path) -> None:
    made = CertificateAuthority.open(tmp_path / "ca")
    again = CertificateAuthority.open(tmp_path / "ca")
    assert made.fingerprint == again.fingerprint
    issued = again.issue_client("a", make_key().public_key())
    assert check_peer(issued.der, made.issuing, utc_now()) == ClientIdentity("a")
    for key in ("root.key", "issuing.key"):
        assert stat.S_IMODE((tmp_path / "ca" / key).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700
    assert not list((tmp_path / "ca").glob(".*"))


def test_the_root_key_may_be_off_line(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path / "ca")
    (tmp_path / "ca" / "root.key").unlink()
    assert CertificateAuthority.load(tmp_path / "ca").issue_client("a", make_key().public_key())


def test_a_damaged_or_exposed_ca_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StateError) as missing:
        CertificateAuthority.load(tmp_path / "none")
    assert "python -m security.pki init" in missing.value.hint
    CertificateAuthority.create(tmp_path / "ca")
    CertificateAuthority.create(tmp_path / "other")
    key = tmp_path / "ca" / "issuing.key"
    key.chmod(0o644)
    with pytest.raises(StateError, match="read by others"):
        CertificateAuthority.load(tmp_path / "ca")
    key.chmod(0o600)
    original = key.read_bytes()
    key.write_bytes((tmp_path / "other" / "issuing.key").read_bytes())
    with pytest.raises(StateError, match=r"not issuing\.pem's"):
        CertificateAuthority.load(tmp_path / "ca")
    key.write_bytes(original)
    (tmp_path / "ca" / "issuing.pem").write_bytes((tmp_path / "other" / "issuing.pem").read_bytes())
    with pytest.raises(StateError, match="damaged"):
        CertificateAuthority.load(tmp_path / "ca")


@pytest.mark.parametrize("name", ["root.pem", "issuing.pem", "issuing.key"])
@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish\n", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_a_damaged_file_of_the_ca_is_named_in_our_own_words(
    tmp_path: Path, name: str, content: bytes
) -> None:
    folder = tmp_path / "ca"
    CertificateAuthority.create(folder)
    (folder / name).write_bytes(content)
    with pytest.raises(StateError, match="damaged") as refused:
        CertificateAuthority.open(folder)
    assert name in refused.value.message
    assert "http" not in refused.value.message
    assert "backup" in refused.value.hint


def test_an_interrupted_first_start_is_made_again(tmp_path: Path) -> None:
    CertificateAuthority.create(tmp_path / "ca")
    (tmp_path / "ca" / "root.pem").unlink()
    assert CertificateAuthority.open(tmp_path / "ca").issue_client("a", make_key().public_key())


def test_nothing_outlives_the_issuing_ca(tmp_path: Path) -> None:
    now = utc_now()
    authority = CertificateAuthority.create(tmp_path / "ca", lambda: now)
    end = authority.issuing.not_valid_after_utc
    late = CertificateAuthority.load(tmp_path / "ca", lambda: end - timedelta(days=1))
    assert late.issue_client("a", make_key().public_key()).expires == end
    dead = CertificateAuthority.load(tmp_path / "ca", lambda: end + timedelta(days=1))
    with pytest.raises(PkiError, match="expired"):
        dead.issue_client("a", make_key().public_key())


def test_the_client_folder_is_complete_and_not_overwritten(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    write_client_folder(authority, "lab-3", tmp_path / "c", "127.0.0.1:7444")
    assert {p.name for p in (tmp_path / "c").iterdir()} == {
        "ca.pem",
        "client.conf",
        "client.key",
        "client.pem",
    }
    assert (tmp_path / "c" / "client.conf").read_text() == "server 127.0.0.1:7444\n"
    assert stat.S_IMODE((tmp_path / "c" / "client.key").stat().st_mode) == 0o600
    with pytest.raises(StateError):
        write_client_folder(authority, "lab-3", tmp_path / "c")


def test_the_command_line_makes_a_ca_and_a_client_and_explains_failures(tmp_path: Path) -> None:
    ca, out = tmp_path / "ca", tmp_path / "out"
    failed = command("client", ca, "lab-3", out)
    assert failed.returncode == 1
    assert "there is no CA" in failed.stderr
    assert f"python -m security.pki init {ca}" in failed.stderr
    assert "fingerprint" in command("init", ca, check=True).stdout
    assert command("client", ca, "lab-3", out, check=True).stdout.startswith("client 'lab-3'")
    again = command("init", ca)
    assert again.returncode == 1
    assert "already" in again.stderr
    assert "Traceback" not in failed.stderr + again.stderr


def command(*words: str | Path, check: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "security.pki", *map(str, words)],
        check=check,
        capture_output=True,
        text=True,
    )


def refusal(
    der: bytes, authority: CertificateAuthority, now: datetime | None = None
) -> Reason | None:
    try:
        check_peer(der, authority.issuing, now or datetime.now(UTC))
    except CertificateError as error:
        return error.reason
    return None


def sign_odd(
    authority: CertificateAuthority,
    names: list[x509.GeneralName],
    purpose: x509.ExtendedKeyUsage | None,
    critical: x509.ExtensionType | None = None,
) -> bytes:
    """Sign with the real issuing key what the CA's own methods would not sign."""
    now = utc_now()
    key = make_key().public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")]))
        .issuer_name(authority.issuing.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(True, False, False, False, False, False, False, False, False),
            critical=True,
        )
    )
    if purpose:
        builder = builder.add_extension(purpose, critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if critical:
        builder = builder.add_extension(critical, critical=True)
    return builder.sign(authority._key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
