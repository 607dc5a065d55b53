"""Iceberg v2 metadata, printed from the state of a table: the same state gives the same bytes.

The rules are Iceberg's table spec, version 2 (manifests, manifest lists, table metadata).
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from seb_appliance.broker.lake.jobs import PrintedObject
from seb_appliance.broker.lake.names import HINT, list_name, manifest_name, metadata_name
from seb_appliance.broker.lake.table import (
    LakeFile,
    Manifest,
    Snapshot,
    TableHead,
    manifests_of,
)
from seb_appliance.formats.lake.tables import (
    HEADERS_KEY_ID,
    HEADERS_VALUE_ID,
    Column,
    ManifestName,
)
from seb_appliance.lake.avro import container

_TYPES: Final = {
    "long": "long",
    "double": "double",
    "string": "string",
    "json": "string",
    "boolean": "boolean",
    "timestamp": "timestamptz",
    "binary": "binary",
}
_HEADERS: Final = {
    "type": "map",
    "key-id": HEADERS_KEY_ID,
    "key": "string",
    "value-id": HEADERS_VALUE_ID,
    "value": "binary",
    "value-required": False,
}
_OPERATIONS: Final = {"append": "append", "replace": "replace", "delete": "delete"}
_EXISTING, _ADDED, _REMOVED = 0, 1, 2
_NO_PARTITIONS: Final = {"spec-id": 0, "fields": []}


def _field(name: str, number: int, kind: Any, *, required: bool = True) -> dict[str, Any]:
    if required:
        return {"name": name, "type": kind, "field-id": number}
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _map(key_id: int, value_id: int, kind: str) -> dict[str, Any]:
    fields = [_field("key", key_id, "int"), _field("value", value_id, kind)]
    record = {"type": "record", "name": f"k{key_id}_v{value_id}", "fields": fields}
    return {"type": "array", "logicalType": "map", "items": record}


_DATA_FILE: Final = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field("content", 134, "int"),
        _field("file_path", 100, "string"),
        _field("file_format", 101, "string"),
        _field("partition", 102, {"type": "record", "name": "r102", "fields": []}),
        _field("record_count", 103, "long"),
        _field("file_size_in_bytes", 104, "long"),
        _field("value_counts", 109, _map(119, 120, "long"), required=False),
        _field("null_value_counts", 110, _map(121, 122, "long"), required=False),
        _field("lower_bounds", 125, _map(126, 127, "bytes"), required=False),
        _field("upper_bounds", 128, _map(129, 130, "bytes"), required=False),
        _field("sort_order_id", 140, "int", required=False),
    ],
}
_ENTRY: Final = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field("status", 0, "int"),
        _field("snapshot_id", 1, "long", required=False),
        _field("sequence_number", 3, "long", required=False),
        _field("file_sequence_number", 4, "long", required=False),
        _field("data_file", 2, _DATA_FILE),
    ],
}
_LIST: Final = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field("manifest_path", 500, "string"),
        _field("manifest_length", 501, "long"),
        _field("partition_spec_id", 502, "int"),
        _field("content", 517, "int"),
        _field("sequence_number", 515, "long"),
        _field("min_sequence_number", 516, "long"),
        _field("added_snapshot_id", 503, "long"),
        _field("added_files_count", 504, "int"),
        _field("existing_files_count", 505, "int"),
        _field("deleted_files_count", 506, "int"),
        _field("added_rows_count", 512, "long"),
        _field("existing_rows_count", 513, "long"),
        _field("deleted_rows_count", 514, "long"),
    ],
}


def printed(head: TableHead, listed: Sequence[LakeFile]) -> list[PrintedObject]:
    """The objects of the last commit, in the order in which they must be stored. `listed`: the
    files of its manifests."""
    made = []
    if head.is_printed_whole:
        for name, files in manifests_of(head.number, listed):
            key = head.key_of(manifest_name(name))
            made.append(PrintedObject(key, manifest(head, name, files)))
        made.append(PrintedObject(head.key_of(list_name(head.number)), manifest_list(head)))
    metadata_key = head.key_of(metadata_name(head.number))
    made.append(PrintedObject(metadata_key, metadata(head), create_only=True))
    made.append(PrintedObject(head.key_of(HINT), str(head.number).encode()))
    return made


def manifest(head: TableHead, name: ManifestName, files: Sequence[LakeFile]) -> bytes:
    rows = []
    for one in files:
        status, snapshot = _EXISTING, one.added
        if one.removed == name.version:
            status, snapshot = _REMOVED, one.removed
        elif one.added == name.version:
            status = _ADDED
        rows.append(
            {
                "status": status,
                "snapshot_id": snapshot,
                "sequence_number": one.added,
                "file_sequence_number": one.added,
                "data_file": _data_file(head, one),
            }
        )
    facts = {
        "schema": json.dumps(_schema(head.schemas[-1], head.schema)),
        "schema-id": str(head.schema),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return container(_ENTRY, rows, facts, _sync(head, manifest_name(name)))


def _data_file(head: TableHead, one: LakeFile) -> dict[str, Any]:
    file = one.file
    stats = sorted(file.stats, key=lambda found: found.field_id)
    lower = [(found.field_id, found.lower) for found in stats if found.lower is not None]
    upper = [(found.field_id, found.upper) for found in stats if found.upper is not None]
    return {
        "content": 0,
        "file_path": _uri(head, file.name),
        "file_format": "PARQUET",
        "partition": {},
        "record_count": file.records,
        "file_size_in_bytes": file.length,
        "value_counts": _pairs([(found.field_id, file.records) for found in stats]),
        "null_value_counts": _pairs([(found.field_id, found.nulls) for found in stats]),
        "lower_bounds": _pairs(lower),
        "upper_bounds": _pairs(upper),
        "sort_order_id": 0,
    }


def _pairs(items: Sequence[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in items]


def manifest_list(head: TableHead) -> bytes:
    """Of the newest snapshot."""
    rows = [_manifest_row(head, one) for one in head.manifests]
    snapshots = _readable(head)
    parent = snapshots[-2].number if len(snapshots) > 1 else None
    facts = {
        "snapshot-id": str(head.number),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(head.number),
        "format-version": "2",
    }
    return container(_LIST, rows, facts, _sync(head, list_name(head.number)))


def _manifest_row(head: TableHead, one: Manifest) -> dict[str, Any]:
    return {
        "manifest_path": _uri(head, manifest_name(one.name)),
        "manifest_length": one.length,
        "partition_spec_id": 0,
        "content": 0,
        "sequence_number": one.name.version,
        "min_sequence_number": one.smallest,
        "added_snapshot_id": one.name.version,
        "added_files_count": one.added_files,
        "existing_files_count": one.existing_files,
        "deleted_files_count": one.removed_files,
        "added_rows_count": one.added_records,
        "existing_rows_count": one.existing_records,
        "deleted_rows_count": one.removed_records,
    }


def metadata(head: TableHead) -> bytes:
    """The table's metadata file."""
    snapshots = _readable(head)
    newest = snapshots[-1].number if snapshots else -1
    location = _uri(head, "").rstrip("/")
    last_column = max(
        max(one.field_id for columns in head.schemas for one in columns), HEADERS_VALUE_ID
    )
    document = {
        "format-version": 2,
        "table-uuid": str(_uuid(head)),
        "location": location,
        "last-sequence-number": newest if snapshots else 0,
        "last-updated-ms": head.updated_ms,
        "last-column-id": last_column,
        "current-schema-id": head.schema,
        "schemas": [_schema(columns, i) for i, columns in enumerate(head.schemas)],
        "default-spec-id": 0,
        "partition-specs": [_NO_PARTITIONS],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {
            "seb.topic": head.definition.name,
            "seb.topic-id": str(head.definition.topic_id),
            "seb.next-offset": str(head.next_offset),
        },
        "current-snapshot-id": newest,
        "refs": {"main": {"snapshot-id": newest, "type": "branch"}} if snapshots else {},
        "snapshots": [
            _snapshot(head, one, parent)
            for one, parent in zip(snapshots, [None, *snapshots], strict=False)
        ],
        "snapshot-log": [
            {"snapshot-id": one.number, "timestamp-ms": one.timestamp_ms} for one in snapshots
        ],
        "metadata-log": [
            {"timestamp-ms": ms, "metadata-file": _uri(head, metadata_name(number))}
            for number, ms in head.times[:-1]
            if number >= head.iceberg_from
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _readable(head: TableHead) -> list[Snapshot]:
    """The snapshots whose manifests are in the bucket, at its present address."""
    return [
        one for one in head.snapshots if one.number > head.iceberg_from or head.iceberg_from <= 1
    ]


def _snapshot(head: TableHead, one: Snapshot, parent: Snapshot | None) -> dict[str, Any]:
    rewrites = one.op == "delete" and one.added_files
    summary: Mapping[str, object] = {
        "operation": "overwrite" if rewrites else _OPERATIONS[one.op],
        "added-data-files": one.added_files,
        "added-records": one.added_records,
        "added-files-size": one.added_length,
        "deleted-data-files": one.removed_files,
        "deleted-records": one.removed_records,
        "removed-files-size": one.removed_length,
        "total-data-files": one.files,
        "total-records": one.records,
        "total-files-size": one.length,
        "total-delete-files": 0,
        "total-position-deletes": 0,
        "total-equality-deletes": 0,
        "seb.topic-id": head.definition.topic_id,
        "seb.next-offset": one.next_offset,
    }
    found: dict[str, Any] = {
        "snapshot-id": one.number,
        "sequence-number": one.number,
        "timestamp-ms": one.timestamp_ms,
        "manifest-list": _uri(head, list_name(one.number)),
        "summary": {name: str(value) for name, value in summary.items()},
        "schema-id": one.schema,
    }
    if parent is not None:
        found["parent-snapshot-id"] = parent.number
    return found


def _schema(columns: Sequence[Column], number: int) -> dict[str, Any]:
    fields = [
        {
            "id": one.field_id,
            "name": one.name,
            "required": one.required,
            "type": _HEADERS if one.type == "headers" else _TYPES[one.type],
        }
        for one in columns
    ]
    return {"type": "struct", "schema-id": number, "fields": fields}


def _uri(head: TableHead, name: str) -> str:
    return f"{head.definition.address}/{head.key_of(name)}"


def _uuid(head: TableHead) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.sha256(head.table_id.encode()).digest()[:16], version=4)


def _sync(head: TableHead, name: str) -> bytes:
    return hashlib.sha256(f"{head.table_id} {name}".encode()).digest()[:16]
