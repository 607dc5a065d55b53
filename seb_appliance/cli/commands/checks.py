"""`seb doctor`, `seb fsck` and `seb inspect`: look at a machine, a bucket, an object."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from seb_appliance.cli.errors import check_server, need_server
from seb_appliance.cli.options import BUCKET, Json, Result, settings_from, shows, with_settings
from seb_appliance.cli.output import outline, printable
from seb_appliance.errors import BadBatchError, ObjectMissingError, StartError
from seb_appliance.settings import Settings


@click.command
@with_settings()
@shows
def doctor(config: Path | None, **flags: str | bool | None) -> Result:
    """Check the settings, the bucket, the clock, the disk and SQLite.

    Tests the bucket with small objects below its probe/ folder. Exit code 0: all is well; 69 or 74:
    the bucket fails; 78: a setting is wrong; 1: the server's parts are not installed.
    """
    check_server()
    settings = settings_from(config, flags)
    with need_server():
        from seb_appliance.ops.checks.checkup import checkup
    data, exit_code = asyncio.run(checkup(settings))
    values = {
        name: f"{item['value']}  ({item['source']})" for name, item in data["settings"].items()
    }
    return Result(data, lambda: outline(data | {"settings": values}), exit_code)


@click.command
@click.option("--quick", is_flag=True, help="Read no object whole: the log and its tables only.")
@click.option("--full", is_flag=True, help="Compare every row of the key index, not a sample.")
@click.option("--bucket-only", is_flag=True, help="Leave the data directory alone.")
@click.option("--repair", is_flag=True, help="Rebuild damaged local files; the bucket stays.")
@with_settings(*BUCKET, "data", "garbage_grace")
@shows
def fsck(
    quick: bool,
    full: bool,
    bucket_only: bool,
    repair: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> Result:
    """Check the bucket: every entry, segment, snapshot, checksum and offset.

    Only reads, also while an appliance runs on the bucket. Files of the data directory are checked
    only while no appliance runs. Exit code 0: clean; 65: problems; 74: the store does not answer.
    """
    settings = settings_from(config, flags)
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.checks.check import check
        from seb_appliance.ops.serve.process import start_progress
    with start_progress(Console(stderr=True)) as show:
        data, exit_code = asyncio.run(
            check(settings, show, quick=quick, full=full, repair=repair, bucket_only=bucket_only)
        )
    return Result(data, lambda: _text(data), exit_code)


def _text(data: Json) -> str:
    shown = {name: item for name, item in data.items() if name not in {"problems", "repaired"}}
    parts = [outline(shown), *map(_problem, data["problems"])]
    told = len(data["problems"])
    if told < data["problems_total"]:
        parts.append(f"… and {data['problems_total'] - told:,} more")
    parts += [f"repaired: {printable(done)}" for done in data["repaired"]]
    return "\n".join(parts)


def _problem(problem: Json) -> str:
    where = problem["object"]
    if "topic" in problem:
        where += f", topic {problem['topic']}"
    if "first_offset" in problem:
        where += f", offsets {problem['first_offset']:,} to {problem['last_offset']:,}"
    lines = (f"{problem['code']}: {where}", problem["detail"], problem["advice"])
    return "\n    ".join(map(printable, lines))


@click.command
@click.argument("name", metavar="OBJECT")
@click.option(
    "--records", metavar="N", default=0, type=click.IntRange(0), help="Show N of each batch."
)
@with_settings(*BUCKET)
@shows
def inspect(name: str, records: int, config: Path | None, **flags: str | bool | None) -> Result:
    """Show what is inside OBJECT.

    OBJECT is a file or, with --bucket, a key in that bucket: a record batch (version 1 or 2), a
    journal entry, a snapshot. Every checksum is checked. --records shows N records of each batch.
    """
    if flags["bucket"] is not None:
        data = asyncio.run(_from_bucket(settings_from(config, flags), name))
    else:
        data = _from_file(Path(name))
    from seb_appliance.cli.describe import describe

    try:
        description = {"object": name, **describe(data, records=records)}
    except BadBatchError as error:
        raise StartError(f"{name}: {error.detail}") from error
    return Result(description, lambda: outline(description))


def _from_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StartError(f"cannot read {path} ({error.strerror})") from error


async def _from_bucket(settings: Settings, key: str) -> bytes:
    with need_server():
        from seb_appliance.ops.host.stores import make_store
    store = make_store(settings, must_exist=True)
    try:
        return await store.get(key)
    except ObjectMissingError as error:
        raise StartError(f"{settings.bucket} holds no object {key!r}") from error
    finally:
        await store.close()
