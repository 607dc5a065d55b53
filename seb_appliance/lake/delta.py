"""Delta Lake's transaction log, printed from the state of a table.

The rules are Delta's protocol (reader version 1, writer version 2). The version of a commit is its
number minus one. Other programs must not write: the log is not where commits are decided.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from seb_appliance.broker.lake.jobs import PrintedObject
from seb_appliance.broker.lake.names import LAST_CHECKPOINT, delta_name, has_checkpoint
from seb_appliance.broker.lake.table import LakeFile, TableHead
from seb_appliance.formats.lake.tables import Column, ColumnStats

_TYPES: Final = {
    "long": "long",
    "double": "double",
    "string": "string",
    "json": "string",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "binary": "binary",
}
_HEADERS: Final = {
    "type": "map",
    "keyType": "string",
    "valueType": "binary",
    "valueContainsNull": True,
}
_OPERATIONS: Final = {"append": "WRITE", "replace": "OPTIMIZE", "delete": "DELETE"}
_PROTOCOL: Final = {"minReaderVersion": 1, "minWriterVersion": 2}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

Action = Mapping[str, Any]


def needs_living(head: TableHead) -> bool:
    """Whether the last commit prints all files of the table."""
    return has_checkpoint(head.number, head.delta_from)


def printed(
    head: TableHead, listed: Sequence[LakeFile], living: Sequence[LakeFile] | None
) -> list[PrintedObject]:
    """The objects of the last commit, in the order in which they must be stored. `living`: all
    files, if it needs them."""
    number = head.number
    begins = number == head.delta_from
    actions: list[Action] = [{"commitInfo": _commit_info(head)}]
    if begins:
        actions.append({"protocol": _PROTOCOL})
    if begins or not head.is_printed_whole:
        actions.append({"metaData": _metadata(head)})
    actions.append({"txn": _transaction(head)})
    changes = head.newest is None or head.newest.op != "replace"
    if begins:
        actions += [{"add": _add(head, one, changes=True)} for one in living or ()]
    elif head.is_printed_whole:
        actions += [
            {"remove": _remove(head, one, changes=changes)}
            for one in listed
            if one.removed == number
        ]
        actions += [
            {"add": _add(head, one, changes=changes)}
            for one in listed
            if one.added == number and not one.removed
        ]
    lines = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in actions)
    made = [PrintedObject(head.key_of(delta_name(number)), lines, create_only=True)]
    if needs_living(head):
        assert living is not None
        body, count = _checkpoint(head, living)
        made.append(PrintedObject(head.key_of(delta_name(number, ".checkpoint.parquet")), body))
        last = json.dumps({"version": number - 1, "size": count}).encode()
        made.append(PrintedObject(head.key_of(LAST_CHECKPOINT), last))
    return made


def _commit_info(head: TableHead) -> Action:
    operation = "SET TBLPROPERTIES"
    if head.is_printed_whole and head.newest is not None:
        operation = _OPERATIONS[head.newest.op]
    return {
        "timestamp": head.updated_ms,
        "operation": operation,
        "operationParameters": {},
        "engineInfo": "seb-appliance",
    }


def _transaction(head: TableHead) -> Action:
    return {
        "appId": f"seb-topic-{head.definition.topic_id}",
        "version": head.next_offset,
        "lastUpdated": head.updated_ms,
    }


def _metadata(head: TableHead) -> Action:
    table_id = uuid.UUID(bytes=hashlib.sha256(head.table_id.encode()).digest()[:16], version=4)
    fields = [
        {
            "name": one.name,
            "type": _HEADERS if one.type == "headers" else _TYPES[one.type],
            "nullable": not one.required,
            "metadata": {},
        }
        for one in head.schemas[-1]
    ]
    return {
        "id": str(table_id),
        "name": head.definition.name,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}, separators=(",", ":")),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": head.made_ms,
    }


def _add(head: TableHead, one: LakeFile, *, changes: bool) -> dict[str, Any]:
    return {
        "path": one.file.name,
        "partitionValues": {},
        "size": one.file.length,
        "modificationTime": one.file.created_us // 1_000,
        "dataChange": changes,
        "stats": json.dumps(_stats(head, one), separators=(",", ":")),
    }


def _remove(head: TableHead, one: LakeFile, *, changes: bool) -> Action:
    return {
        "path": one.file.name,
        "deletionTimestamp": head.updated_ms,
        "dataChange": changes,
        "extendedFileMetadata": False,
    }


def _stats(head: TableHead, one: LakeFile) -> Action:
    """Bounds may be shortened texts: below and above the values, which is what skipping needs."""
    columns = {column.field_id: column for column in head.schemas[one.file.schema]}
    stats = [(columns[found.field_id], found) for found in one.file.stats]
    nulls = {column.name: found.nulls for column, found in stats if column.type != "headers"}
    bounds = [
        (column.name, _bound(column, found, upper=False), _bound(column, found, upper=True))
        for column, found in stats
    ]
    known = [(name, lower, upper) for name, lower, upper in bounds if None not in (lower, upper)]
    return {
        "numRecords": one.file.records,
        "minValues": {name: lower for name, lower, _ in known},
        "maxValues": {name: upper for name, _, upper in known},
        "nullCount": nulls,
    }


def _bound(column: Column, stats: ColumnStats, *, upper: bool) -> Any:
    """None where it is not known, or cannot be told."""
    body = stats.upper if upper else stats.lower
    if body is None:
        return None
    match column.type:
        case "long":
            return struct.unpack("<q", body)[0]
        case "double":
            return struct.unpack("<d", body)[0]
        case "boolean":
            return body == b"\x01"
        case "timestamp":
            # Delta's bounds are milliseconds: the upper one is rounded up.
            (us,) = struct.unpack("<q", body)
            ms = -(-us // 1_000) if upper else us // 1_000
            if ms > _LAST_MS:
                return None
            at = _EPOCH + timedelta(milliseconds=ms)
            return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return body.decode()


_TEXTS: Final = pa.map_(pa.string(), pa.string())
_CHECKPOINT: Final = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
        ),
    ]
)


def _checkpoint(head: TableHead, living: Sequence[LakeFile]) -> tuple[bytes, int]:
    """All of the table, and the number of its actions."""
    adds = [_add(head, one, changes=False) | {"partitionValues": []} for one in living]
    about = dict(_metadata(head))
    about |= {"configuration": [], "format": {"provider": "parquet", "options": []}}
    rows: list[dict[str, Any]] = [
        {"protocol": _PROTOCOL},
        {"metaData": about},
        {"txn": _transaction(head)},
        *({"add": one} for one in adds),
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _CHECKPOINT), buffer)
    return buffer.getvalue(), len(rows)
