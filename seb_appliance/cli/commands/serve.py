"""`seb serve`: run the appliance until it is stopped or fenced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.control_client import ask
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import outline, say, say_json, showing, size
from seb_appliance.cli.parts import need_server
from seb_appliance.cli.remote import talks
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import load
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient
    from seb_appliance.ops.host.restoring import Cloned, Restored


@click.command
@with_settings()
def serve(config: Path | None, **flags: str | bool | None) -> int:
    """Run the appliance.

    Each setting can also stand in the settings file, and in a variable: SEB_ and its name in
    capitals. Durations and sizes have units: 250ms, 10s, 7d, 64KiB, 8MiB.
    """
    settings = settings_from(config, flags)
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.serve import process
    return process.serve(settings, Console())


# `seb promote`: make the standby on this machine the writer.


TIMEOUT_S: Final = 300.0  # a take-over in fencing mode B may have to wait a minute


@click.command
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings("data")
def promote(as_json: bool, config: Path | None, **flags: str | bool | None) -> None:
    """Make the standby that runs on this machine the writer.

    It reads what there is, takes over, and fences the appliance that it followed: that one
    acknowledges nothing more. When this says that it is the writer, it is.
    """
    settings = settings_from(config, flags)
    answer = ask(settings.data, "promote", timeout_s=TIMEOUT_S)
    if as_json:
        say_json({name: answer[name] for name in ("epoch", "seq", "seconds")})
        return
    say(
        f"the writer now: epoch {answer['epoch']}, entry {answer['seq']:,}, "
        f"after {answer['seconds']:.1f} s"
    )


# `seb snapshot`: put a snapshot of the state into the bucket, now.


@click.command
@talks
def snapshot(client: HttpClient, as_json: bool) -> None:
    """Make a snapshot, so that the next start replays nothing. Needs an admin key."""
    made = client.request("POST", path_of("snapshots")).json()
    if as_json:
        say_json(made)
    else:
        say(f"the newest snapshot is as of entry {made['seq']:,}")


# `seb restore` and `seb clone`: a bucket is read; what comes of it is written elsewhere.


Progress = Callable[[int, int, str], None]

_BUCKET = (
    "bucket", "data", "s3_endpoint", "s3_region", "s3_access_key_id", "s3_checksums",
    "s3_immediate_list", "s3_connect_timeout", "s3_read_timeout",
)  # fmt: skip


@click.command
@click.option("--verify", is_flag=True, help="Only try it: nothing is left behind.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --verify: write how it went to this file, as metrics for Prometheus.",
)
@click.option("--until-seq", type=click.IntRange(0), metavar="N", help="As of journal entry N.")
@click.option("--into", metavar="ADDRESS", help="With --until-seq: an empty bucket or prefix.")
@click.option(
    "--into-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (TOML) with the s3_… settings of --into, where they are others.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings(*_BUCKET)
def restore(
    verify: bool,
    report: Path | None,
    until_seq: int | None,
    into: str | None,
    into_config: Path | None,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> None:
    """Rebuild local state from the bucket alone, or go back to an earlier entry.

    Without options: the state of the bucket in --data, which must have none. With --verify, the
    drill: what a new machine would do, in a scratch directory below --data. With --until-seq and
    --into: the appliance as of that entry in another bucket or prefix, so that no offset is ever
    given twice. The bucket itself is only read, also while an appliance writes to it.
    """
    settings = settings_from(config, flags)
    if (until_seq is None) != (into is None) or (verify and into is not None):
        raise click.UsageError("--until-seq and --into belong together, and not with --verify.")
    if report is not None and not verify:
        raise click.UsageError("--report goes with --verify.")
    if into is not None:
        _say(_clone(settings, into, into_config, until_seq), as_json)
        return
    with need_server():
        from seb_appliance.ops.host import restoring
    with showing("reading the bucket") as progress:
        if verify:
            restored = asyncio.run(restoring.drill(settings, report, progress))
        else:
            restored = asyncio.run(restoring.restore(settings, settings.data, progress))
    _say(_members(restored), as_json)


@click.command
@click.option("--into", required=True, metavar="ADDRESS", help="An empty bucket or prefix.")
@click.option(
    "--into-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (TOML) with the s3_… settings of --into, where they are others.",
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings(*_BUCKET)
def clone(
    into: str,
    into_config: Path | None,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> None:
    """Copy a bucket to another one, object by object, each checked.

    The source is only read, also while an appliance writes to it; the copy is as of the moment at
    which it begins. What broke off goes on with the same command. Never run two appliances on the
    two for long: they would give the same offsets to different records.
    """
    _say(_clone(settings_from(config, flags), into, into_config, None), as_json)


def _clone(
    settings: Settings, into: str, into_config: Path | None, until_seq: int | None
) -> dict[str, Any]:
    target = _target(settings, into, into_config)
    with need_server():
        from seb_appliance.ops.host import restoring
    with showing("reading the bucket") as progress:
        cloned = asyncio.run(restoring.clone(settings, target, until_seq, progress))
    return _copied(cloned)


def _target(settings: Settings, into: str, into_config: Path | None) -> Settings:
    """The settings of the bucket `into`: those of the source, or of a file of its own."""
    from dataclasses import replace

    if into_config is not None:
        found = load(flags={"bucket": into}, environment={}, config=into_config)
        return replace(found, data=settings.data)
    target = replace(settings, bucket=into)
    if target.address.kind == "memory":
        raise ConfigurationError("--into memory: would be gone at once; name a bucket or directory")
    return target


def _members(restored: Restored) -> dict[str, Any]:
    rebuilt, state = restored.rebuilt, restored.state
    return {
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
    }


def _copied(cloned: Cloned) -> dict[str, Any]:
    return {
        **_members(cloned.restored),
        "copied": f"{cloned.copied.objects:,} objects, {size(cloned.copied.size_bytes)}",
        "were there": cloned.copied.found,
        "into": cloned.target,
        "start it": "with --take-over, from a data directory of its own",
    }


def _say(members: dict[str, Any], as_json: bool) -> None:
    say(json.dumps(members, indent=2, ensure_ascii=False) if as_json else outline(members))
