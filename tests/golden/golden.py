"""What an appliance shows to programs and people, as text that is compared with stored copies.

`python -m tests.golden` writes the copies anew, after a change that was intended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import click
import httpx2

from seb_appliance import errors
from seb_appliance.cli import seb
from seb_appliance.settings import SETTINGS
from tests.support.appliance import running_appliance
from tests.support.tidied import FLAGS

COPIES = Path(__file__).parent / "copies"


def _members(value: object, depth: int, path: str = "") -> Iterator[str]:
    """A line for each member down to `depth`: its path and its canonical JSON."""
    if depth and isinstance(value, dict) and value:
        for name in sorted(value):
            yield from _members(value[name], depth - 1, f"{path} {name}")
    else:
        yield f"{path} {json.dumps(value, sort_keys=True, ensure_ascii=False)}"


async def over_http(folder: Path) -> dict[str, str]:
    """The OpenAPI document; name, labels, type and help of each metric, also of a standby; the
    tables of the local files. All of them from an appliance that runs and was used."""
    data, other = folder / "data", folder / "other"
    flags = {**FLAGS, "bucket": f"file:{folder / 'bucket'}"}
    async with running_appliance(data, **flags) as running:
        client = running.client
        client.event_hooks["response"] = [_require_success]
        await client.put("/v1/topics/orders", json={"key_index": "latest", "compression": "none"})
        for number in range(4):  # the first is enough for the tidier, and the group stays behind
            record = {"records": [{"key": "k", "value": f"{number}" * 2_000}]}
            await client.post("/v1/topics/orders/records", json=record)
        await client.put("/v1/groups/billing/offsets", json={"offsets": {"orders": 1}})
        await running.appliance.tidier.step()
        document = (await client.get("/schema/openapi.json")).json()
        metrics = (await client.get("/metrics", params={"names": "true"})).text
        other.mkdir()
        shutil.copy(data / "admin.key", other / "admin.key")
        async with running_appliance(
            other, standby=True, follow_poll="100ms", **flags
        ) as following:
            metrics += await _metrics_of_a_standby(following.client)
    return {
        "openapi.txt": "\n".join(_members(document, 3)),
        "metrics.txt": "\n".join(_metric_lines(metrics)),
        "local-files.txt": "\n".join(_tables(path) for path in sorted(data.glob("*.sqlite"))),
    }


async def _metrics_of_a_standby(client: httpx2.AsyncClient) -> str:
    """Once it has seen the end of the journal, which one of them is about."""
    text = ""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            while "seb_standby_seen_end_seconds" not in text:
                text = (await client.get("/metrics")).text
    return text


async def _require_success(response: httpx2.Response) -> None:
    assert response.is_success, response.status_code


def _metric_lines(exposition: str) -> list[str]:
    """`name{labels} type: help` of each metric, sorted."""
    told: dict[str, dict[str, str]] = {}
    labels: dict[str, set[str]] = {}
    for line in exposition.splitlines():
        if found := re.fullmatch(r"# (HELP|TYPE) (\S+) (.*)", line):
            told.setdefault(found[2], {})[found[1]] = found[3]
        elif found := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            name = found[1] if found[1] in told else found[1].rpartition("_")[0]
            labels.setdefault(name, set()).update(re.findall(r'(\w+)="', found[2] or ""))
    return sorted(
        f"{name}{{{','.join(sorted(labels.get(name, ())))}}} {of['TYPE']}: {of['HELP']}"
        for name, of in told.items()
    )


def _tables(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        lines = [f"== {path.name}, user_version {version} =="]
        rows = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name"
        for name, statement in connection.execute(rows).fetchall():
            lines.append(statement)
            if name == "alembic_version":
                lines += [f"-- {row}" for (row,) in connection.execute(f"SELECT * FROM {name}")]
    return "\n".join(lines) + "\n"


def _helps(command: click.Command, path: str) -> Iterator[str]:
    names = seb.context_settings["help_option_names"]  # Click keeps those of the first context
    context = click.Context(command, info_name=path, terminal_width=100, help_option_names=names)
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
