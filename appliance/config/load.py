"""Reading the settings from flags, environment and file, and explaining what is wrong with them."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource

from appliance.config.settings import Settings

_PREFIX = "HEADRACED_"
_CONFIG_VARIABLE = "HEADRACED_CONFIG"


class ConfigError(Exception):
    """A setting that cannot be used: where it was found, what is wrong, and what was meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def flag_of(field: str) -> str:
    """The command-line flag of a setting."""
    return "--" + field.replace("_", "-")


def load_settings(flags: Mapping[str, Any], file: Path | None = None) -> Settings:
    """The settings in force. `flags` holds only what was given on the command line."""
    if file is None and (named := os.environ.get(_CONFIG_VARIABLE)):
        file = Path(named)
    in_file = _read(file) if file else {}
    _refuse_unknown(in_file, Settings.model_fields, f"in {file}")
    variables = [v for v in os.environ if v.startswith(_PREFIX) and v != _CONFIG_VARIABLE]
    _refuse_unknown(variables, [_variable(f) for f in Settings.model_fields], "in the environment")

    class Layered(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            toml = (TomlConfigSettingsSource(settings_cls, file),) if file else ()
            return (init_settings, env_settings, *toml)

    try:
        return Layered(**flags)
    except ValidationError as error:
        raise ConfigError(_explain(error, flags, in_file, file)) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    names = list(known)
    for key in given:
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
            hint = (
                f"did you mean {nearest[0]}?" if nearest else "python -m appliance.service --help"
            )
            raise ConfigError(f"unknown setting {key} {where}", hint)


def _explain(
    error: ValidationError, flags: Mapping[str, Any], in_file: Mapping[str, Any], file: Path | None
) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        text = problem["msg"].removeprefix("Value error, ")
        if problem["loc"]:
            field = str(problem["loc"][0])
            text = f"{_origin(field, flags, in_file, file)}: {text}"
        lines.append(text)
    return "; ".join(lines)


def _origin(
    field: str, flags: Mapping[str, Any], in_file: Mapping[str, Any], file: Path | None
) -> str:
    if field in flags:
        return flag_of(field)
    if _variable(field) in os.environ:
        return _variable(field)
    return f"{field} in {file}" if field in in_file else field


def _variable(field: str) -> str:
    return _PREFIX + field.upper()
