"""Records as rows of a lake table: stored batches become Arrow batches with the table's columns."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from seb_appliance.formats import arrow
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import (
    ERROR,
    FIRST_DECLARED_ID,
    HEADERS,
    KEY,
    KEY_BINARY,
    OFFSET,
    RAW,
    REST,
    TIMESTAMP,
    VALUE,
    VALUE_BINARY,
    Column,
)
from seb_appliance.lake.types import arrow_schema
from seb_appliance.lake.values import ValueReader

# Engines refuse a whole table for one time that their calendars do not have: the years 1 to 9999.
SMALLEST_US: Final = -62_135_596_800_000_000
LARGEST_US: Final = 253_402_300_799_999_999
_PIECE_BYTES: Final = 4 << 20  # of values that become rows at a time
_DECODED_ROWS: Final = 8_192  # whose values are Python objects at a time


class RowMaker:
    """Makes rows with these columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._declared = [one for one in columns if one.field_id >= FIRST_DECLARED_ID]
        self._reader = None
        if VALUE not in columns:
            self._reader = ValueReader(self._declared, rest=REST in columns)
        names = [OFFSET.name, TIMESTAMP.name, KEY.name, HEADERS.name, VALUE.name]
        self._stored = pa.schema([arrow.SCHEMA.field(name) for name in names])

    def rows(self, batch: Batch, begin: int, end: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """The records with begin <= offset < end, in their order, in pieces; and how many of each
        could not be read as the columns say."""
        offsets = batch.offsets()
        first, after = bisect_left(offsets, begin), bisect_left(offsets, end)
        if first >= after:
            return
        whole = arrow.record_batch(batch, "", self._stored)
        starts = batch.columns.values.starts
        while first < after:
            until = max(first + 1, bisect_right(starts, starts[first] + _PIECE_BYTES) - 1)
            if self._reader is not None:
                until = min(until, first + _DECODED_ROWS)
            until = min(until, after)
            yield self.rows_of(whole.slice(first, until - first))
            first = until

    def rows_of(self, stored: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """All of a piece that has columns as `arrow.SCHEMA`; and how many could not be read."""
        made: dict[str, Any] = {OFFSET.name: stored.column(OFFSET.name)}
        made[TIMESTAMP.name] = within_calendar(stored.column(TIMESTAMP.name))
        made[KEY.name], made[KEY_BINARY.name] = split_by_utf8(stored.column(KEY.name))
        made[HEADERS.name] = stored.column(HEADERS.name)
        bad = 0
        values = stored.column(VALUE.name)
        if self._reader is None:
            made[VALUE.name], made[VALUE_BINARY.name] = split_by_utf8(values)
        else:
            bad = self._add_declared(made, values)
        columns = [made[name] for name in self._names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), bad

    def _add_declared(self, made: dict[str, Any], values: pa.Array) -> int:
        assert self._reader is not None
        found = self._reader.read(values.to_pylist(), is_utf8=_as_text(values) is not None)
        for column, items in zip(self._declared, found.columns, strict=True):
            array = pa.array(items, self.schema.field(column.name).type)
            made[column.name] = within_calendar(array) if column.type == "timestamp" else array
        if found.rest is not None:
            made[REST.name] = pa.array(found.rest, pa.string())
        made[RAW.name] = raw = pa.array(found.raw, pa.binary())
        made[ERROR.name] = pa.array(found.errors, pa.string())
        return len(raw) - int(raw.null_count)


def split_by_utf8(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The items that are UTF-8 as text, and the others as they are; null where the other has it."""
    text = _as_text(column)
    if text is not None:
        return text, pa.nulls(len(column), pa.binary())
    items = column.to_pylist()
    texts = [item if item is not None and _is_utf8(item) else None for item in items]
    others = [item if text is None else None for item, text in zip(items, texts, strict=True)]
    return pa.array(texts, pa.string()), pa.array(others, pa.binary())


def _as_text(column: pa.Array) -> pa.Array | None:
    """None if an item is not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _is_utf8(item: bytes) -> bool:
    try:
        item.decode()
    except UnicodeDecodeError:
        return False
    return True


def within_calendar(times: pa.Array) -> pa.Array:
    """Times out of range become the first or the last one in it."""
    if times.null_count == len(times):
        return times
    numbers = times.cast(pa.int64())
    found = pc.min_max(numbers)
    if found["min"].as_py() >= SMALLEST_US and found["max"].as_py() <= LARGEST_US:
        return times
    numbers = pc.max_element_wise(numbers, SMALLEST_US, skip_nulls=False)
    return pc.min_element_wise(numbers, LARGEST_US, skip_nulls=False).cast(times.type)
