"""The software GPU's libnvidia-ml.so.1 as an inventory sees it, through the Python binding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release") / "lib/softgpu"

INVENTORY = """
import json, pynvml
pynvml.nvmlInit()
out = {"driver": pynvml.nvmlSystemGetDriverVersion(),
       "cuda": pynvml.nvmlSystemGetCudaDriverVersion(), "devices": []}
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid, pci = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetPciInfo(handle).busId
    for same in (pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlDeviceGetHandleByPciBusId(pci)):
        assert pynvml.nvmlDeviceGetIndex(same) == index
    refused = []
    for query in (pynvml.nvmlDeviceGetMigMode, pynvml.nvmlDeviceGetPowerUsage):
        try:
            query(handle)
        except pynvml.NVMLError_NotSupported:
            refused.append(query.__name__)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    out["devices"].append({
        "name": pynvml.nvmlDeviceGetName(handle), "uuid": uuid, "pci": pci,
        "total": memory.total, "used": memory.used, "refused": refused,
        "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle),
        "processes": [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]})
pynvml.nvmlShutdown()
print(json.dumps(out))
"""

# Takes memory of device 0, shows the inventory, and its own pid.
HOLDER = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(100 << 20)) == 0
"""


def run(code: str, **settings: str) -> dict[str, object]:
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LD_PRELOAD") if name in os.environ
    }
    environment |= {"LD_LIBRARY_PATH": str(LIBRARIES), "HEADRACE_SOFTGPU": "2x256MiB", **settings}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.fixture(autouse=True)
def _built() -> None:
    if not (LIBRARIES / "libnvidia-ml.so.1").exists():
        pytest.fail(f"no libnvidia-ml.so.1 in {LIBRARIES}: run 'make build' first")


def devices(answer: dict[str, object]) -> list[dict[str, object]]:
    found = answer["devices"]
    assert isinstance(found, list)
    return found


def test_inventory() -> None:
    answer = run(INVENTORY, HEADRACE_SOFTGPU_CC="8.6")
    assert answer["cuda"] == 13000
    one, two = devices(answer)
    assert one["name"] == "Headrace Software GPU"
    assert one["total"] == 256 << 20
    assert one["used"] == 0
    assert one["capability"] == [8, 6]
    assert one["refused"] == ["nvmlDeviceGetMigMode", "nvmlDeviceGetPowerUsage"]
    assert one["uuid"] != two["uuid"]
    assert one["pci"] != two["pci"]


def test_identities_are_stable() -> None:
    first, second = devices(run(INVENTORY)), devices(run(INVENTORY))
    assert [d["uuid"] for d in first] == [d["uuid"] for d in second]


def test_memory_of_all_processes_of_a_state_directory_is_seen(tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    busy, idle = devices(run(HOLDER + INVENTORY, HEADRACE_SOFTGPU_STATE=state))
    assert busy["used"] == 100 << 20
    assert len(busy["processes"]) == 1  # type: ignore[arg-type]
    assert idle["used"] == 0
    # The holder is gone, and so is what it held.
    after, _ = devices(run(INVENTORY, HEADRACE_SOFTGPU_STATE=state))
    assert after["used"] == 0
    assert after["processes"] == []
