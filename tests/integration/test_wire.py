"""What goes over the network: TLS 1.3 records, and nothing that can be read (PROTOCOL.md §1)."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.appliance import BUILD, Appliance
from tests.fakes.data_client import DataClient, tls_context
from tests.fakes.stub_appliance import StubAppliance
from tests.fakes.wire_tap import (
    ALERT,
    APPLICATION_DATA,
    CHANGE_CIPHER_SPEC,
    CLIENT_HELLO,
    HANDSHAKE,
    SERVER_HELLO,
    SUPPORTED_VERSIONS,
    TLS_1_3,
    Direction,
    WireTap,
    hello_extensions,
    records,
)

PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL(sys.argv[1])
def check(result): assert result == 0, result
context, address = ctypes.c_void_p(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
data = b"a secret that is easy to find " * 100_000
check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(len(data))))
check(cuda.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data))))
back = ctypes.create_string_buffer(len(data))
check(cuda.cuMemcpyDtoH_v2(back, address, ctypes.c_size_t(len(data))))
assert back.raw == data
"""


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    if not (BUILD / "lib/client/libcuda.so.1").exists():
        pytest.fail(f"there is no client library in {BUILD}: run 'make build' first")
    with StubAppliance() as running:
        yield running


def expect_tls_1_3(client: Direction, server: Direction) -> None:
    """A whole connection: hellos, then only records whose content is encrypted."""
    sent, answered = records(bytes(client.data)), records(bytes(server.data))
    assert TLS_1_3 in hello_extensions(sent[0], CLIENT_HELLO)[SUPPORTED_VERSIONS]
    assert hello_extensions(answered[0], SERVER_HELLO)[SUPPORTED_VERSIONS] == TLS_1_3
    for direction in (sent, answered):
        later = {record.type for record in direction[1:]}
        assert later <= {CHANGE_CIPHER_SPEC, APPLICATION_DATA}, later
        assert APPLICATION_DATA in later


def test_a_session_is_tls_1_3_and_unreadable(stub: StubAppliance, tmp_path: Path) -> None:
    with WireTap(stub.address) as tap:
        session = tmp_path / "session"
        stub.write_session_file(session, tap.address)
        subprocess.run(
            [sys.executable, "-c", PROGRAM, BUILD / "lib/client/libcuda.so.1"],
            env={**os.environ, "HEADRACE_SESSION": os.fspath(session)},
            check=True,
            timeout=60,
        )
        stub.wait_for_worker(-1)
    ((client, server),) = tap.connections
    expect_tls_1_3(client, server)
    for direction in (client, server):
        assert len(direction.data) > 3_000_000
        for word in (b"easy to find", b"headrace", b"Stub GPU", b"BEGIN", b"session"):
            # The protocol's name is offered in the clear part of the first message.
            assert word not in bytes(direction.data)[600:]


def test_a_reservation_is_tls_1_3(tmp_path: Path) -> None:
    with (
        Appliance(tmp_path / "appliance") as appliance,
        WireTap(("127.0.0.1", appliance.port)) as tap,
    ):
        host, port = tap.address
        done = appliance.run("list", "--server", f"{host}:{port}")
        assert done.returncode == 0, done.stderr
        assert "Headrace Software GPU" in done.stdout
    ((client, server),) = tap.connections
    expect_tls_1_3(client, server)


def say_something(address: tuple[str, int], context: ssl.SSLContext) -> None:
    with DataClient.connect(address, context) as client:
        client.send_raw(bytes(16))
        client.socket.recv(1)


def test_without_a_certificate_there_is_only_an_alert(stub: StubAppliance) -> None:
    with WireTap(stub.address) as tap:
        context = tls_context(stub.authority.root_pem, None, None)
        with pytest.raises(ssl.SSLError, match="certificate required"):
            say_something(tap.address, context)
        stub.wait_for_worker(-1)
    ((_, server),) = tap.connections
    answered = records(bytes(server.data))
    # The server's side of the handshake, and the alert: nothing of our protocol is that short.
    assert {record.type for record in answered} <= {HANDSHAKE, CHANGE_CIPHER_SPEC, APPLICATION_DATA}
    assert len(server.data) < 4096
    assert "showed no certificate" in stub.stderr()


def test_plaintext_is_answered_by_an_alert_at_most(stub: StubAppliance) -> None:
    for data in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes(64),
        b"\x16\x03\x01\xff\xff" + bytes(64),
    ):
        with socket.create_connection(stub.address, timeout=20) as plain:
            plain.sendall(data)
            answer = b""
            try:
                while part := plain.recv(4096):
                    answer += part
            except ConnectionError:
                pass
        assert len(answer) <= 7
        assert not answer or answer[0] == ALERT
    assert stub.stderr().count("plaintext?") == 3
