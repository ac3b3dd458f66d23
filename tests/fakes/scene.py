"""An appliance at work, to which bad guests come: what must go on is watched throughout.

Two reservations are held all the time, and a session of the first copies and checks after every
guest. The daemon logs at level debug, where the end of every worker is a line: a guest's end is
awaited by that line, and never by time.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from appliance.core.sizes import GIB, MIB
from remoting.protocol.gen import messages as m
from tests.fakes.appliance import Appliance
from tests.fakes.cuda import Cuda
from tests.fakes.data_client import ROLE_AGENT, ROLE_SESSION, DataClient
from tests.fakes.visitor import CLIENT, HOST, USER, Visitor, reserve

PHASES = ("hello", "agent", "session", "attached")
LOG_FLAGS = ("--log-level", "debug")
_LOUD = ("warning", "error", "critical")
_SECONDS = 30.0
_COPY = 64 << 10


class Scene:
    """A context manager around a running appliance."""

    def __init__(self, appliance: Appliance, folder: Path) -> None:
        self.appliance = appliance
        self.visitor = Visitor(appliance, folder)
        self._stack = contextlib.ExitStack()
        self._cookies = itertools.count(1)
        self._start = 0  # of the guests' part of the log

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.agent = stack.enter_context(self.visitor.agent())
            self.agent.hello(ROLE_AGENT)
            self.reservation = reserve(self.agent, GIB).reservation
            self.other_agent = stack.enter_context(self.visitor.agent())
            self.other_agent.hello(ROLE_AGENT)
            self.guest_reservation = reserve(self.other_agent, 512 * MIB).reservation
            client = stack.enter_context(self.visitor.session(self.reservation))
            client.attach()
            self.neighbour = Cuda(client)
            self.neighbour_memory = self.neighbour.allocate(_COPY)
            self.check_the_others()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def check_the_others(self) -> None:
        """The daemon answers, and the neighbour computes what is right."""
        for agent in (self.agent, self.other_agent):
            cookie = next(self._cookies)
            assert agent.ask(m.Ping(cookie), m.Pong).cookie == cookie
        data = os.urandom(_COPY)
        self.neighbour.upload(self.neighbour_memory, data)
        assert self.neighbour.download(self.neighbour_memory, len(data)) == data

    def enter(self, phase: str) -> DataClient:
        """A guest who has behaved well until it is in this phase."""
        if phase in ("hello", "agent"):
            client = self.visitor.agent()
        else:
            client = self.visitor.session(self.guest_reservation)
        try:
            if phase == "agent":
                client.hello(ROLE_AGENT)
            elif phase == "session":
                client.hello(ROLE_SESSION)
            elif phase == "attached":
                client.attach()
        except BaseException:
            client.socket.close()
            raise
        return client

    @contextlib.contextmanager
    def ends_with(self, *words: str, event: str = "connection_failed") -> Iterator[None]:
        """Inside, one guest comes. Afterwards it is gone, one line says why, the others go on."""
        with self.guests() as lines:
            yield
        (line,) = loud(lines)
        assert line["event"] == event, line
        for word in words:
            assert word in line["reason"], line
        assert line["peer"].startswith("a-")

    @contextlib.contextmanager
    def guests(self, count: int = 1) -> Iterator[list[dict[str, Any]]]:
        """Inside, guests come. Afterwards all are gone, and the list holds what was logged."""
        lines: list[dict[str, Any]] = []
        start = self._start = self.appliance.log_file.stat().st_size
        yield lines
        deadline = time.monotonic() + _SECONDS
        while True:
            lines[:] = self._log_since(start)
            started = {line["worker"] for line in lines if line["event"] == "worker_started"}
            over = {line["worker"] for line in lines if _is_the_end(line)}
            if len(started) >= count and started <= over:
                break
            assert time.monotonic() < deadline, lines
            time.sleep(0.005)
        assert len(started) == count, lines
        for pid in started:
            assert not Path(f"/proc/{pid}").exists()
        for line in lines:
            text = json.dumps(line)
            assert not any(name in text for name in (CLIENT, USER, HOST, "127.0.0.1")), line
        self.check_the_others()

    def wait_for(self, event: str) -> None:
        """Inside guests(): until the log has such a line of this time."""
        deadline = time.monotonic() + _SECONDS
        while not any(line["event"] == event for line in self._log_since(self._start)):
            assert time.monotonic() < deadline, f"no {event}"
            time.sleep(0.01)

    def _log_since(self, start: int) -> list[dict[str, Any]]:
        with self.appliance.log_file.open("rb") as file:
            file.seek(start)
            whole, _, _ = file.read().rpartition(b"\n")
        return [json.loads(line) for line in whole.splitlines()]


def loud(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that an administrator sees."""
    return [line for line in lines if line["level"] in _LOUD]


def _is_the_end(line: dict[str, Any]) -> bool:
    """The spawner's last word on a worker: it is gone, and its report is read."""
    return line["event"] in ("worker_ended", "worker_crashed") or (
        line["event"] == "connection_failed" and line.get("kind") == "worker"
    )
