"""`seb import` and `seb export`: one topic as lines, or topics as the Go broker's files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click

from seb_appliance import limits
from seb_appliance.cli.commands.records import PAGE_BYTES, copy, send_objects
from seb_appliance.cli.connection import HttpClient, url_and_key
from seb_appliance.cli.errors import (
    REFUSED,
    UNAVAILABLE,
    AnswerError,
    CommandError,
    in_our_words,
    need_server,
)
from seb_appliance.cli.options import (
    BUCKET,
    CONNECTION,
    TIMEOUTS,
    Quantity,
    file_option,
    json_option,
    other_bucket,
    with_settings,
)
from seb_appliance.cli.output import outline, say, showing, size, tell, write
from seb_appliance.client.reading import Reading
from seb_appliance.quantities import counted
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.ops.serve.go_import import Imported


FORMATS: Final = ("seb-v1", "ndjson")


@click.command("import")
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(dir_okay=False))
@click.option("--format", "kind", type=click.Choice(FORMATS), default="seb-v1", help="[seb-v1]")
@click.option("--from", "source", metavar="ADDRESS", help="The old bucket, or a directory.")
@file_option(
    "--from-config", "Settings file (TOML) with the s3_… settings of --from, if they differ."
)
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="Which topics. [**]")
@click.option("--copy", is_flag=True, help="Copy the records into this appliance's bucket.")
@click.option("--dry-run", is_flag=True, help="Only read and check every file.")
@click.option(
    "--quiet-for",
    "quiet_ms",
    type=Quantity("DURATION", 0, limits.IMPORT_QUIET_MS_MAX),
    metavar="DURATION",
    default="1m",
    help="The old bucket must not have changed for so long. [1m]",
)
@click.option("--times-may-go-back", is_flag=True, help="The old machine's clock was set back.")
@click.option("--append", is_flag=True, help="Of lines: also to a topic that has records.")
@json_option
@with_settings(*CONNECTION, *BUCKET, "data", "s3_immediate_list", *TIMEOUTS)
def import_(
    file: str | None,
    kind: str,
    topics: tuple[str, ...],
    as_json: bool,
    append: bool,
    settings: Settings,
    **old: Any,
) -> None:
    """Import topics of a Go broker's bucket with their offsets, or lines into one topic.

    Files in the appliance's own bucket become part of its log where they are; files of another
    bucket are copied. No appliance may run during the import. Run the same command again to
    continue an interrupted import. With --format ndjson, the lines of FILE (or stdin) are sent to a
    running appliance.
    """
    if kind == "ndjson":
        asked = {name: value for name, value in old.items() if name != "quiet_ms"}  # always there
        if any(asked.values()) or len(topics) != 1:
            raise click.UsageError("--format ndjson takes one --topic and a FILE, and no bucket")
        with HttpClient.of(settings) as client:
            if not append and _has_records(client, topics[0]):
                raise CommandError(f"topic {topics[0]!r} has records: --append adds to them")
            path = None if file in (None, "-") else Path(str(file))
            send_objects(client, topics[0], path, as_json, _to_produce)
        return
    if file is not None or append or old["source"] is None:
        raise click.UsageError("give the old bucket with --from (FILE is for ndjson)")
    imported = _import_bucket(settings, topics or ("**",), **old)
    members = _members(imported, dry_run=old["dry_run"])
    say(json.dumps(asdict(imported), indent=2) if as_json else outline(members))


def _import_bucket(
    settings: Settings,
    topics: tuple[str, ...],
    *,
    source: str,
    from_config: Path | None,
    **chosen: Any,
) -> Imported:
    with need_server():
        import uvloop

        from seb_appliance.ops.host.runtime import keep_freed_memory
        from seb_appliance.ops.serve import go_import as importing

    keep_freed_memory()  # one heap: else each thread keeps what it has freed
    old = other_bucket(settings, "--from", source, from_config)
    options = importing.ImportOptions(source=old, topics=topics, **chosen)
    with (
        showing("looking at the old bucket") as progress,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(importing.import_old_log(settings, options, progress))


def _members(imported: Imported, *, dry_run: bool) -> dict[str, Any]:
    what = "checked" if dry_run else "imported in place" if imported.in_place else "copied"
    return {
        "topics": imported.topics,
        what: f"{counted(imported.files, 'file')}, {counted(imported.records, 'record')}, "
        f"{size(imported.size_bytes)}",
        "were there": imported.found,
        **({"goes on": counted(imported.goes_on, "topic")} if imported.goes_on else {}),
        "seconds": round(imported.seconds, 2),
    }


def _has_records(client: HttpClient, topic: str) -> bool:
    try:
        return bool(client.ask("GET", "topics", topic)["log_end_offset"])
    except AnswerError as error:
        if error.status == 404:
            return False
        raise


def _to_produce(line: bytes) -> bytes:
    """A line of a consumer as a line of a producer. Raises CommandError."""
    try:
        record = json.loads(line)
        record.pop("offset", None)
        for name in ("key", "value"):
            if f"{name}_base64" in record:
                record.pop(name, None)
        return json.dumps(record).encode()
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CommandError(f"not a line of records: {line[:80]!r}") from error


@click.command
@click.option("--format", "kind", type=click.Choice(FORMATS), default="ndjson", help="[ndjson]")
@click.option(
    "--to", metavar="ADDRESS", help="A new file, or - [-]; of seb-v1 a bucket or directory."
)
@file_option("--to-config", "Settings file (TOML) with the s3_… settings of --to, if they differ.")
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
@json_option
@with_settings(*CONNECTION, *BUCKET[1:], *TIMEOUTS)
def export(
    kind: str,
    to: str | None,
    topics: tuple[str, ...],
    as_json: bool,
    to_config: Path | None,
    values_only: bool,
    records_per_file: int | None,
    settings: Settings,
) -> None:
    """Write one topic as lines, or topics as files of the Go broker.

    Records up to the current log end are read by HTTP. Lines hold whole records, and `seb import
    --format ndjson` reads them. With --format seb-v1, the Go broker can continue with the bucket or
    directory. A file or directory gets its name once it is complete.
    """
    if kind == "ndjson":
        is_bucket = to is not None and to.startswith(("s3:", "file:", "memory:"))
        if len(topics) != 1 or values_only or records_per_file or to_config or is_bucket:
            raise click.UsageError(
                "lines take one --topic and --to FILE; say --format seb-v1 for the Go broker's "
                "files, in a bucket or directory"
            )
        reading = Reading("earliest", None, follow=False, max_bytes=PAGE_BYTES)
        with HttpClient.of(settings) as client, _opened(to) as put:
            count = copy(client, topics[0], reading, as_json=True, put=put)
        tell(counted(count, "record"))
        return
    if to is None:
        raise click.UsageError("give the target with --to")
    target = other_bucket(settings, "--to", to, to_config)
    with _whole(target) as place:
        done = asyncio.run(
            _export(
                settings,
                place,
                topics or ("**",),
                values_only=values_only,
                records_per_file=records_per_file,
            )
        )
    say(json.dumps(done) if as_json else "  ".join(f"{name}: {n:,}" for name, n in done.items()))


async def _export(
    settings: Settings, target: Settings, patterns: tuple[str, ...], **how: Any
) -> dict[str, int]:
    """What was written. Raises CommandError, ExportRefusedError, StoreError."""
    from seb_appliance.client import ApplianceError, AsyncAdmin, AsyncConsumer, ClientError

    with need_server():
        from seb_appliance.ops.host.stores import opened_store
        from seb_appliance.protocols.go.writing import OldTopicWriter

    url, api_key = url_and_key(settings)
    done = dict.fromkeys(("topics", "files", "records", "were_there"), 0)
    try:
        with showing("asking for topics") as progress:
            async with (
                opened_store(target, must_exist=False) as store,
                AsyncAdmin(url, api_key) as admin,
            ):
                found = [await admin.topics(pattern) for pattern in patterns]
                for name in sorted({topic["topic"] for topics in found for topic in topics}):
                    writer = OldTopicWriter(store, name, **how)
                    await writer.begin()
                    async with AsyncConsumer(url, api_key, name, follow=False) as consumer:
                        async for batch in consumer.batches():
                            await writer.add(batch.records)
                            progress(batch.next_offset, batch.log_end_offset, name)
                    await writer.finish()
                    counts = (1, writer.files, writer.records, writer.found)
                    done = {key: done[key] + n for key, n in zip(done, counts, strict=True)}
    except ClientError as error:
        refused = isinstance(error, ApplianceError) and not error.retryable
        raise CommandError(in_our_words(str(error)), REFUSED if refused else UNAVAILABLE) from error
    return done


@contextlib.contextmanager
def _opened(to: str | None) -> Iterator[Callable[[bytes], object]]:
    """Writes to stdout, or to a new file, which gets its name when it is complete. Raises
    CommandError."""
    if to is None or to == "-":
        yield write
        return
    path = Path(to)
    partial = _partial(path)
    try:
        _require_new(path)
        with _begun(partial) as file:
            try:
                yield file.write
                file.flush()
                os.fsync(file.fileno())
                _require_new(path)
                partial.rename(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CommandError(f"cannot write {error.filename or to} ({error.strerror})") from error


def _begun(partial: Path) -> IO[bytes]:
    """Raises OSError."""
    try:
        return partial.open("xb")
    except FileExistsError as error:
        why = "another export writes it, or one was killed: remove it then"
        raise FileExistsError(errno.EEXIST, why, partial) from error


@contextlib.contextmanager
def _whole(target: Settings) -> Iterator[Settings]:
    """Where to write. A directory gets its name when it is complete. An interrupted export stays
    beside it, and the same command continues it. Raises CommandError."""
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
    """The directory of an incomplete export: on the same disk, with a name that shows this."""
    return path.with_name(f"{path.name}.partial")


def _require_new(path: Path) -> None:
    """An empty directory counts as new. Raises FileExistsError."""
    is_empty = path.is_dir() and not any(path.iterdir())
    if os.path.lexists(path) and not is_empty:
        raise FileExistsError(errno.EEXIST, "it already exists, and is never overwritten", path)
