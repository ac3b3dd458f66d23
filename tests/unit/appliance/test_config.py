"""Settings: one declaration, three sources, and a page that is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.config import ConfigError, Endpoint, load_settings
from appliance.config.document import PAGE, settings_page
from appliance.core.sizes import MIB


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADRACED_CONFIG", raising=False)


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text() == settings_page(), "run 'make generate'"
    assert str(PAGE.parents[2]) not in settings_page()


def test_flag_wins_over_environment_wins_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "h.toml"
    file.write_text(
        'stop_time = "1s"\nidle_time = "2s"\nlisten = ["[::1]:1", "a:2"]\nnames = ["x"]\n'
    )
    monkeypatch.setenv("HEADRACED_STOP_TIME", "3s")
    monkeypatch.setenv("HEADRACED_IDLE_TIME", "4s")
    monkeypatch.setenv("HEADRACED_NAMES", "y, z")
    settings = load_settings({"stop_time": "500ms"}, file)
    assert (settings.stop_time, settings.idle_time) == (0.5, 4.0)
    assert settings.listen == (Endpoint("::1", 1), Endpoint("a", 2))
    assert settings.names == ("y", "z")
    monkeypatch.setenv("HEADRACED_CONFIG", str(file))
    monkeypatch.delenv("HEADRACED_NAMES")
    assert load_settings({}).names == ("x",)


def test_a_repeated_flag_and_commas_mean_the_same() -> None:
    assert load_settings({"names": ("a,b", "c")}).names == ("a", "b", "c")


def test_where_the_libraries_are_follows_from_what_is_lent() -> None:
    real, soft = load_settings({}), load_settings({"software_gpu": "2x1GiB,1x2GiB"})
    assert real.driver_path == Path("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    assert real.context_overhead_bytes == 512 * MIB
    assert soft.driver_path.parts[-4:] == ("release", "lib", "softgpu", "libcuda.so.1")
    assert soft.nvml_path == soft.driver_path.with_name("libnvidia-ml.so.1")
    assert soft.context_overhead_bytes == 0
    own = load_settings({"driver": "/d/libcuda.so.1", "context_overhead": "1MiB"})
    assert own.nvml_path == Path("/d/libnvidia-ml.so.1")
    assert own.context_overhead_bytes == MIB


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("software_gpu", "1x4G"),
        ("software_gpu", "0x4GiB"),
        ("software_gpu", "1x4GiB,"),
        ("stop_time", "0s"),
        ("stop_time", "5"),
        ("stop_time", "-1s"),
        ("context_overhead", "much"),
        ("listen", ("::1:80",)),
        ("listen", ("a:65536",)),
        ("listen", ("a",)),
        ("listen", (":1",)),
        ("max_connections", "0"),
        ("log_format", "xml"),
        ("worker_environment", ("CUDA_VISIBLE_DEVICES",)),
    ],
)
def test_a_wrong_value_is_refused_under_its_name(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings({key: value})
    assert key in refused.value.message.replace("-", "_")


def test_an_endpoint_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:0", "[::1]:7444", "gpu1.lab:7444"):
        assert str(Endpoint.parse(text)) == text
    assert Endpoint.parse("0.0.0.0:1").is_wildcard
    assert Endpoint.parse("[::]:1").is_wildcard
    assert not Endpoint.parse("gpu1.lab:1").is_wildcard
