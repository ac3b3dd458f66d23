"""A wait of one thread does not stop another's work, and copies keep their place in a stream."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remoting.protocol.gen import messages as m
from tests.fakes.data_client import MORE, DataClient, frame
from tests.fakes.driver_calls import (
    BLOB,
    FUNCTION,
    MODULE,
    STREAM,
    allocate,
    call_type,
    download,
    enter_context,
    handle,
    send,
    trip,
)
from tests.fakes.stub_appliance import BUILD, Slice, StubAppliance

DRIVER = BUILD / "lib/softgpu/libcuda.so.1"
GPU = {"HEADRACE_SOFTGPU": "1x1GiB"}
STEPS = 100_000_000

# A chain of steps that nobody can shorten, then one store.
PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry chain(.param .u64 out, .param .u32 steps)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  .reg .pred %p;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [steps];
  mov.u32 %r2, 1;
again:
  mad.lo.u32 %r2, %r2, 1664525, 1013904223;
  add.u32 %r1, %r1, -1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra again;
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
PRINT_UUID = """
import ctypes, sys
cuda, uuid = ctypes.CDLL(sys.argv[1]), ctypes.create_string_buffer(16)
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetUuid_v2(uuid, 0) == 0
print(uuid.raw.hex())
"""


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    if not DRIVER.exists():
        pytest.fail(f"there is no {DRIVER}: run 'make build' first")
    uuid = subprocess.run(
        [sys.executable, "-c", PRINT_UUID, DRIVER],
        env={**os.environ, **GPU},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    gpu = Slice(uuid=bytes.fromhex(uuid), memory=256 << 20)
    environment = {**GPU, "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    with StubAppliance(
        driver=DRIVER, slices=[gpu], environment=environment, software=True
    ) as running:
        yield running


def load_chain(client: DataClient) -> int:
    """The kernel's handle."""
    client.send(m.BlobBegin(blob=handle(BLOB), size=len(PTX), raw_size=len(PTX), encoding=0))
    client.send(m.BlobData(blob=handle(BLOB), offset=0, data=PTX))
    load = struct.pack("<QQI", handle(MODULE), handle(BLOB), 0)
    loaded = trip(client, "cuModuleLoadDataEx", load)
    assert (loaded.result, loaded.fields[:4]) == (0, bytes(4))
    name = b"chain"
    wanted = struct.pack("<QQI", handle(FUNCTION), handle(MODULE), len(name)) + name
    assert trip(client, "cuModuleGetFunction", wanted).result == 0
    return handle(FUNCTION)


def test_waits_are_answered_when_done_and_others_before(stub: StubAppliance) -> None:
    with stub.client() as client:
        client.attach()
        enter_context(client)
        kernel = load_chain(client)
        _, address = allocate(client, 4096)
        stream = handle(STREAM)
        send(client, "cuStreamCreate", struct.pack("<QI", stream, 1))

        block = struct.pack("<QII", address, STEPS, 0)
        launch = struct.pack("<Q7IQI", kernel, 1, 1, 1, 1, 1, 1, 0, stream, len(block)) + block
        send(client, "cuLaunchKernel", launch)
        copy = struct.pack("<QQQ", address, 4, stream)
        client.send_raw(frame(call_type("cuMemcpyDtoHAsync_v2"), copy, call=1))
        send(client, "cuMemsetD8Async", struct.pack("<QBQQ", address, 0, 4, stream))
        wait = struct.pack("<Q", stream)
        client.send_raw(frame(call_type("cuStreamSynchronize"), wait, call=2))
        client.send_raw(frame(call_type("cuCtxGetLimit"), struct.pack("<i", 0), call=3))

        order, data = [], b""
        while len(order) < 3:
            reply = client.receive()
            if reply.flags & MORE:
                data += reply.payload
            else:
                assert struct.unpack_from("<ii", reply.payload) == (0, 0)
                order.append(reply.call)
        assert order[0] == 3
        assert sorted(order) == [1, 2, 3]
        # Read before the fill that was sent after it, although the stream was busy all the time.
        assert data != bytes(4)
        assert download(client, address, 4, stream).data == bytes(4)


def test_a_client_that_leaves_its_kernel_running_leaves_nothing_else(stub: StubAppliance) -> None:
    with stub.client() as client:
        client.attach()
        enter_context(client)
        kernel = load_chain(client)
        _, address = allocate(client, 4096)
        block = struct.pack("<QII", address, STEPS, 0)
        launch = struct.pack("<Q7IQI", kernel, 1, 1, 1, 1, 1, 1, 0, 0, len(block)) + block
        send(client, "cuLaunchKernel", launch)
        client.send_raw(frame(call_type("cuCtxSynchronize"), call=1))
        assert trip(client, "cuCtxGetLimit", struct.pack("<i", 0)).result == 0
    stub.wait_for_worker(-1)
    assert stub.used[0] == 0
    (report,) = stub.reports
    assert report.event == "lost"
