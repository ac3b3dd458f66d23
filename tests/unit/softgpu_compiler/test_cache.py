"""The disk cache when the disk, or somebody, does not cooperate."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting.softgpu.compiler import cache as cache_module
from remoting.softgpu.compiler.cache import Cache, default_directory, seal, unseal
from remoting.softgpu.compiler.errors import NoSpace
from tests.unit.softgpu_compiler.harness import StartHelper, module

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fallbacks are made here."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    made = Cache(tmp_path / "cache")
    yield made
    made.close()


def test_what_is_stored_is_loaded(cache: Cache) -> None:
    path = cache.store(KEY, ".so", b"code")
    assert cache.load(KEY, ".so") == (path, b"code")
    assert path.read_bytes().startswith(b"code")
    assert path.stat().st_mode & 0o777 == 0o644
    assert cache.load(KEY, ".json") is None
    assert cache.load("cd" * 32, ".so") is None


def test_others_may_read_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        (tmp_path / "deep").mkdir()
        path = Cache(tmp_path / "deep" / "cache").store(KEY, ".so", b"code")
        temporary = Cache(None)
        elsewhere = temporary.store(KEY, ".so", b"code")
    finally:
        os.umask(before)
    for place in (path.parent, path.parent.parent, elsewhere.parent, elsewhere.parent.parent):
        assert place.stat().st_mode & 0o777 == 0o755
    temporary.close()


@pytest.mark.parametrize("damage", [b"", b"x", seal(b"code")[:-1], b"c0de" + seal(b"code")[4:]])
def test_damage_is_noticed_and_removed(cache: Cache, damage: bytes) -> None:
    path = cache.store(KEY, ".so", b"code")
    path.write_bytes(damage)
    assert unseal(damage) is None
    assert cache.load(KEY, ".so") is None
    assert not path.exists()


def test_nothing_half_written_stays(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache.store(KEY, ".so", b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(NoSpace):
        cache.store(KEY, ".so", b"new")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def refuse_space_in(monkeypatch: pytest.MonkeyPatch, *full: Path) -> None:
    """Make every new file below the given directories fail as on a full disk."""
    make = tempfile.mkstemp

    def mkstemp(prefix: str, dir: Path) -> tuple[int, str]:
        if any(Path(dir).is_relative_to(place) for place in full):
            raise OSError(errno.ENOSPC, "No space left on device")
        return make(prefix=prefix, dir=dir)

    monkeypatch.setattr(cache_module.tempfile, "mkstemp", mkstemp)


def test_a_full_disk_moves_entries_elsewhere(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_space_in(monkeypatch, tmp_path / "cache")
    path = cache.store(KEY, ".so", b"code")
    assert path.is_relative_to(tmp_path / "tmp")
    assert cache.load(KEY, ".so") == (path, b"code")
    cache.close()
    assert not path.exists()


def test_no_space_anywhere_says_what_to_do(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_space_in(monkeypatch, tmp_path, Path("/dev/shm"))
    with pytest.raises(NoSpace, match="HEADRACE_SOFTGPU_CACHE"):
        cache.store(KEY, ".so", b"code")
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_directory_into_which_others_may_write_is_not_used(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    path = cache.store(KEY, ".so", b"code")
    assert path.is_relative_to(tmp_path / "tmp")
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_directory_at_all_is_a_temporary_one(tmp_path: Path) -> None:
    cache = Cache(None)
    assert cache.store(KEY, ".so", b"code").is_relative_to(tmp_path / "tmp")
    cache.close()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    cache = Cache(tmp_path / "cache")
    assert cache.load(KEY, ".so") is None
    assert cache.store(KEY, ".so", b"code").is_relative_to(tmp_path / "tmp")
    cache.close()


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit=5000)
    keys = [f"{number:02x}" * 32 for number in range(5)]
    for age, key in enumerate(keys[:4]):
        path = cache.store(key, ".so", bytes(1000))
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.load(keys[0], ".so") is not None  # used now
    cache.store(keys[4], ".so", bytes(1000))
    present = [key for key in keys if (tmp_path / "cache" / key[:2] / f"{key}.so").exists()]
    assert present == [keys[0], keys[3], keys[4]]


def test_the_default_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_directory() == Path("/cache/headrace/softgpu")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_directory() == Path("/home/x/.cache/headrace/softgpu")
    monkeypatch.delenv("HOME")
    assert default_directory() is None


def test_a_helper_whose_files_may_not_grow(start_helper: StartHelper, tmp_path: Path) -> None:
    """The kernel's own refusal: no file of the helper may have more than 4 KiB."""
    helper = start_helper("--keep")
    subprocess.run(
        ["prlimit", "--pid", str(helper.process.pid), "--fsize=4096"], check=True, timeout=20
    )
    connection = helper.connect()
    small = connection.compile(module())
    assert not small["ok"]
    assert small["error"]["kind"] in ("no_space", "internal")
    assert connection.ask({"op": "hello"}).header["ok"]


def test_a_helper_that_may_not_read_its_cache(start_helper: StartHelper, tmp_path: Path) -> None:
    """Root reads everything, so the way in is blocked by something that is no directory."""
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    helper = start_helper(cache=blocked / "cache")
    reply = helper.connect().compile(module())
    assert reply["ok"], reply
    assert Path(reply["path"]).exists()
    assert "cannot read" in helper.log.read_text()


def test_an_unwritable_cache_of_an_ordinary_user(tmp_path: Path) -> None:
    """In a child that has given up root, where permissions count."""
    directory = tmp_path / "cache"
    directory.mkdir(mode=0o700)
    tmp_path.chmod(0o755)
    (tmp_path / "tmp").chmod(0o777)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent not in (Path("/"), Path("/tmp")):
            parent.chmod(parent.stat().st_mode | 0o055)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            else:
                directory.chmod(0)
            cache = Cache(directory)
            assert cache.load(KEY, ".so") is None
            path = cache.store(KEY, ".so", b"code")
            assert path.is_relative_to(tmp_path / "tmp")
            cache.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
