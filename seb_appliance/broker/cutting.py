"""A batch that reaches beyond a fork offset, without the records that lie there.

They are the parent's alone: whoever reads the fork gets no byte of them, whatever the format.
"""

from __future__ import annotations

from bisect import bisect_left

from seb_appliance.broker.sections import StoredBatch
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s


def cut(item: StoredBatch, end: int) -> StoredBatch | None:
    """The batch's records below the offset `end`, as a batch that answers for the offsets up to
    there; None when there is none."""
    header, columns = item.batch.header, item.batch.columns
    offsets = item.batch.offsets()
    count = bisect_left(offsets, end)
    if count == 0:
        return None
    left = Columns(
        int64s(columns.timestamps_us[:count]),
        BinaryColumn.of(columns.values.slice(0, count)),
        _first(columns.keys, count),
        _first(columns.headers, count),
        None if columns.offsets is None else int64s(columns.offsets[:count]),
    )
    stored = batch.encode(
        left, base_offset=header.base_offset, last_offset=end - 1, created_us=header.created_us
    )
    return StoredBatch(batch.decode(stored), memoryview(stored))


def _first(column: BinaryColumn | None, count: int) -> BinaryColumn | None:
    return None if column is None else BinaryColumn.of(column.slice(0, count))
