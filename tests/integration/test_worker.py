"""The worker by itself: a stub around it, the null backend in it, our own frames to it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from tests.fakes.stub_appliance import ROOT, StubAppliance

pytestmark = pytest.mark.skipif(
    not (ROOT / "build/release/bin/headrace-worker").exists(), reason="make build has not run"
)


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    with StubAppliance() as running:
        yield running


def test_a_session_is_told_its_slice(stub: StubAppliance) -> None:
    with stub.client() as client:
        attached = client.attach()
    (device,) = attached.devices
    assert attached.session == "s-1"
    assert attached.driver_version == 13000
    assert device.name == "Stub GPU"
    assert device.total_memory == stub.slices[0].memory
    assert device.uuid == bytes([1] * 16)
    assert {pair.key: pair.value for pair in device.attributes}[75] == 8  # compute capability


def test_an_unknown_call_is_no_error_of_the_connection(stub: StubAppliance) -> None:
    with stub.client() as client:
        client.attach()
        for _ in range(2):
            reply = client.request_raw(0x1FFF, b"")
            assert struct.unpack("<iib", reply.payload) == (801, 0, 0)
