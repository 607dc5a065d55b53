"""Lake tables as the journal stores them: their columns, data files and manifests.

A topic with the setting `table` is also a table in the bucket, in the formats Iceberg and Delta.
The journal holds the list of its files; the metadata of both formats is printed from it
(seb_appliance/lake/). The events are in operations.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from seb_appliance.formats.numbers import Whole

ColumnType = Literal[
    "long", "double", "string", "boolean", "timestamp", "json", "binary", "headers"
]
TableFormat = Literal["iceberg", "delta"]
# What a commit did to the rows: added some, kept all in other files, or removed some.
TableOp = Literal["append", "replace", "delete"]

PRINTER: Final = 1  # raised when the same state is printed with other bytes
MANIFEST_FILES_MAX: Final = 1_000


class Column(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """`field_id` is never given to another column of the table. `path`: of a declared column, the
    members that lead to its value in a record's JSON value. Types as in docs/TABLES.md; `json` is
    text, `headers` a map of text to bytes."""

    field_id: Whole
    name: str
    type: ColumnType
    path: tuple[str, ...] = ()
    required: bool = False


# A map has field ids for its keys and its values, too.
HEADERS_KEY_ID: Final = 6
HEADERS_VALUE_ID: Final = 7
OFFSET: Final = Column(1, "offset", "long", required=True)
TIMESTAMP: Final = Column(2, "timestamp", "timestamp", required=True)
KEY: Final = Column(3, "key", "string")
VALUE: Final = Column(4, "value", "string")
HEADERS: Final = Column(5, "headers", "headers")
KEY_BINARY: Final = Column(8, "key_binary", "binary")
VALUE_BINARY: Final = Column(9, "value_binary", "binary")
REST: Final = Column(10, "_rest", "json")
RAW: Final = Column(11, "_raw", "binary")
# What `_error` says of a row without a value. Its `_raw` is null, unlike that of a row that could
# not be read.
TOMBSTONE: Final = "no value"
ERROR: Final = Column(12, "_error", "string")
FIRST_DECLARED_ID: Final = 16

_RECORD: Final = (OFFSET, TIMESTAMP, KEY, KEY_BINARY, HEADERS)
_RESERVED: Final = {one.name: one for one in (*_RECORD, VALUE, VALUE_BINARY, REST, RAW, ERROR)}
RESERVED_NAMES: Final = frozenset(_RESERVED)


def all_columns(declared: tuple[Column, ...], *, rest: bool) -> tuple[Column, ...]:
    """Every column of a table with these declared ones (none: the value as it is). `rest`: whether
    `_rest` holds the other members of the value."""
    if not declared and not rest:
        return (*_RECORD, VALUE, VALUE_BINARY)
    return (*_RECORD, *declared, *((REST,) if rest else ()), RAW, ERROR)


def columns_shown(shown: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that the API tells of (name, type, path), in their order. It does not tell field
    ids: those of declared columns are made up."""
    return tuple(
        _RESERVED.get(one["name"])
        or Column(FIRST_DECLARED_ID + i, one["name"], one["type"], tuple(one["path"]))
        for i, one in enumerate(shown)
    )


class ColumnStats(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of one column of a data file. `lower` and `upper` are bounds in Iceberg's single-value
    serialization, perhaps shortened; None: not known."""

    field_id: Whole
    nulls: Whole
    lower: bytes | None = None
    upper: bytes | None = None


class TableFile(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A Parquet file. `name`: its key is this name below the table's location. `bad` of its
    `records` could not be read as the columns say. The file answers for all offsets from first to
    last, inclusive, though some may have no record. `schema`: the number of its schema.
    `created_us`: when the newest of its records was stored. `as_of`: the journal entry up to which
    the log was read."""

    name: str
    length: Whole
    records: Whole
    bad: Whole
    first_offset: Whole
    last_offset: Whole
    smallest_us: int
    largest_us: int
    schema: Whole
    stats: tuple[ColumnStats, ...] = ()
    created_us: Whole = 0
    as_of: Whole = 0


class TableRange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The table has the records of the topic from `first` up to `next` (exclusive) now."""

    topic_id: Whole
    first: Whole
    next: Whole


class ManifestName(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, order=True
):
    """An Iceberg manifest: number `number` of those that commit `version` wrote."""

    version: Whole
    number: Whole
