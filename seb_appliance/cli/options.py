"""Flags made from the table of settings, and the settings made from the flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from seb_appliance.cli.completing import profile_names
from seb_appliance.quantities import duration_ms, size_bytes
from seb_appliance.setting_sources import load
from seb_appliance.settings import SETTINGS, Setting, Settings

Command = TypeVar("Command", bound=Callable[..., Any])


def with_settings(*names: str) -> Callable[[Command], Command]:
    """Add `--config` and the flags of the named settings (when none is named: of all that the
    appliance itself has)."""
    chosen = [s for s in SETTINGS if s.has_flag and (s.name in names if names else not s.client)]

    def add(command: Command) -> Command:
        for setting in reversed(chosen):
            command = _option(setting)(command)
        return click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Settings file (TOML). Also SEB_CONFIG.",
        )(command)

    return add


def settings_from(config: Path | None, flags: dict[str, str | bool | None]) -> Settings:
    """The settings in force with the flags that were given (None: not given)."""
    given = {name: value for name, value in flags.items() if value is not None}
    return load(flags=given, config=config)


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.words(setting.default)
    if setting.kind == "switch":
        spelled = setting.flag
        if not setting.flag_only:
            spelled += f"/--no-{setting.flag[2:]}"
        return click.option(
            spelled, setting.name, default=None, is_flag=True, help=_help(setting, default)
        )
    metavar = "|".join(setting.choices) or setting.kind.upper()
    return click.option(
        setting.flag,
        setting.name,
        metavar=metavar,
        help=_help(setting, default),
        shell_complete=profile_names if setting.name == "profile" else None,
    )


def _help(setting: Setting, default: str) -> str:
    return setting.help if setting.flag_only else f"{setting.help} [{default}]"


# Durations and sizes as the arguments of flags.


class Quantity(click.ParamType[int]):
    """A DURATION in ms, or a SIZE in bytes, from `smallest` to `largest`."""

    def __init__(self, name: str, smallest: int, largest: int) -> None:
        self.name = name
        self._smallest, self._largest = smallest, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = (duration_ms if self.name == "DURATION" else size_bytes)(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._smallest <= number <= self._largest:
            self.fail(f"{value!r} is too small or too large", param, ctx)
        return number
