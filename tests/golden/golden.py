"""What an appliance shows to programs and people, as text that is compared with stored copies.

`python -m tests.golden` writes the copies anew, after a change that was intended. Stored buckets of
every kind are in tests/upgrade/stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from seb_appliance import errors
from seb_appliance.cli import seb
from seb_appliance.settings import SETTINGS
from tests.support.appliance import running_appliance

COPIES = Path(__file__).parent / "copies"


def _members(value: object, depth: int, path: str = "") -> Iterator[str]:
    """A line for each member down to `depth`: its path and its canonical JSON."""
    if depth and isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _members(value[name], depth - 1, f"{path} {name}")
    else:
        yield f"{path} {json.dumps(value, sort_keys=True, ensure_ascii=False)}"


async def over_http(folder: Path) -> dict[str, str]:
    """The OpenAPI document, and the names, types and help of the metrics."""
    async with running_appliance(folder) as running:
        document = (await running.client.get("/schema/openapi.json")).json()
        metrics = (await running.client.get("/metrics?names=true")).text
    described = sorted({line for line in metrics.splitlines() if line.startswith("# ")})
    return {
        "openapi.txt": "\n".join(_members(document, 3)),
        "metrics.txt": "\n".join(described),
    }


def _helps(command: click.Command, path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path, max_content_width=100, terminal_width=100)
    yield f"$ {path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _helps(child, f"{path} {name}")


def help_texts() -> str:
    return "\n".join(_helps(seb, "seb"))


def _below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def error_catalogue() -> str:
    rows = {
        f"{kind.__name__}: {kind.code} {kind.status} retryable={kind.retryable} "
        f"side_effects={kind.side_effects}"
        for kind in _below(errors.SebError)
        if kind.__module__ == errors.__name__ and not issubclass(kind, errors.StartError)
    }
    exits = {
        f"{kind.__name__}: exit code {kind.exit_code}"
        for kind in (errors.StartError, *_below(errors.StartError))
        if kind.__module__ == errors.__name__
    }
    return "\n".join([*sorted(rows), *sorted(exits)])


def settings_table() -> str:
    """Each setting, one member a line; what a function does is named, not shown."""
    lines = []
    for setting in SETTINGS:
        lines.append(setting.name)
        for member in fields(setting):
            value = getattr(setting, member.name)
            shown = value.__name__ if callable(value) and hasattr(value, "__name__") else value
            lines.append(f"  {member.name}: {re.sub(r' at 0x[0-9a-f]+', '', str(shown))}")
    return "\n".join(lines)


async def everything(folder: Path) -> dict[str, str]:
    """Text by file name."""
    return {
        **await over_http(folder),
        "help.txt": help_texts(),
        "errors.txt": error_catalogue(),
        "settings.txt": settings_table(),
    }
