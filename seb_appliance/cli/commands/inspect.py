"""`seb inspect OBJECT`: what is inside a record batch, a journal entry or a snapshot."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import outline, say
from seb_appliance.cli.parts import need_server
from seb_appliance.errors import BadBatchError, ObjectMissingError, StartError
from seb_appliance.settings import Settings


@click.command
@click.argument("name", metavar="OBJECT")
@click.option(
    "--records", metavar="N", default=0, type=click.IntRange(0), help="Show N of each batch."
)
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@with_settings("bucket", "s3_endpoint", "s3_region", "s3_access_key_id", "s3_checksums")
def inspect(
    name: str,
    records: int,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> None:
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
    if as_json:
        say(json.dumps(description, indent=2, ensure_ascii=False))
    else:
        say(outline(description))


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
