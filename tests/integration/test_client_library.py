"""The client's libcuda.so.1 in processes that fork, exit late, lose their server, or have none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.fakes.stub_appliance import StubAppliance

ROOT = Path(__file__).parents[2]
BUILD = ROOT / os.environ.get("HEADRACE_TEST_BUILD", "build/release")
CLIENT = BUILD / "lib/client"
LATE_LIMIT = 5.0
"""Seconds for a program that ends; two and a half times what is promised, for a busy machine."""

PRELUDE = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def start():
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
"""


@pytest.fixture
def stub() -> Iterator[StubAppliance]:
    for needed in (BUILD / "bin/headrace-worker", CLIENT / "libcuda.so.1"):
        if not needed.exists():
            pytest.fail(f"no {needed}: run 'make build' first")
    appliance = StubAppliance(
        driver=BUILD / "lib/null/libcuda.so.1", worker=BUILD / "bin/headrace-worker"
    )
    with appliance as running:
        yield running


@pytest.fixture
def environment(stub: StubAppliance, tmp_path: Path) -> dict[str, str]:
    session = tmp_path / "session"
    stub.write_session_file(session)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {
        "LD_LIBRARY_PATH": str(CLIENT),
        "HEADRACE_SESSION": str(session),
        "HEADRACE_LOG": str(tmp_path / "client.log"),
    }


def run_python(code: str, environment: Mapping[str, str]) -> None:
    """Run a program on the client library; it must say nothing and end well."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_only_cuda_is_visible() -> None:
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", CLIENT / "libcuda.so.1"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")
    names = [line.split()[-1] for line in symbols if line]
    assert len(names) == 637
    assert all(name.startswith("cu") for name in names)
    dynamic = subprocess.run(
        ["readelf", "-d", CLIENT / "libcuda.so.1"], capture_output=True, text=True, check=True
    ).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.split("\n") if "NEEDED" in line]
    if "asan" not in str(BUILD):
        assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}


def test_fork_after_init(environment: dict[str, str]) -> None:
    run_python(
        """
start()
child = os.fork()
if child == 0:
    number = ctypes.c_int()
    context = ctypes.c_void_p()
    seen = (cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(number)),
            cuda.cuCtxGetCurrent(ctypes.byref(context)), cuda.cuCtxSynchronize())
    os._exit(0 if seen == (3, 3, 3, 3) else 1)
assert os.waitpid(child, 0)[1] == 0
assert cuda.cuCtxSynchronize() == 0
""",
        environment,
    )


def test_fork_before_init(environment: dict[str, str]) -> None:
    run_python(
        """
version = ctypes.c_int()
assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
child = os.fork()
start()
assert cuda.cuCtxSynchronize() == 0
if child != 0:
    assert os.waitpid(child, 0)[1] == 0
""",
        environment,
    )


def test_child_of_an_initialised_process_can_start_programs(environment: dict[str, str]) -> None:
    run_python(
        """
import subprocess
start()
again = "import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0"
assert subprocess.run([sys.executable, "-c", again]).returncode == 0
""",
        environment,
    )


def test_no_descriptor_survives_exec(environment: dict[str, str]) -> None:
    run_python(
        """
import subprocess
before = len(os.listdir("/proc/self/fd"))
start()
assert len(os.listdir("/proc/self/fd")) > before
count = "import os; print(len(os.listdir('/proc/self/fd')))"
there = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, close_fds=False)
assert int(there.stdout) <= before + 2, there.stdout
""",
        environment,
    )


def test_no_reservation(environment: dict[str, str], tmp_path: Path) -> None:
    del environment["HEADRACE_SESSION"]
    run_python("assert cuda.cuInit(0) == 100\nassert cuda.cuInit(0) == 100", environment)
    assert "headrace run" in (tmp_path / "client.log").read_text()


def test_session_file_that_others_may_read(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "session").chmod(0o644)
    run_python("assert cuda.cuInit(0) == 100", environment)
    assert "session file" in (tmp_path / "client.log").read_text()


def test_server_that_is_not_there(
    environment: dict[str, str], stub: StubAppliance, tmp_path: Path
) -> None:
    text = (tmp_path / "session").read_text()
    (tmp_path / "session").write_text(text.replace(f":{stub.address[1]}", ":1"))
    run_python("assert cuda.cuInit(0) == 46", environment)
    assert "cannot attach" in (tmp_path / "client.log").read_text()


def test_visible_devices(environment: dict[str, str]) -> None:
    count = """
number = ctypes.c_int(-1)
result = cuda.cuInit(0)
counted = cuda.cuDeviceGetCount(ctypes.byref(number))
assert (result, counted, number.value) == {}, (result, counted, number.value)
"""
    one, none = (0, 0, 1), (100, 3, -1)
    run_python(count.format(one), environment)
    for wanted in ("0", "0,7", "GPU-01010101-0101", "GPU-01010101-0101-0101-0101-010101010101"):
        run_python(count.format(one), environment | {"CUDA_VISIBLE_DEVICES": wanted})
    for wanted in ("", "-1", "7", "GPU-02"):
        run_python(count.format(none), environment | {"CUDA_VISIBLE_DEVICES": wanted})


def test_lost_connection_is_sticky(
    environment: dict[str, str], stub: StubAppliance, tmp_path: Path
) -> None:
    code = """
import threading
start()
pages = ctypes.c_void_p()
assert cuda.cuMemHostAlloc(ctypes.byref(pages), 4096, 0) == 0
print("ready", flush=True)
sys.stdin.readline()
# A call that waits, one that does not, and a local one: within a moment all say the same.
results = {cuda.cuCtxSynchronize() for _ in range(3)}
assert results == {46}, results
stream = ctypes.c_void_p()
assert cuda.cuStreamCreate(ctypes.byref(stream), 0) == 46
assert cuda.cuMemFreeHost(pages) == 46
"""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.kill(stub.workers[-1], signal.SIGKILL)
        _, errors = program.communicate("go\n", timeout=60)
    assert (program.returncode, errors) == (0, "")
    assert "connection lost" in (tmp_path / "client.log").read_text()


def test_a_blocked_call_hears_of_a_lost_connection(
    environment: dict[str, str], stub: StubAppliance
) -> None:
    code = """
import threading, time
start()
assert cuda.cuCtxSynchronize() == 0
results = []
def wait():
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    while not results or results[-1] == 0: results.append(cuda.cuCtxSynchronize())
threads = [threading.Thread(target=wait) for _ in range(4)]
for thread in threads: thread.start()
print("ready", flush=True)
sys.stdin.readline()
begin = time.monotonic()
for thread in threads: thread.join()
assert results[-1] == 46, results[-1]
assert time.monotonic() - begin < 2
"""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.kill(stub.workers[-1], signal.SIGKILL)
        _, errors = program.communicate("go\n", timeout=60)
    assert (program.returncode, errors) == (0, "")


def test_closing_the_library_ends_nothing(environment: dict[str, str]) -> None:
    run_python(
        """
start()
again = ctypes.CDLL("libcuda.so.1")
dlclose = ctypes.CDLL(None).dlclose
dlclose.argtypes = [ctypes.c_void_p]
for _ in range(2): assert dlclose(again._handle) == 0
assert cuda.cuCtxSynchronize() == 0
assert ctypes.CDLL("libcuda.so.1").cuCtxSynchronize() == 0
""",
        environment,
    )


def test_a_fork_after_nvml_alone_leaves_both_usable(environment: dict[str, str]) -> None:
    run_python(
        """
import pynvml
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == 1
child = os.fork()
if child == 0:
    start()
    assert cuda.cuCtxSynchronize() == 0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total > 0
start()
assert cuda.cuCtxSynchronize() == 0
""",
        environment,
    )


@pytest.fixture(scope="module")
def late_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("programs") / "late_calls"
    include = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    source = ROOT / "tests/integration/programs/late_calls.cc"
    headers = ["-D__CUDA_API_VERSION_INTERNAL", f"-I{include}/nvidia/cu13/include"]
    subprocess.run(
        ["g++", "-std=c++17", *headers, source, "-o", program, "-ldl", "-lpthread"],
        check=True,
    )
    return program


def test_calls_while_exiting(late_calls: Path, environment: dict[str, str]) -> None:
    begin = time.monotonic()
    done = subprocess.run(
        [late_calls],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert time.monotonic() - begin < LATE_LIMIT


def test_calls_while_exiting_without_the_server(
    late_calls: Path, environment: dict[str, str], stub: StubAppliance
) -> None:
    with subprocess.Popen(
        [late_calls, "wait"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        os.kill(stub.workers[-1], signal.SIGKILL)
        begin = time.monotonic()
        output, errors = program.communicate("go\n", timeout=60)
    assert (program.returncode, output, errors) == (7, "", "")
    assert time.monotonic() - begin < LATE_LIMIT


def test_nvml_shows_the_slice(environment: dict[str, str], stub: StubAppliance) -> None:
    code = """
import pynvml
pynvml.nvmlInit()
assert pynvml.nvmlDeviceGetCount() == 1
device = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(device) == "Stub GPU"
assert pynvml.nvmlDeviceGetUUID(device) == "GPU-01010101-0101-0101-0101-010101010101"
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
assert memory.total == memory.free + memory.used == {}
pynvml.nvmlShutdown()
"""
    run_python(code.format(stub.slices[0].memory), environment)
