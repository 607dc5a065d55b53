"""Durations and sizes as the arguments of flags."""

from __future__ import annotations

from typing import Any

import click

from seb_appliance.quantities import duration_ms, size_bytes


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
