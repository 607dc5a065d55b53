"""What users and operators of the appliance see, each as the text of one file."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import io
import pkgutil
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
import httpx2
import msgspec
from click.testing import CliRunner

import seb_appliance
from seb_appliance.cli import seb
from seb_appliance.errors import SebError
from seb_appliance.setting_table import SETTINGS
from tests.support.appliance import running_appliance
from tests.support.tidied import FLAGS

COPIES: Final = Path(__file__).parent / "copies"


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1).decode() + "\n"


async def of_http(folder: Path) -> dict[str, str]:
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
        schema = (await client.get("/schema/openapi.json")).json()
        metrics = (await client.get("/metrics", params={"names": "true"})).text
        other.mkdir()
        shutil.copy(data / "admin.key", other / "admin.key")
        async with running_appliance(
            other, standby=True, follow_poll="100ms", **flags
        ) as following:
            metrics += await _metrics_of_a_standby(following.client)
    return {
        "openapi.json": as_json(schema),
        "metrics.txt": "".join(f"{line}\n" for line in metric_lines(metrics)),
        "local-files.txt": "".join(_tables(path) for path in sorted(data.glob("*.sqlite"))),
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


def metric_lines(exposition: str) -> list[str]:
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
    return "\n".join(lines) + "\n\n"


def help_texts() -> str:
    """What `--help` of each command prints, 100 columns wide."""
    runner = CliRunner(env={"COLUMNS": "102"})
    found = []
    for words in command_paths(seb, []):
        result = runner.invoke(seb, [*words, "--help"], prog_name="seb")
        assert result.exit_code == 0, (words, result.output)
        found.append(f"=== {' '.join(['seb', *words])} ===\n{result.output}\n")
    return "".join(found)


def command_paths(command: click.Command, words: list[str]) -> Iterator[list[str]]:
    yield words
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from command_paths(below, [*words, name])


def errors() -> str:
    """Each error class of the package with what it promises."""
    with contextlib.redirect_stdout(io.StringIO()):
        for module in pkgutil.walk_packages(seb_appliance.__path__, "seb_appliance."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    members = ("code", "status", "title", "retryable", "side_effects", "exit_code")
    return as_json(
        {
            error.__name__: {name: getattr(error, name) for name in members if hasattr(error, name)}
            for error in _subclasses(SebError)
            if error.__module__.startswith("seb_appliance.")
        }
    )


def _subclasses(error: type[SebError]) -> Iterator[type[SebError]]:
    yield error
    for child in error.__subclasses__():
        yield from _subclasses(child)


def settings() -> str:
    return as_json([{**asdict(one), "default": _plain(one.default)} for one in SETTINGS])


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


async def made(folder: Path) -> dict[str, str]:
    """The text of each file, by its name. `folder`: an empty one, to work in."""
    return {
        **await of_http(folder),
        "help.txt": help_texts(),
        "errors.json": errors(),
        "settings.json": settings(),
    }
