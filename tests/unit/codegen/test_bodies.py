"""Every hand-written body that the rows promise is there.

A body that is missing would only be noticed at run time: its export answers "not supported".
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remoting.codegen.cli import ROOT
from remoting.codegen.model import Api, CallClass

CLUSTERS = {"cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize"}
"""Thread block clusters came with compute capability 9.0, which the software GPU is below."""

SHARED = sorted((ROOT / "remoting/driverabi").glob("*_bodies.inc"))
"""Bodies that are the same in every library: a source of each includes them."""


def defined(folder: Path, head: str) -> set[str]:
    """Names of functions whose definition starts so, in the sources of a folder."""
    pattern = re.compile(rf"^{head} (cu[A-Z]\w*)\([^;{{]*\)\s*{{", re.MULTILINE)
    found: set[str] = set()
    for source in folder.rglob("*.cc"):
        text = source.read_text()
        found.update(pattern.findall(text))
        for shared in SHARED:
            if shared.name in text:
                found.update(pattern.findall(shared.read_text()))
    return found


def test_the_client_has_every_body_that_is_not_generated(api: Api) -> None:
    wanted = {
        f.row.name
        for f in api.functions
        if f.row.call_class is not CallClass.REFUSED and not f.client_generated
    }
    assert wanted - defined(ROOT / "remoting/client/families", "CUresult") == set()


@pytest.mark.parametrize(
    ("kind", "head"), [("custom", "CUresult"), ("deferred", "std::optional<CUresult>")]
)
def test_the_worker_has_every_body_of_its_rows(api: Api, kind: str, head: str) -> None:
    wanted = {f.row.name for f in api.carried if f.row.worker == kind}
    assert wanted - defined(ROOT / "remoting/worker/bodies", head) == set()


def test_the_software_gpu_does_what_is_carried_to_a_server(api: Api) -> None:
    """Whatever travels is carried out by the driver: the software GPU must know it."""
    known = defined(ROOT / "remoting/softgpu/driver", "CUresult")
    assert {f.row.name for f in api.carried} - known == CLUSTERS
