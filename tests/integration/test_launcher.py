"""headrace at the keyboard: exit codes, words, and what the program is given."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from security.pki import CertificateAuthority, utc_now, write_client_folder
from tests.fakes.appliance import BUILD, Appliance

FAILED, USAGE, NOT_CONNECTED, DENIED = 1, 2, 3, 4
LAUNCHER, CANNOT_EXECUTE, NOT_FOUND = 125, 126, 127


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    if not (BUILD / "bin/headrace").exists():
        pytest.fail(f"there is no headrace in {BUILD}: run 'make build' first")
    with Appliance(tmp_path_factory.mktemp("pool") / "appliance") as running:
        yield running


def alone(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Without any appliance."""
    return subprocess.run(
        [BUILD / "bin/headrace", *words],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_help_and_version_are_data() -> None:
    assert "headrace run -n 1 -m 8GiB" in alone("help").stdout
    assert alone("run", "--help").stdout == alone("help", "run").stdout
    version = json.loads(alone("version", "--json").stdout)
    assert version["schema"] == "headrace.version/1"
    assert alone("version").returncode == alone("--version").returncode == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ([], USAGE, ""),
        (["lst"], USAGE, "did you mean headrace list?"),
        (["list", "--jsn"], USAGE, "did you mean --json?"),
        (["list", "extra"], USAGE, "headrace help list"),
        (["smi", "extra"], USAGE, "headrace help smi"),
        (["version", "x"], USAGE, "headrace help version"),
        (["--version", "x"], USAGE, "headrace help version"),
        (["help", "run", "extra"], USAGE, "headrace help"),
        (["list", "-s", ""], USAGE, "headrace help list"),
        (["run", "-s", "", "--", "true"], LAUNCHER, "headrace help run"),
        (["run", "--memory=", "--", "true"], LAUNCHER, "headrace help run"),
        (["run", "-m", "5", "--", "true"], LAUNCHER, "-m 8GiB"),
        (["list"], FAILED, "--config"),
        (["run", "-n", "0", "--", "true"], LAUNCHER, "from 1 to 64"),
        (["run", "-m", "8GB", "--", "true"], LAUNCHER, "512MiB"),
        (["run", "--", "no-such-program"], NOT_FOUND, "not found"),
        (["run", "--", "/etc/passwd"], CANNOT_EXECUTE, "cannot be executed"),
        (["run", "--", "true"], LAUNCHER, "HEADRACE_CONFIG"),
    ],
)
def test_what_is_wrong_ends_with_the_next_step(words: list[str], status: int, said: str) -> None:
    done = alone(*words)
    assert done.returncode == status
    assert said in done.stderr
    if words:
        assert done.stdout == ""
        assert "→" in done.stderr


def test_a_list_is_a_table_and_json(appliance: Appliance) -> None:
    table = appliance.run("list").stdout.splitlines()
    assert table[0].split() == [
        "SERVER", "GPU", "MEMORY", "FREE", "RESERVATIONS", "STATE", "DRIVER", "CUDA",
    ]  # fmt: skip
    listed = json.loads(appliance.run("list", "--json").stdout)
    (gpu,) = listed["gpus"]
    assert (gpu["memory_bytes"], gpu["software"]) == (4 << 30, True)


def test_the_program_is_the_process(appliance: Appliance) -> None:
    code = "import os, sys; print(os.environ['HEADRACE_SESSION']); sys.exit(42)"
    done = appliance.run("run", "-n", "1", "-m", "1GiB", "--", sys.executable, "-c", code)
    assert done.returncode == 42
    assert done.stderr == ""
    killed = appliance.run("run", "-m", "1GiB", "--", "sh", "-c", "kill -9 $$")
    assert killed.returncode == -9


def test_the_program_s_environment(appliance: Appliance) -> None:
    done = appliance.run(
        "run", "-m", "1GiB", "--", "env", environment={"LD_LIBRARY_PATH": "/before"}
    )
    given = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert given["LD_LIBRARY_PATH"] == f"{BUILD}/lib/client:/before"
    assert given["LIBRARY_PATH"] == f"{BUILD}/lib/client"
    assert given["CUPY_COMPILE_WITH_PTX"] == "1"
    assert given["TRITON_PTXAS_PATH"] == f"{BUILD}/bin/headrace-ptxas"
    folder = Path(given["HEADRACE_SESSION"]).parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_stand_in_for_ptxas_keeps_ptx(tmp_path: Path) -> None:
    """As Triton calls it."""
    ptxas = BUILD / "bin/headrace-ptxas"
    version = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True)
    assert re.search(r"release (\d+\.\d+)", version.stdout)
    (tmp_path / "k.ptx").write_text(".version 8.0\n")
    words = ["-lineinfo", "-v", "--regAllocOptLevel=2", "--opt-level", "0", "--gpu-name=sm_80"]
    command = [ptxas, *words, tmp_path / "k.ptx", "-o", tmp_path / "k.o"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "k.o").read_text() == ".version 8.0\n"
    assert done.stdout + done.stderr == ""
    missing = subprocess.run([ptxas, "-o", "x"], capture_output=True, text=True, check=False)
    assert missing.returncode == 1
    assert "no PTX file" in missing.stderr


def test_a_reservation_lasts_as_long_as_anything_of_it(appliance: Appliance) -> None:
    """A child that goes on keeps it; the last one's end gives it back."""
    script = "sh -c 'read line; headrace list --json' & echo $HEADRACE_SESSION; exit 0"
    process = subprocess.Popen(
        appliance.command("run", "-m", "1GiB", "--", "sh", "-c", f"exec 4<&0; {script} <&4"),
        env={
            **appliance.environment(),
            "PATH": f"{BUILD}/bin:{os.environ['PATH']}",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    session = Path(process.stdout.readline().strip())
    assert process.wait(30) == 0
    assert session.exists()
    out, _ = process.communicate("go\n", timeout=30)
    (gpu,) = json.loads(out)["gpus"]
    assert gpu["reservations"] == 1


def test_session_files_of_the_dead_are_swept(appliance: Appliance) -> None:
    code = "import os; print(os.environ['HEADRACE_SESSION'])"
    words = ("run", "-m", "1GiB", "--", sys.executable, "-c", code)
    first = Path(appliance.run(*words).stdout.strip())
    assert first.exists()
    os.utime(first, (0, 0))  # long ago
    appliance.run(*words)
    assert not first.exists()


def test_too_much_is_refused_with_what_is_free(appliance: Appliance) -> None:
    done = appliance.run("run", "-m", "99GiB", "--", "true")
    assert done.returncode == LAUNCHER
    assert "4 GiB free" in done.stderr
    assert "→" in done.stderr


def test_nobody_there(appliance: Appliance) -> None:
    done = appliance.run("list", "--server", "127.0.0.1:1")
    assert done.returncode == NOT_CONNECTED
    assert "127.0.0.1:1" in done.stderr
    assert appliance.run("run", "-s", "127.0.0.1:1", "--", "true").returncode == LAUNCHER


@pytest.mark.parametrize("fault", ["expired", "another pool", "server unknown"])
def test_certificates_that_do_not_fit(appliance: Appliance, tmp_path: Path, fault: str) -> None:
    ours = CertificateAuthority.load(appliance.state / "ca")
    other = CertificateAuthority.create(tmp_path / "ca")
    config = tmp_path / "client"
    if fault == "expired":
        past = CertificateAuthority.load(
            appliance.state / "ca", lambda: utc_now() - timedelta(days=2)
        )
        write_client_folder(past, "late", config, appliance.address, timedelta(hours=1))
        said = "expired"
    else:
        write_client_folder(other, "stranger", config, appliance.address)
        said = "another CA"
    if fault == "another pool":
        (config / "ca.pem").write_bytes(ours.root_pem)
    done = appliance.run("list", "--config", config)
    assert done.returncode == DENIED, done.stderr
    assert said in done.stderr
    ran = appliance.run("run", "--config", config, "--", "true")
    assert ran.returncode == LAUNCHER
    assert said in ran.stderr


def test_a_key_that_others_may_read_is_refused(appliance: Appliance, tmp_path: Path) -> None:
    config = tmp_path / "client"
    write_client_folder(
        CertificateAuthority.load(appliance.state / "ca"), "careless", config, appliance.address
    )
    (config / "client.key").chmod(0o644)
    done = appliance.run("list", "--config", config)
    assert done.returncode != 0
    assert "chmod 600" in done.stderr


@pytest.mark.parametrize("name", ["client.conf", "client.pem", "client.key", "ca.pem"])
@pytest.mark.parametrize("content", [None, "", "rubbish\n"], ids=["missing", "empty", "garbage"])
def test_a_file_of_the_folder_that_cannot_be_used_is_named(
    tmp_path: Path, name: str, content: str | None
) -> None:
    config = tmp_path / "client"
    write_client_folder(CertificateAuthority.create(tmp_path / "ca"), "c", config, "127.0.0.1:1")
    if content is None:
        (config / name).unlink()
    else:
        (config / name).write_text(content)
    done = alone("list", "--config", str(config))
    assert done.returncode == FAILED
    first, second = done.stderr.splitlines()
    assert str(config / name) in first
    others = {"client.conf", "client.pem", "client.key", "ca.pem"} - {name}
    assert not any(str(config / other) in first for other in others)
    assert "--config" in second or "server HOST:7444" in second


def test_a_key_of_another_certificate_is_named(tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path / "ca")
    for client in ("one", "two"):
        write_client_folder(authority, client, tmp_path / client, "127.0.0.1:1")
    (tmp_path / "one" / "client.key").write_bytes((tmp_path / "two" / "client.key").read_bytes())
    done = alone("list", "--config", str(tmp_path / "one"))
    assert f"{tmp_path}/one/client.key: not the key of" in done.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("server = 127.0.0.1:1", '"=" does not belong there'),
        ("server=127.0.0.1", '"=" does not belong there'),
        ("server", 'no HOST after "server"'),
        ("server 127.0.0.1:x", "127.0.0.1:x"),
        ("serverless 127.0.0.1:1", "names no server"),
        ("\t server \t 127.0.0.1:1 \r", "cannot connect to 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_in_client_conf_is_said_with_its_line(
    tmp_path: Path, line: str, said: str
) -> None:
    config = tmp_path / "client"
    write_client_folder(CertificateAuthority.create(tmp_path / "ca"), "c", config, "127.0.0.1:1")
    (config / "client.conf").write_text(f"# of the pool\n{line}\n")
    done = alone("list", "--config", str(config))
    assert said in done.stderr
    assert "→" in done.stderr
    if "connect" not in said and "names no" not in said:
        assert "client.conf, line 2: " in done.stderr
        assert "server HOST:7444" in done.stderr
