"""`seb export`: one topic as lines, or topics as the Go broker's files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from seb_appliance import limits
from seb_appliance.cli.failures import REFUSED, UNAVAILABLE, CommandError
from seb_appliance.cli.importing import FORMATS, other_bucket
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import say, tell
from seb_appliance.cli.parts import need_server
from seb_appliance.cli.progress import Counted, showing
from seb_appliance.cli.reaching import make_client, url_and_key
from seb_appliance.cli.wording import in_our_words
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient
    from seb_appliance.machine.exporting import MakeWriter

_SETTINGS: Final = (
    "url", "key_file", "profile", "s3_endpoint", "s3_region", "s3_access_key_id", "s3_checksums",
    "s3_connect_timeout", "s3_read_timeout",
)  # fmt: skip


@click.command
@click.option("--format", "kind", type=click.Choice(FORMATS), default="ndjson", help="[ndjson]")
@click.option(
    "--to", metavar="ADDRESS", help="A new file, or - [-]; of seb-v1 a bucket or directory."
)
@click.option(
    "--to-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file (TOML) with the s3_… settings of --to, where they are others.",
)
@click.option(
    "--topic", "topics", multiple=True, metavar="PATTERN", help="The topic; of seb-v1 topics. [**]"
)
@click.option(
    "--values-only",
    is_flag=True,
    help="Leave out record keys and headers; what has no value becomes an empty record.",
)
@click.option(
    "--records-per-file",
    type=click.IntRange(1, limits.EXPORT_FILE_RECORDS_MAX),
    metavar="N",
    help="Up to N records in a file, which has one time. [those of one time]",
)
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
@with_settings(*_SETTINGS)
def export(
    kind: str,
    to: str | None,
    topics: tuple[str, ...],
    as_json: bool,
    to_config: Path | None,
    values_only: bool,
    records_per_file: int | None,
    config: Path | None,
    **given: Any,
) -> None:
    """Write one topic as lines; or topics as the Go broker keeps them, up to the log end of now.

    Lines hold everything that a record has, and `seb import --format ndjson` takes them in again.
    With --format seb-v1 the Go broker goes on with the bucket or directory. All is asked for by
    HTTP. A file or directory has its name only once it is whole.
    """
    if kind == "ndjson":
        if len(topics) != 1 or values_only or records_per_file or to_config or _is_bucket(to):
            raise click.UsageError(
                "lines take one --topic and --to FILE; say --format seb-v1 for the Go broker's "
                "files, in a bucket or directory"
            )
        client = make_client(config, {name: given[name] for name in ("url", "key_file", "profile")})
        try:
            _export_lines(client, topics[0], to)
        finally:
            client.close()
        return
    if to is None:
        raise click.UsageError("say with --to where the files shall lie")
    settings = settings_from(config, given)
    target = other_bucket(settings, to, to_config)
    with need_server():
        from seb_appliance.machine import exporting

    async def run(target: Settings) -> dict[str, int]:
        chosen = {"values_only": values_only, "records_per_file": records_per_file}
        with showing("asking for topics") as progress:
            async with exporting.old_bucket(target) as make:
                return await _export(*url_and_key(settings), topics, make, chosen, progress)

    with _whole(target) as place:
        done = asyncio.run(run(place))
    say(json.dumps(done) if as_json else "  ".join(f"{name}: {n:,}" for name, n in done.items()))


async def _export(
    url: str,
    api_key: str,
    patterns: tuple[str, ...],
    make: MakeWriter,
    chosen: dict[str, Any],
    progress: Counted,
) -> dict[str, int]:
    """What was written. Raises CommandError, ExportRefusedError, StoreError."""
    from seb_appliance.client import ApplianceError, AsyncAdmin, AsyncConsumer, ClientError

    done = dict.fromkeys(("topics", "files", "records", "were_there"), 0)
    try:
        async with AsyncAdmin(url, api_key) as admin:
            names: set[str] = set()
            for pattern in patterns or ("**",):
                names.update(topic["topic"] for topic in await admin.topics(pattern))
        for name in sorted(names):
            writer = make(name, **chosen)
            await writer.begin()
            async with AsyncConsumer(url, api_key, name, follow=False) as consumer:
                async for batch in consumer.batches():
                    await writer.add(batch.records)
                    progress(batch.next_offset, batch.log_end_offset, name)
            await writer.finish()
            counts = (1, writer.files, writer.records, writer.found)
            done = dict(zip(done, map(sum, zip(done.values(), counts, strict=True)), strict=True))
    except ClientError as error:
        refused = isinstance(error, ApplianceError) and not error.retryable
        raise CommandError(in_our_words(str(error)), REFUSED if refused else UNAVAILABLE) from error
    return done


def _export_lines(client: HttpClient, topic: str, to: str | None) -> None:
    from seb_appliance.cli.record_lines import JSON_LINES, PAGE_BYTES
    from seb_appliance.client.reading import Reading, Source, begin, pages

    reading = Reading("earliest", None, follow=False, max_bytes=PAGE_BYTES)
    source = Source(client.caller, topic)
    began, end = client.wait_for(begin(source, reading, None), is_read=True)
    count = 0
    with _opened(to) as target:
        found = pages(source, reading, JSON_LINES.form, began, end)
        for page in client.ahead(found):
            target.write(b"".join(line + b"\n" for line in page.records))
            count += len(page.records)
        target.flush()
    tell(f"{count:,} records")


@contextlib.contextmanager
def _opened(to: str | None) -> Iterator[BinaryIO]:
    """A new file, which has its name once it is whole, or stdout. Raises CommandError."""
    if to is None or to == "-":
        yield sys.stdout.buffer
        return
    path = Path(to)
    partial = _partial(path)
    try:
        _require_new(path)
        with partial.open("xb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _require_new(path)
                partial.rename(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or to} ({error.strerror})") from error


@contextlib.contextmanager
def _whole(target: Settings) -> Iterator[Settings]:
    """Where to write: a directory has its name once it is whole. What broke off stays beside it,
    and the same command goes on there. Raises CommandError."""
    if target.address.kind != "file":
        yield target
        return
    path = target.address.path
    partial = _partial(path)
    try:
        _require_new(path)
        yield replace(target, bucket=f"file:{partial}")
        if path.exists():
            path.rmdir()  # an empty one
        partial.rename(path)
    except OSError as error:
        raise CommandError(f"cannot write {path} ({error.strerror})") from error
    finally:
        if any(found.is_file() for found in partial.rglob("*")):
            tell(f"{path} is not whole: {partial} holds a part, and the same command goes on there")
        else:
            shutil.rmtree(partial, ignore_errors=True)


def _partial(path: Path) -> Path:
    """Where it lies until it is whole: on the same disk, and seen to be no whole export."""
    return path.with_name(f"{path.name}.partial")


def _require_new(path: Path) -> None:
    """An empty directory counts as new. Raises FileExistsError."""
    is_empty = path.is_dir() and not any(path.iterdir())
    if os.path.lexists(path) and not is_empty:
        raise FileExistsError(errno.EEXIST, "it is there already, and is never written over", path)


def _is_bucket(to: str | None) -> bool:
    return to is not None and to.startswith(("s3:", "file:", "memory:"))
