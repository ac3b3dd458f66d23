"""What the tests with bad guests share: one appliance that goes on through all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.appliance import BUILD, Appliance
from tests.fakes.scene import LOG_FLAGS, Scene
from tests.fakes.visitor import CLIENT


@pytest.fixture(scope="session")
def busy_appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A daemon that must have noticed nothing when all is over."""
    for built in ("bin/headrace-worker", "lib/softgpu/libcuda.so.1"):
        if not (BUILD / built).exists():
            pytest.fail(f"there is no {BUILD / built}: run 'make build' first")
    folder = tmp_path_factory.mktemp("busy") / "appliance"
    with Appliance(folder, client=CLIENT, flags=LOG_FLAGS) as appliance:
        yield appliance
    assert appliance.log("internal_error") == []


@pytest.fixture(scope="module")
def scene(busy_appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The appliance with a neighbour at work."""
    with Scene(busy_appliance, tmp_path_factory.mktemp("scene")) as scene:
        yield scene
