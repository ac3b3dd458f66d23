"""NVML of the client and `headrace smi`: a slice looks like a GPU to what people watch GPUs with."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.fakes.appliance import BUILD, Appliance

LIBRARY = BUILD / "lib/client/libnvidia-ml.so.1"
MIB = 1 << 20
ALLOCATE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0
"""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    for built in (LIBRARY, BUILD / "bin/headrace"):
        if not built.exists():
            pytest.fail(f"there is no {built}: run 'make build' first")
    folder = tmp_path_factory.mktemp("watched") / "appliance"
    with Appliance(folder, software_gpu="2x4GiB") as running:
        yield running
    assert running.log("internal_error") == []


def run_python(appliance: Appliance, code: str, *, gpus: int = 1, memory: str = "1GiB") -> str:
    """A program inside `headrace run`; what it prints."""
    done = appliance.run(
        *("run", "-n", str(gpus), "-m", memory, "--", sys.executable, "-c", code), timeout=120
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("library", [LIBRARY, BUILD / "lib/softgpu/libnvidia-ml.so.1"])
def test_every_function_that_the_binding_knows_is_there(library: Path) -> None:
    """PyTorch, for one, fails where it does not find all that it knows."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in listed.splitlines()}
    source = Path(pynvml.__file__).read_text()
    known = set(re.findall(r"_nvmlGetFunctionPointer\(\s*[\"'](nvml\w+)[\"']", source))
    assert len(known) > 300
    assert known <= exported
    assert all(name.startswith("nvml") for name in exported), "only NVML's names are exported"


def test_the_slice_is_described(appliance: Appliance) -> None:
    printed = run_python(
        appliance,
        """
import json
import pynvml as n
n.nvmlInit()
answers = []
for index in range(n.nvmlDeviceGetCount()):
    device = n.nvmlDeviceGetHandleByIndex(index)
    pci = n.nvmlDeviceGetPciInfo(device)
    memory = n.nvmlDeviceGetMemoryInfo(device)
    second = n.nvmlDeviceGetMemoryInfo(device, version=n.nvmlMemory_v2)
    assert (second.total, second.free, second.used) == (memory.total, memory.free, memory.used)
    uuid = n.nvmlDeviceGetUUID(device)
    for same in (n.nvmlDeviceGetHandleByUUID(uuid), n.nvmlDeviceGetHandleByPciBusId(pci.busId)):
        assert n.nvmlDeviceGetIndex(same) == index == n.nvmlDeviceGetMinorNumber(same)
    assert n.nvmlDeviceGetComputeRunningProcesses(device) == []
    assert n.nvmlDeviceGetGraphicsRunningProcesses(device) == []
    assert n.nvmlDeviceGetCudaComputeCapability(device) == (8, 0)
    assert n.nvmlDeviceGetArchitecture(device) == n.NVML_DEVICE_ARCH_AMPERE
    assert n.nvmlDeviceGetDisplayActive(device) == 0
    answers.append(
        [n.nvmlDeviceGetName(device), uuid, pci.busId, memory.total, memory.free, memory.used]
    )
print(json.dumps([answers, n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2()]))
n.nvmlShutdown()
""",
        gpus=2,
    )
    devices, driver, cuda = json.loads(printed)
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?", driver)
    assert cuda >= 13000
    assert [one[2] for one in devices] == ["00000000:01:00.0", "00000000:02:00.0"]
    assert devices[0][1] != devices[1][1]
    for name, uuid, _, total, free, used in devices:
        assert "Headrace Software GPU" in name
        assert uuid.startswith("GPU-")
        assert (total, free, used) == (1024 * MIB, 1024 * MIB, 0)


def test_what_a_slice_does_not_have_is_refused_by_name(appliance: Appliance) -> None:
    run_python(
        appliance,
        """
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
for ask in (
    lambda: n.nvmlDeviceGetTemperature(device, 0),
    lambda: n.nvmlDeviceGetPowerUsage(device),
    lambda: n.nvmlDeviceGetClockInfo(device, 0),
    lambda: n.nvmlDeviceGetUtilizationRates(device),
    lambda: n.nvmlDeviceGetMigMode(device),
    lambda: n.nvmlDeviceGetEccMode(device),
    lambda: n.nvmlDeviceGetSerial(device),
    lambda: n.nvmlDeviceGetPersistenceMode(device),
):
    try:
        ask()
    except n.NVMLError_NotSupported:
        continue
    raise AssertionError("answered")
for ask in (
    lambda: n.nvmlDeviceGetHandleBySerial("1"),
    lambda: n.nvmlDeviceGetHandleByUUID("GPU-0"),
    lambda: n.nvmlDeviceGetHandleByPciBusId("0000:7f:00.0"),
):
    try:
        ask()
    except n.NVMLError_NotFound:
        continue
    raise AssertionError("found")
n.nvmlShutdown()
try:
    n.nvmlDeviceGetCount()
except n.NVMLError_Uninitialized:
    pass
""",
    )


def test_memory_and_processes_follow_the_program(appliance: Appliance) -> None:
    run_python(
        appliance,
        f"""
import os
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
def check(least, most):
    memory = n.nvmlDeviceGetMemoryInfo(device)
    assert memory.used + memory.free == memory.total
    assert least <= memory.used <= most, memory.used
    return memory.used
check(0, 0)
{ALLOCATE}
used = check(64 << 20, 80 << 20)
for processes in (
    n.nvmlDeviceGetComputeRunningProcesses_v3(device),
    n.nvmlDeviceGetComputeRunningProcesses_v2(device),
):
    assert [(one.pid, one.usedGpuMemory) for one in processes] == [(os.getpid(), used)]
assert "python" in n.nvmlSystemGetProcessName(os.getpid())
assert cuda.cuMemFree_v2(address) == 0
assert cuda.cuCtxSynchronize() == 0
check(0, 0)
""",
    )


def test_another_reservation_is_not_seen(appliance: Appliance) -> None:
    inner = (
        "import pynvml as n; n.nvmlInit(); d = n.nvmlDeviceGetHandleByIndex(0);"
        "m = n.nvmlDeviceGetMemoryInfo(d);"
        "print(m.used, n.nvmlDeviceGetComputeRunningProcesses(d))"
    )
    program = f"""
{ALLOCATE}
import os, subprocess, sys
environment = dict(os.environ)
for name in ("HEADRACE_SESSION", "LD_LIBRARY_PATH"):
    environment.pop(name)
subprocess.run(
    [{str(BUILD / "bin/headrace")!r}, "run", "-m", "1GiB", "--", sys.executable, "-c", {inner!r}],
    env=environment, check=True,
)
"""
    assert run_python(appliance, program).strip() == "0 []"


def test_a_forked_child_watches_by_itself(appliance: Appliance) -> None:
    run_python(
        appliance,
        """
import os
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
total = n.nvmlDeviceGetMemoryInfo(device).total
child = os.fork()
if child == 0:
    ok = n.nvmlDeviceGetMemoryInfo(device).total == total
    n.nvmlShutdown()
    n.nvmlInit()
    ok = ok and n.nvmlDeviceGetCount() == 1
    os._exit(0 if ok else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert n.nvmlDeviceGetMemoryInfo(device).total == total
""",
    )


def test_without_a_reservation_the_driver_is_not_loaded() -> None:
    code = """
import pynvml
try:
    pynvml.nvmlInit()
except pynvml.NVMLError_DriverNotLoaded:
    print("not loaded")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"LD_LIBRARY_PATH": str(LIBRARY.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "not loaded\n", "")


def test_nvitop_shows_the_slice(appliance: Appliance) -> None:
    printed = run_python(
        appliance,
        f"""
{ALLOCATE}
import os
from nvitop import Device
device, = Device.all()
with device.oneshot():
    assert device.memory_total() == 1 << 30
    assert device.memory_used() + device.memory_free() == 1 << 30
    assert device.memory_used() >= 64 << 20
assert os.getpid() in device.processes()
print(device.name())
""",
    )
    assert "Headrace Software GPU" in printed
    shown = appliance.run("run", "-m", "1GiB", "--", sys.executable, "-m", "nvitop", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "1024MiB" in shown.stdout


def smi(appliance: Appliance, *words: str, gpus: int = 1) -> str:
    """`headrace smi WORDS…` inside a reservation."""
    command = appliance.command("smi", *words)
    done = appliance.run("run", "-n", str(gpus), "-m", "1GiB", "--", *command)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_smi_answers_queries(appliance: Appliance) -> None:
    fields = (
        "index,name,uuid,memory.total,memory.used,memory.free,utilization.gpu,driver_version,"
        "pci.bus_id,compute_cap,temperature.gpu"
    )
    rows = list(csv.reader(io.StringIO(smi(appliance, f"--query-gpu={fields}", "--format=csv"))))
    header = [cell.strip() for cell in rows[0]]
    values = [cell.strip() for cell in rows[1]]
    assert header[3:7] == [
        *("memory.total [MiB]", "memory.used [MiB]", "memory.free [MiB]", "utilization.gpu [%]")
    ]
    assert values[0] == "0"
    assert values[3:7] == ["1024 MiB", "0 MiB", "1024 MiB", "[N/A]"]
    assert values[8:] == ["00000000:01:00.0", "8.0", "[N/A]"]
    bare = smi(appliance, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits", gpus=2)
    assert bare == "0, 1024\n1, 1024\n"
    assert smi(appliance, "--query-gpu=index", "--format=csv,noheader", "-i", "1", gpus=2) == "1\n"


def test_smi_shows_tables_and_lists(appliance: Appliance) -> None:
    table = smi(appliance)
    assert "Headrace Software GPU" in table
    assert "1 GiB" in table
    assert "No process of the reservation holds memory." in table
    assert re.fullmatch(r"GPU 0: Headrace.* \(UUID: GPU-[0-9a-f-]{36}\)\n", smi(appliance, "-L"))
    details = smi(appliance, "-q")
    assert "Memory Total          : 1024 MiB" in details
    told = json.loads(smi(appliance, "--json"))
    assert told["schema"] == "headrace.smi/1"
    assert told["gpus"][0]["memory_bytes"] == 1 << 30


def test_smi_names_the_programs(appliance: Appliance) -> None:
    command = appliance.command(
        "smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"
    )
    printed = run_python(
        appliance,
        f"{ALLOCATE}\nimport os, subprocess\nprint(os.getpid(), flush=True)\n"
        f"subprocess.run({command!r}, check=True)\n",
    )
    pid, line = printed.splitlines()
    assert re.fullmatch(rf"{pid}, .*python.*, (6[4-9]|7\d) MiB", line)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 1, "headrace run -n 1 -- headrace smi"),
        (("--query-gpu=memry.used", "--format=csv"), 2, "did you mean memory.used?"),
        (("--query-gpu=index",), 2, "--format=csv"),
        (("-q", "-L"), 2, "do not go together"),
        (("extra",), 2, "headrace help smi"),
    ],
)
def test_smi_says_what_to_do(
    appliance: Appliance, words: tuple[str, ...], status: int, said: str
) -> None:
    done = appliance.run("smi", *words)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stdout == ""
