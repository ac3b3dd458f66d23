"""An attached session with a context, for tests that speak the protocol themselves."""

from __future__ import annotations

import struct

from remoting.protocol.gen import messages as m
from tests.fakes import driver_calls
from tests.fakes.data_client import DataClient, frame
from tests.fakes.driver_calls import CONTEXT, Reply, call_type, handle, trip

SUCCESS, OUT_OF_MEMORY = 0, 2
INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED = 200, 201, 400, 801


class Cuda:
    """The few calls with which a session proves that it works."""

    def __init__(self, client: DataClient) -> None:
        self.client = client
        self.context = handle(CONTEXT)
        self.send("cuDevicePrimaryCtxRetain", struct.pack("<Qi", self.context, 0))
        client.send(m.SetContext(self.context))

    def send(self, name: str, payload: bytes) -> None:
        """A call that nobody awaits."""
        driver_calls.send(self.client, name, payload)

    def ask(self, name: str, payload: bytes = b"") -> Reply:
        """A call and its answer."""
        return trip(self.client, name, payload)

    def allocate(self, size: int) -> int:
        """The address of new device memory."""
        result, address = driver_calls.allocate(self.client, size)
        assert result == SUCCESS
        return address

    def upload(self, address: int, data: bytes) -> None:
        """Copy to the device."""
        driver_calls.upload(self.client, address, data)

    def download(self, address: int, size: int) -> bytes:
        """Copy to the host."""
        got = self.try_download(address, size)
        assert (got.result, got.deferred) == (SUCCESS, SUCCESS), got
        return got.data

    def try_download(self, address: int, size: int) -> Reply:
        """The same where it may fail."""
        return driver_calls.download(self.client, address, size)

    def request_download(self, address: int, size: int, call: int) -> None:
        """Only ask for the bytes."""
        payload = struct.pack("<QQQ", address, size, 0)
        self.client.send_raw(frame(call_type("cuMemcpyDtoHAsync_v2"), payload, call=call))


def upload_payload(address: int, data: bytes) -> bytes:
    """cuMemcpyHtoDAsync_v2 on the null stream."""
    return struct.pack("<QI", address, len(data)) + data + struct.pack("<Q", 0)
