"""Daemon and worker together, with real TLS and the software GPU: how a visit begins and ends.

Those who do not get in are in test_bad_input_peers.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.core.sizes import GIB
from remoting.protocol.gen import messages as m
from tests.fakes.appliance import BUILD, Appliance
from tests.fakes.data_client import ROLE_AGENT, ROLE_SESSION
from tests.fakes.visitor import CLIENT, Visitor, reserve


@pytest.fixture
def appliance(tmp_path: Path) -> Appliance:
    for built in ("bin/headrace-worker", "lib/softgpu/libcuda.so.1"):
        if not (BUILD / built).exists():
            pytest.fail(f"there is no {BUILD / built}: run 'make build' first")
    return Appliance(tmp_path / "appliance", client=CLIENT)


@pytest.fixture
def visitor(tmp_path: Path) -> Callable[[Appliance], Visitor]:
    return lambda appliance: Visitor(appliance, tmp_path)


def test_a_client_reserves_and_a_program_attaches(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            (gpu,) = agent.ask(m.ListRequest(), m.ListReply).gpus
            assert gpu.software
            assert gpu.free_bytes == 4 * GIB
            grant = reserve(agent)
            assert grant.server == appliance.address
            with visit.session(grant.reservation) as program:
                attached = program.attach()
                (device,) = attached.devices
                assert device.total_memory == GIB
                assert device.uuid == grant.slices[0].slice_uuid
                assert attached.driver_version == 13000
                program.send(m.Close(0, ""))
            agent.ask(m.ReleaseRequest(grant.reservation), m.ReleaseReply)
            agent.send(m.Close(0, ""))
    events = [line["event"] for line in appliance.log()]
    assert "connection_failed" not in events
    assert {"reservation_granted", "session_attached", "reservation_ended"} <= set(events)


def test_the_worker_s_certificate_is_for_the_address_that_was_called(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance, visitor(appliance).agent() as agent:
        certificate = agent.socket.getpeercert()  # checked against 127.0.0.1 by the context
        assert certificate
        assert ("IP Address", "127.0.0.1") in certificate["subjectAltName"]
        assert agent.socket.version() == "TLSv1.3"


def test_a_session_ends_with_its_reservation(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            grant = reserve(agent)
            with visit.session(grant.reservation) as program:
                program.attach()
                agent.socket.close()
                close = program.closing()
                assert close.code == 3
                assert "the reservation is over" in close.text
        with visit.session(grant.reservation) as late:
            refused = m.Refuse.decode(late.request(m.Hello(1, 1, 0, ROLE_SESSION, "")).payload)
            assert refused.code == 3
        appliance.wait_for_log("connection_failed")
    (line,) = appliance.log("connection_failed")
    assert "over" in line["reason"]


def test_a_shutdown_says_so_to_clients(
    appliance: Appliance, visitor: Callable[[Appliance], Visitor]
) -> None:
    with appliance:
        visit = visitor(appliance)
        with visit.agent() as agent:
            agent.hello(ROLE_AGENT)
            with visit.session(reserve(agent).reservation) as program:
                program.attach()
                os.kill(appliance.pid, signal.SIGTERM)
                assert program.closing().code == 6
    assert appliance.log("connection_failed") == []
