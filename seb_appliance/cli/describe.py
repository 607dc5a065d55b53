"""What is inside one object of the bucket, as plain data: for people and, as JSON, for scripts.

Each function takes the object's bytes and answers `{"format": …, …}`; bytes that are not what
their beginning says raise BadBatchError.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, batch_v1, entry
from seb_appliance.formats.columns import BinaryColumn

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
SQLITE_MAGIC: Final = b"SQLite format 3\0"
VERSION_AT: Final = 4

Description = dict[str, Any]


def describe(data: bytes, *, records: int = 0) -> Description:
    """Any object. `records`: how many records of each batch to show."""
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
        return _json(data)
    raise BadBatchError(
        f"the object begins with {data[:8]!r}: no record batch, journal entry or snapshot"
    )


def _batch_v1(data: bytes, records: int) -> Description:
    found = batch_v1.decode(data)
    return {
        "format": "record batch",
        "version": 1,
        "compressed": "gzip" if data[:2] == batch_v1.GZIP_MAGIC else "no",
        "created": _time(found.created_us),
        "count": len(found.values),
        "records": [{"value": _text(value)} for value in found.values.slice(0, records)],
    }


def _batches(data: bytes | memoryview, records: int) -> list[Description]:
    return [_batch(batch.decode(data, at), at, records) for at, _ in batch.walk(data)]


def _batch(found: batch.Batch, at: int, records: int) -> Description:
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
        "columns": _columns(header.flags),
        "compressed": "zstd" if header.flags & batch.ZSTD else "no",
        "inflated_bytes": header.inflated_bytes,
        "body_crc": f"{header.body_crc:08x}",
        "records": _records(found, records),
    }


def _columns(flags: int) -> list[str]:
    optional = {
        batch.EXPLICIT_OFFSETS: "offsets",
        batch.NULL_VALUES: "null values",
        batch.KEYS: "keys",
        batch.HEADERS: "headers",
    }
    return ["timestamps", "values", *(name for bit, name in optional.items() if flags & bit)]


def _records(found: batch.Batch, limit: int) -> list[Description]:
    columns, offsets = found.columns, found.offsets()
    shown = min(limit, len(columns))
    values = columns.values.slice(0, shown)
    keys = _items(columns.keys, shown)
    headers = _items(columns.headers, shown)
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


def _items(column: BinaryColumn | None, count: int) -> Sequence[bytes | None]:
    return column.slice(0, count) if column is not None else [None] * count


def _headers(packed: bytes | None) -> dict[str, str | None]:
    try:
        items = msgspec.msgpack.decode(packed, type=dict[str, bytes]) if packed else {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadBatchError(f"a record's headers cannot be read: {error}") from error
    return {name: _text(value) for name, value in items.items()}


def _entry(data: bytes, records: int) -> Description:
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


def _operation(operation: Any) -> Description:
    members = msgspec.to_builtins(operation, builtin_types=(bytes,))
    members.pop("secret_sha256", None)  # of no use to a reader, and nobody's business
    return {name: _member(name, value) for name, value in members.items()}


def _member(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return _time(value) if name.endswith("_us") and value is not None else value


def _snapshot(data: bytes) -> Description:
    """Tables of the SQLite file and how many rows each has; it is opened read-only, in a copy."""
    with tempfile.TemporaryDirectory(prefix="seb-inspect-") as folder:
        path = Path(folder) / "snapshot.sqlite"
        path.write_bytes(_inflated(data) if data[:4] == ZSTD_MAGIC else data)
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as database:
                database.execute("PRAGMA trusted_schema = OFF")
                return _tables(database)
        except sqlite3.Error as error:
            raise BadBatchError(f"not a SQLite file that can be read: {error}") from error


def _inflated(data: bytes) -> bytes:
    from backports import zstd

    inflater = zstd.ZstdDecompressor()
    try:
        inflated = inflater.decompress(data, max_length=limits.SNAPSHOT_BYTES_MAX)
    except zstd.ZstdError as error:
        raise BadBatchError(f"not a zstd frame: {error}") from error
    if not inflater.eof or inflated[:16] != SQLITE_MAGIC:
        raise BadBatchError("the zstd frame is cut short, or does not hold a SQLite file")
    return inflated


def _tables(database: sqlite3.Connection) -> Description:
    names = [
        name
        for (name,) in database.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' "
            "ORDER BY name"
        )
    ]
    rows = {
        name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]  # noqa: S608
        for name in names
        if '"' not in name
    }
    state: Description = {}
    if "journal_state" in rows:
        cursor = database.execute("SELECT * FROM journal_state LIMIT 1")
        columns = [column[0] for column in cursor.description]
        state = dict(zip(columns, cursor.fetchone() or (), strict=False))
    return {
        "format": "snapshot of the state",
        "check": database.execute("PRAGMA quick_check(1)").fetchone()[0],
        "state": {n: v.hex() if isinstance(v, bytes) else v for n, v in state.items()},
        "rows": rows,
    }


def _json(data: bytes) -> Description:
    try:
        return {"format": "JSON", "content": msgspec.json.decode(data)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatchError(f"neither one of our objects nor JSON: {error}") from error


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
