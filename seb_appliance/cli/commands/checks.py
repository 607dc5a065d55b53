"""`seb doctor`, `seb fsck` and `seb inspect`: look at a machine, a bucket, an object."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from crc32c import crc32c

from seb_appliance import limits, zstd
from seb_appliance.cli.errors import check_server, need_server
from seb_appliance.cli.options import BUCKET, Json, Result, shows, with_settings
from seb_appliance.cli.output import outline
from seb_appliance.errors import BadBatchError, ObjectMissingError, StartError, printable
from seb_appliance.formats import batch, batch_v1, entry
from seb_appliance.settings import Settings

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
SQLITE_MAGIC: Final = b"SQLite format 3\0"
VERSION_AT: Final = 4
_COLUMNS_MAX: Final = 100  # of a table in a snapshot
_COLUMNS: Final = {
    batch.EXPLICIT_OFFSETS: "offsets",
    batch.NULL_VALUES: "null values",
    batch.KEYS: "keys",
    batch.HEADERS: "headers",
}


@click.command
@with_settings()
@shows
def doctor(settings: Settings) -> Result:
    """Check the settings, the bucket, the clock, the disk and SQLite.

    Tests the bucket with small objects below its probe/ folder. Exit code 0: all is well; 69 or 74:
    the bucket fails; 78: a setting is wrong; 1: the server's parts are not installed.
    """
    check_server()
    with need_server():
        from seb_appliance.ops.checks.checkup import checkup
    data, exit_code = asyncio.run(checkup(settings))
    values = {
        name: f"{item['value']}  ({item['source']})" for name, item in data["settings"].items()
    }
    return Result(data, lambda _: outline(data | {"settings": values}), exit_code)


@click.command
@click.option("--quick", is_flag=True, help="Read no object whole: the log and its tables only.")
@click.option("--full", is_flag=True, help="Compare every row of key index and tables.")
@click.option("--bucket-only", is_flag=True, help="Leave the data directory alone.")
@click.option("--repair", is_flag=True, help="Rebuild damaged local files; the bucket stays.")
@with_settings(*BUCKET, "data", "garbage_grace")
@shows
def fsck(settings: Settings, **how: bool) -> Result:
    """Check the bucket: every entry, segment, snapshot, checksum and offset.

    Only reads, also while an appliance runs on the bucket. Files of the data directory are checked
    only while no appliance runs. Exit code 0: clean; 65: problems; 69: the store does not
    answer; 74: it refuses access, or holds no bucket of an appliance.
    """
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.checks.check import check
        from seb_appliance.ops.serve.process import start_progress
    with start_progress(Console(stderr=True)) as show:
        data, exit_code = asyncio.run(check(settings, show, **how))
    return Result(data, _findings, exit_code)


def _findings(data: Json) -> str:
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
def inspect(name: str, records: int, settings: Settings) -> Result:
    """Show the content of OBJECT.

    OBJECT is a file or, with --bucket, a key in that bucket: a record batch (version 1 or 2), a
    journal entry, a snapshot. Every checksum is checked. --records shows N records of each batch.
    """
    if settings.sources["bucket"] == "--bucket":
        data = asyncio.run(_from_bucket(settings, name))
    else:
        data = _from_file(Path(name))
    try:
        description = {"object": name, **describe(data, records=records)}
    except BadBatchError as error:
        raise StartError(f"{name}: {error.detail}") from error
    return Result(description, outline)


def _from_file(path: Path) -> bytes:
    too_large = StartError(f"{path} has more bytes than any object of ours")
    try:
        if path.stat().st_size > limits.OBJECT_BYTES_MAX:
            raise too_large
        if path.is_file():
            return path.read_bytes()
        with path.open("rb") as file:
            data = file.read(limits.OBJECT_BYTES_MAX + 1)  # a device may have no end
    except OSError as error:
        raise StartError(f"cannot read {path} ({error.strerror})") from error
    if len(data) > limits.OBJECT_BYTES_MAX:
        raise too_large
    return data


async def _from_bucket(settings: Settings, key: str) -> bytes:
    with need_server():
        from seb_appliance.ops.host.stores import opened_store
    async with opened_store(settings) as store:
        try:
            return await store.raw.get(key)
        except (ObjectMissingError, ValueError) as error:  # of a directory: it is no key there
            raise StartError(f"{settings.bucket} has no object {key!r}") from error


def describe(data: bytes, *, records: int = 0) -> Json:
    """What is inside one object of a bucket, as plain data: `{"format": …, …}`. `records`: how many
    records of each batch to show. Raises BadBatchError."""
    if data[:2] == batch_v1.GZIP_MAGIC or (
        data[:4] == batch_v1.MAGIC and data[VERSION_AT : VERSION_AT + 2] == b"\x01\x00"
    ):
        return _batch_v1(data, records)
    if data[:4] == batch.MAGIC:
        return {"format": "record batches", "version": 2, "batches": _batches(data, records)}
    if data[:4] == entry.MAGIC:
        return _entry(data, records)
    if data[:4] == ZSTD_MAGIC or data[:16] == SQLITE_MAGIC:
        return _snapshot(data)
    if data[:1] == b"{":
        try:
            return {"format": "JSON", "content": msgspec.json.decode(data)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadBatchError(f"neither one of our objects nor JSON: {error}") from error
    raise BadBatchError(
        f"the object begins with {data[:8]!r}: no record batch, journal entry or snapshot"
    )


def _batch_v1(data: bytes, records: int) -> Json:
    found = batch_v1.decode(data)
    return {
        "format": "record batch",
        "version": 1,
        "compressed": "gzip" if data[:2] == batch_v1.GZIP_MAGIC else "no",
        "created": _time(found.created_us),
        "count": len(found.values),
        "records": [{"value": _text(value)} for value in found.values.slice(0, records)],
    }


def _batches(data: bytes | memoryview, records: int) -> list[Json]:
    return [_batch(batch.decode(data, at), at, records) for at, _ in batch.walk(data)]


def _batch(found: batch.Batch, at: int, records: int) -> Json:
    header = found.header
    return {
        "at": at,
        "bytes": header.total_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.count,
        "created": _time(header.created_us),
        "smallest_timestamp": _time(header.smallest_timestamp_us),
        "largest_timestamp": _time(header.largest_timestamp_us),
        "columns": ["timestamps", "values"]
        + [name for bit, name in _COLUMNS.items() if header.flags & bit],
        "compressed": "zstd" if header.flags & batch.ZSTD else "no",
        "inflated_bytes": header.inflated_bytes,
        "body_crc": f"{header.body_crc:08x}",
        "records": _records(found, records),
    }


def _records(found: batch.Batch, limit: int) -> list[Json]:
    columns, offsets = found.columns, found.offsets()
    shown = min(limit, len(columns))
    values, keys, headers = (
        [None] * shown if column is None else column.slice(0, shown)
        for column in (columns.values, columns.keys, columns.headers)
    )
    return [
        {
            "offset": offsets[i],
            "timestamp": _time(columns.timestamps_us[i]),
            "key": _text(keys[i]),
            "value": _text(values[i]),
            "headers": _headers(headers[i]),
        }
        for i in range(shown)
    ]


def _headers(packed: bytes | None) -> dict[str, str | None]:
    try:
        items = msgspec.msgpack.decode(packed, type=dict[str, bytes]) if packed else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBatchError(f"a record's headers cannot be read: {error}") from error
    return {name: _text(value) for name, value in items.items()}


def _entry(data: bytes, records: int) -> Json:
    found = entry.decode(data)
    header = found.header
    sections = []
    for section in found.contents.sections:
        stored = entry.section_bytes(header, data, section.start, section.length)
        if crc32c(stored) != section.crc:
            raise BadBatchError(f"the CRC of topic {section.topic_id}'s section does not agree")
        sections.append(
            {
                "topic_id": section.topic_id,
                "base_offset": section.base_offset,
                "last_offset": section.last_offset,
                "count": section.record_count,
                "at": header.sections_at + section.start,
                "bytes": section.length,
                "crc": f"{section.crc:08x}",
                "largest_timestamp": _time(section.largest_timestamp_us),
                "batches": _batches(stored, records),
            }
        )
    return {
        "format": "journal entry",
        "version": entry.VERSION,
        "seq": header.seq,
        "epoch": header.epoch,
        "is_epoch_entry": header.is_epoch,
        "writer_id": header.writer_id.hex(),
        "entry_id": header.entry_id.hex(),
        "bucket_id": header.bucket_id.hex(),
        "created": _time(header.created_us),
        "bytes": header.length,
        "header_crc": f"{header.header_crc:08x}",
        "header_crc_before": f"{header.prev_header_crc:08x}",
        "operations": [_operation(operation) for operation in found.contents.operations],
        "sections": sections,
    }


def _operation(operation: Any) -> Json:
    members: Json = msgspec.to_builtins(operation, builtin_types=(bytes,))
    members.pop("secret_sha256", None)  # nobody may see it
    for name, value in members.items():
        if isinstance(value, tuple):
            members[name] = list(value)
        elif name.endswith("_us") and value is not None:
            members[name] = _time(value)
    return members


def _snapshot(data: bytes) -> Json:
    """Tables of the SQLite file and how many rows each has; it is opened read-only, in a copy."""
    from seb_appliance.ops.host.scratch import scratch_folder

    with scratch_folder("seb-inspect-") as folder:
        path = folder / "snapshot.sqlite"
        _unpack(data, path)
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as database:
                database.execute("PRAGMA trusted_schema = OFF")
                # A column may be an expression of any size.
                database.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, _COLUMNS_MAX)
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.ENTRY_BYTES_MAX)
                return _tables(database)
        except sqlite3.Error as error:
            raise BadBatchError(f"not a SQLite file that can be read: {error}") from error


def _unpack(data: bytes, path: Path) -> None:
    """Some at a time: a frame of 1 KiB may hold a GiB."""
    if data[:4] != ZSTD_MAGIC:
        path.write_bytes(data)
        return
    inflater = zstd.ZstdDecompressor()
    left = limits.SNAPSHOT_BYTES_MAX
    try:
        with path.open("wb") as file:
            part = inflater.decompress(data, limits.MIB)
            if part[:16] != SQLITE_MAGIC:
                raise BadBatchError("the zstd frame does not hold a SQLite file")
            while part and (left := left - len(part)) >= 0:
                file.write(part)
                part = b"" if inflater.eof else inflater.decompress(b"", limits.MIB)
    except zstd.ZstdError as error:
        raise BadBatchError(f"not a zstd frame: {error}") from error
    except OSError as error:
        raise StartError(f"cannot write {path} ({error.strerror})") from error
    if not inflater.eof:
        raise BadBatchError(
            f"the zstd frame is cut short, or holds more than {limits.SNAPSHOT_BYTES_MAX} bytes"
        )


def _tables(database: sqlite3.Connection) -> Json:
    names = database.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' "
        "ORDER BY name"
    ).fetchall()
    rows = {
        name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608
        for (name,) in names
        if '"' not in name
    }
    check = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    state: Json = {}
    if "journal_state" in rows:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.KIB)
        cursor = database.execute("SELECT * FROM journal_state LIMIT 1")
        columns = [column[0] for column in cursor.description]
        state = dict(zip(columns, cursor.fetchone() or (), strict=False))
    return {
        "format": "snapshot of the state",
        "check": check,
        "state": {n: v.hex() if isinstance(v, bytes) else v for n, v in state.items()},
        "rows": rows,
    }


def _text(value: bytes | None) -> str | None:
    """UTF-8 as it is, anything else as hex with 0x before it."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


def _time(us: int) -> str:
    """RFC 3339, or the bare number where no calendar reaches."""
    try:
        moment = datetime.fromtimestamp(us // 1_000_000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{us} µs"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000:06d}Z"
