"""What passes on the data port while a program runs: TLS 1.3 records and nothing else.

The appliance tells clients another address of the loopback than the one it listens on; a relay
there records both directions of every connection, the launcher's and the program's.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.protocol.gen import messages as m
from security.pki import CertificateAuthority, write_client_folder
from tests.fakes.appliance import BUILD, Appliance
from tests.fakes.data_client import ROLE_AGENT, ConnectionEnded, DataClient, tls_context
from tests.fakes.relay import (
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    HANDSHAKE,
    TLS_1_2,
    TLS_1_3,
    Record,
    Recorded,
    Relay,
    records,
    supported_versions,
)
from tests.fakes.visitor import CLIENT

TOLD = "127.0.0.2"
PROGRAM = BUILD / "bin/driver_tests"
# An alert, its inner type and the cipher's tag: all that a record of two bytes can hold.
ALERT_RECORD = 2 + 1 + 16


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    for built in (BUILD / "bin/headrace-worker", PROGRAM):
        if not built.exists():
            pytest.fail(f"there is no {built}: run 'make build' first")
    folder = tmp_path_factory.mktemp("capture")
    with Appliance(folder, client=CLIENT, flags=["--advertise", TOLD]) as running:
        yield running


@pytest.fixture
def relay(appliance: Appliance) -> Iterator[Relay]:
    with Relay((TOLD, appliance.port), ("127.0.0.1", appliance.port)) as running:
        yield running


def check_tls_1_3_only(sent: bytes) -> list[Record]:
    """One direction: a hello in the clear, then ciphertext."""
    found = records(sent)
    hello, rest = found[0], found[1:]
    assert supported_versions(hello) == [TLS_1_3]
    # For old middleboxes every ciphertext claims to be TLS 1.2, and a byte without meaning is sent.
    assert all(record.version == TLS_1_2 for record in rest)
    changes = [record for record in rest if record.kind == CHANGE_CIPHER_SPEC]
    assert len(changes) <= 1
    assert all(record.body == b"\1" for record in changes)
    ciphertext = [record for record in rest if record.kind != CHANGE_CIPHER_SPEC]
    assert ciphertext
    assert all(record.kind == APPLICATION_DATA for record in ciphertext)
    return ciphertext


def test_a_program_s_connections_are_tls_1_3_and_nothing_else(
    appliance: Appliance, relay: Relay, tmp_path: Path
) -> None:
    authority = CertificateAuthority.load(appliance.state / "ca")
    config = tmp_path / "config"
    write_client_folder(authority, CLIENT, config, f"{TOLD}:{appliance.port}")
    done = appliance.run(
        *("run", "-n", "1", "-m", "512MiB", "--", PROGRAM, "--test-suite=memory,launches"),
        environment={"HEADRACE_CONFIG": str(config)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    relay.finish()

    (attached,) = appliance.log("session_attached")
    assert len(relay.connections) >= 2  # the launcher's, and the program's
    for connection in relay.connections:
        check_tls_1_3_only(connection.from_client)
        check_tls_1_3_only(connection.from_server)
    # Programs, code and data went through: what cannot be missing inside is not to be seen.
    assert sum(len(connection.from_client) for connection in relay.connections) > 1 << 20
    secrets = (CLIENT, "driver_tests", "headrace-worker", "Software GPU", ".visible .entry")
    for connection in relay.connections:
        for secret in (*secrets, attached["reservation"], attached["session"]):
            assert secret.encode() not in connection.from_client, secret
            assert secret.encode() not in connection.from_server, secret


def after_the_client_s_word(connection: Recorded) -> bytes:
    """What the server sent once the client had finished its part of the handshake."""
    client = server = b""
    for who, data in connection.chunks:
        if who == "client":
            client += data
        elif len(client) > 0 and any(r.kind == APPLICATION_DATA for r in records(client)):
            server += data
    return server


def test_a_client_without_a_certificate_gets_an_alert_and_no_byte_of_the_protocol(
    appliance: Appliance, relay: Relay
) -> None:
    authority = CertificateAuthority.load(appliance.state / "ca")
    context = tls_context(authority.root_pem, None, None)
    with DataClient.connect(relay.address, context) as guest:
        with pytest.raises((ConnectionEnded, ssl.SSLError)) as refused:
            guest.receive()
        assert "certificate required" in str(refused.value).lower().replace("_", " ")
        with contextlib.suppress(OSError):
            guest.send(m.Hello(1, 1, 0, ROLE_AGENT, ""), call=1)
    relay.finish()
    (connection,) = relay.connections
    check_tls_1_3_only(connection.from_server)
    told = records(after_the_client_s_word(connection))
    assert [len(record.body) for record in told] == [ALERT_RECORD]
    assert records(connection.from_server)[0].kind == HANDSHAKE
