"""`seb doctor`: is this machine and its bucket fit to run the appliance?"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import outline, printable, say
from seb_appliance.cli.parts import check_server, need_server


@click.command
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings()
def doctor(config: Path | None, as_json: bool, **flags: str | bool | None) -> int:
    """Check the settings, the bucket, the clock, the disk and SQLite.

    Tests the bucket with small objects below its probe/ folder. Exit code 0: fit; 69 or 74: the
    bucket is not; 78: a setting is wrong; 1: the server's parts are not installed.
    """
    check_server()
    settings = settings_from(config, flags)
    with need_server():
        from seb_appliance.ops.checks.checkup import checkup
    report = asyncio.run(checkup(settings))
    if as_json:
        say(json.dumps(report.data, indent=2, ensure_ascii=False))
    else:
        settings_lines = {
            name: f"{item['value']}  ({item['source']})"
            for name, item in report.data["settings"].items()
        }
        say(outline(report.data | {"settings": settings_lines}))
    return report.exit_code


# `seb fsck`: does the bucket hold, whole and sound, what its log says?


@click.command
@click.option("--quick", is_flag=True, help="Read no object whole: the log and its tables only.")
@click.option("--full", is_flag=True, help="Compare every row of the key index, not a sample.")
@click.option("--bucket-only", is_flag=True, help="Leave the data directory alone.")
@click.option("--repair", is_flag=True, help="Make damaged local files anew; the bucket stays.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings(
    "bucket",
    "data",
    "garbage_grace",
    "s3_endpoint",
    "s3_region",
    "s3_access_key_id",
    "s3_checksums",
)
def fsck(
    quick: bool,
    full: bool,
    bucket_only: bool,
    repair: bool,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> int:
    """Check the bucket: every entry, segment, snapshot, checksum and offset.

    Reads only, also while an appliance runs on the bucket. Files of the data directory are looked
    at while none does. Exit code 0: clean; 65: problems; 74: the store does not answer.
    """
    settings = settings_from(config, flags)
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.checks.bucket_check import check
        from seb_appliance.ops.serve.start_screen import progress
    with progress(Console(stderr=True)) as show:
        found = asyncio.run(
            check(settings, show, quick=quick, full=full, repair=repair, bucket_only=bucket_only)
        )
    if as_json:
        say(json.dumps(found.data, indent=2, ensure_ascii=False))
    else:
        say(_text(found.data))
    return found.exit_code


def _text(data: dict[str, Any]) -> str:
    shown = {name: item for name, item in data.items() if name not in {"problems", "repaired"}}
    parts = [outline(shown), *map(_problem, data["problems"])]
    told = len(data["problems"])
    if told < data["problems_total"]:
        parts.append(f"… and {data['problems_total'] - told:,} more")
    parts += [f"repaired: {printable(done)}" for done in data["repaired"]]
    return "\n".join(parts)


def _problem(problem: dict[str, Any]) -> str:
    where = problem["object"]
    if "topic" in problem:
        where += f", topic {problem['topic']}"
    if "first_offset" in problem:
        where += f", offsets {problem['first_offset']:,} to {problem['last_offset']:,}"
    lines = (f"{problem['code']}: {where}", problem["detail"], problem["advice"])
    return "\n    ".join(map(printable, lines))
