"""`python -m appliance.service`: the command line of headraced."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from appliance.config import ConfigError, Settings, flag_of, load_settings
from appliance.config.document import is_repeated
from appliance.inventory import InventoryError
from appliance.service.daemon import serve
from appliance.spawner import SpawnError
from appliance.telemetry import open_log
from security.pki import PkiError


def _options(command: click.Command) -> click.Command:
    """One flag per setting; validation is the settings' own, so every source is treated alike."""
    for name, field in Settings.model_fields.items():
        command.params.append(
            click.Option(
                [flag_of(name)],
                multiple=is_repeated(field),
                default=None,
                help=field.description,
                metavar=name.upper(),
            )
        )
    return command


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="TOML file with settings; their names are those of the flags with _ for -.",
)
def main(config: Path | None, **flags: Any) -> None:
    """Run headraced: lend this machine's GPUs over the network until SIGTERM."""
    given = {name: value for name, value in flags.items() if value not in (None, ())}
    settings = load_settings(given, config)
    asyncio.run(serve(settings, open_log(settings.log_format, settings.log_level)))


def run() -> int:
    """Run the command line; failures end with what failed and the next step."""
    try:
        _options(main)(standalone_mode=True)
    except (ConfigError, InventoryError, SpawnError, PkiError) as error:
        click.echo(f"error: {error.message}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run())
