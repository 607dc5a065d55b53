"""`seb serve`, and commands for the state of an appliance: snapshot, restore, clone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seb_appliance.cli.errors import need_server
from seb_appliance.cli.options import (
    BUCKET,
    TIMEOUTS,
    Json,
    Result,
    file_option,
    other_bucket,
    shows,
    talks,
    with_settings,
)
from seb_appliance.cli.output import outline, showing, size
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.connection import HttpClient
    from seb_appliance.ops.host.restoring import Restored


@click.command
@with_settings()
def serve(settings: Settings) -> int:
    """Run the appliance.

    Each setting can also be set in the settings file, and in the variable SEB_ and its name in
    capitals. Durations and sizes have units: 250ms, 10s, 7d, 64KiB, 8MiB.
    """
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.serve import process
    return process.serve(settings, Console())


@click.command
@talks
def snapshot(client: HttpClient) -> Result:
    """Make a snapshot, so that the next start replays no journal entries. Needs an admin key."""
    made = client.ask("POST", "snapshots")
    return Result(made, lambda _: f"the newest snapshot is as of entry {made['seq']:,}")


# `seb restore` and `seb clone` read a bucket and write elsewhere.

_bucket_options = with_settings(*BUCKET, "data", "s3_immediate_list", *TIMEOUTS)
_into_config = file_option(
    "--into-config", "Settings file (TOML) with the s3_… settings of --into, if they differ."
)


@click.command
@click.option("--verify", is_flag=True, help="Only test it, and leave nothing behind.")
@file_option("--report", "With --verify: write the result to this file, as Prometheus metrics.")
@click.option("--until-seq", type=click.IntRange(0), metavar="N", help="As of journal entry N.")
@click.option("--into", metavar="ADDRESS", help="With --until-seq: an empty bucket or prefix.")
@_into_config
@_bucket_options
@shows
def restore(
    verify: bool,
    report: Path | None,
    until_seq: int | None,
    into: str | None,
    into_config: Path | None,
    settings: Settings,
) -> Result:
    """Rebuild local state from the bucket alone, or go back to an earlier entry.

    Without options: write the state of the bucket to --data, which must have none. With --verify:
    do the same in a scratch directory below --data, as a test. With --until-seq and --into: copy
    the appliance as of that entry to another bucket or prefix, so that no offset is given twice.
    The bucket itself is only read, also while an appliance writes to it.
    """
    if (until_seq is None) != (into is None) or (verify and into is not None):
        raise click.UsageError("--until-seq and --into belong together, and not with --verify.")
    if report is not None and not verify:
        raise click.UsageError("--report goes with --verify.")
    if into is not None:
        return _clone(settings, into, into_config, until_seq)
    with need_server():
        from seb_appliance.ops.host import restoring
    with showing("reading the bucket") as progress:
        if verify:
            restored = asyncio.run(restoring.drill(settings, report, progress))
        else:
            restored = asyncio.run(restoring.restore(settings, settings.data, progress))
    return _result(restored, {})


@click.command
@click.option("--into", required=True, metavar="ADDRESS", help="An empty bucket or prefix.")
@_into_config
@_bucket_options
@shows
def clone(into: str, into_config: Path | None, settings: Settings) -> Result:
    """Copy a bucket to another one, object by object, with checks.

    The source is only read, also while an appliance writes to it; the copy is as of the moment at
    which it begins. Run the same command again to continue an interrupted copy. Do not keep
    appliances running on both buckets: they would give the same offsets to different records.
    """
    return _clone(settings, into, into_config, None)


def _clone(
    settings: Settings, into: str, into_config: Path | None, until_seq: int | None
) -> Result:
    target = other_bucket(settings, "--into", into, into_config)
    with need_server():
        from seb_appliance.ops.host import restoring
    with showing("reading the bucket") as progress:
        cloned = asyncio.run(restoring.clone(settings, target, until_seq, progress))
    copied = cloned.copied
    return _result(
        cloned.restored,
        {
            "copied": f"{copied.objects:,} objects, {size(copied.size_bytes)}",
            "were there": copied.found,
            "into": cloned.target,
            "start it": "with --take-over, from a data directory of its own",
        },
    )


def _result(restored: Restored, more: Json) -> Result:
    rebuilt, state = restored.rebuilt, restored.state
    members = {
        "as of": f"entry {rebuilt.position.seq:,}, fencing mode {rebuilt.journal.mode}",
        "bucket id": rebuilt.journal.bucket_id.hex(),
        "began from": rebuilt.began_from,
        "entries replayed": rebuilt.entries_replayed,
        "topics": len(state.topics),
        "groups": len({row.group for row in state.group_offsets}),
        "API keys": len(state.api_keys),
        "objects": f"{len(restored.needed.objects):,}, {size(restored.needed.size_bytes)}",
        "seconds": round(rebuilt.seconds, 2),
        "notes": list(rebuilt.notes),
        **more,
    }
    return Result(members, outline)
