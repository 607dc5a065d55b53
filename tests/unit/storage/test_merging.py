"""Merging: fewer batches with the very records, whether they were compressed or not."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.storage.objects.merging import Fingerprint, Piece, batches_of, merge
from tests.unit.formats.samples import columns

# (offset, timestamp, record key, value, headers)
Record = tuple[int, int, bytes | None, bytes | None, bytes | None]


def records_of(found: Batch) -> list[Record]:
    there, count = found.columns, found.header.count
    keys = there.keys.slice() if there.keys is not None else [None] * count
    headers = there.headers.slice() if there.headers is not None else [b""] * count
    return list(
        zip(found.offsets(), there.timestamps_us, keys, there.values.slice(), headers, strict=True)
    )


def encoded(lot: list[tuple[Columns, int | None]]) -> bytes:
    """A section of these batches, each with the zstd level it is compressed with (None: plain)."""
    data, base = b"", 0
    for made, level in lot:
        last = base + len(made) - 1
        if made.offsets is not None:
            made = Columns(
                made.timestamps_us,
                made.values,
                made.keys,
                made.headers,
                int64s(base + offset for offset in made.offsets),
            )
            last = made.offsets[-1] + 2  # a gap at its end
        data += batch.encode(
            made, base_offset=base, last_offset=last, created_us=base, zstd_level=level
        )
        base = last + 1
    return data


def merged(data: bytes, *, compress: bool = False) -> list[Piece]:
    last = max(header.last_offset for _, header in batch.walk(data))
    return list(merge(batches_of(data, 0, last), compress=compress))


def texts(count: int, seed: int = 0) -> Columns:
    values = [
        b'{"device":"thermo-%04d","temperature":21,"ok":true}' % (seed + n) for n in range(count)
    ]
    return Columns(int64s(range(count)), BinaryColumn.of(values))


@given(
    st.lists(st.tuples(columns(), st.sampled_from([None, 1])), min_size=1, max_size=6),
    st.booleans(),
)
def test_merging_keeps_every_record(lot: list[tuple[Columns, int | None]], compress: bool) -> None:
    data = encoded(lot)
    before, after = Fingerprint(), Fingerprint()
    expected: list[Record] = []
    for at, header in batch.walk(data):
        found = batch.decode(data, at, header)
        before.add(found)
        expected += records_of(found)
    pieces = merged(data, compress=compress)
    found_records: list[Record] = []
    for piece in pieces:
        found = batch.decode(piece.data)
        header = found.header
        assert (header.base_offset, header.last_offset) == (piece.base_offset, piece.last_offset)
        assert (header.count, header.created_us) == (piece.count, piece.created_us)
        assert header.largest_timestamp_us == piece.largest_timestamp_us
        after.add(found)
        found_records += records_of(found)
    assert found_records == expected
    assert after == before
    assert pieces[0].base_offset == 0
    assert all(b.base_offset == a.last_offset + 1 for a, b in pairwise(pieces))
    assert sum(len(piece.data) for piece in pieces) <= len(data)


@pytest.mark.parametrize("levels", [(1, 1), (None, 1), (1, None)])
def test_small_compressed_batches_become_one_that_is_compressed(
    levels: tuple[int | None, int | None],
) -> None:
    data = encoded([(texts(40, n), levels[n % 2]) for n in range(10)])
    (piece,) = merged(data)
    found = batch.decode(piece.data)
    assert found.header.flags & batch.ZSTD
    assert found.header.count == 400
    assert len(piece.data) < 0.7 * len(data)


@pytest.mark.parametrize("compress", [True, False])
def test_plain_batches_are_compressed_where_the_topic_wants_it(compress: bool) -> None:
    data = encoded([(texts(1, n), None) for n in range(100)])
    (piece,) = merged(data, compress=compress)
    assert bool(batch.read_header(piece.data).flags & batch.ZSTD) is compress


def test_a_large_batch_stays_as_it_is_though_it_is_stored_in_little() -> None:
    small, large = texts(40), texts(6_000)
    data = encoded([(small, 1), (small, 1), (large, 19), (small, 1), (small, 1)])
    (_, _), (_, _), (at, header), *_ = batch.walk(data)
    assert header.stored_bytes < 100 * limits.KIB < 256 * limits.KIB < header.inflated_bytes
    pieces = merged(data)
    assert [piece.count for piece in pieces] == [80, 6_000, 80]
    assert pieces[1].data == data[at : at + header.total_bytes]


def test_batches_that_take_less_as_they_are_stay() -> None:
    values = BinaryColumn.of([bytes([n % 250]) * 40 for n in range(4_000)])
    hard = Columns(int64s([7] * 4_000), values)
    data = encoded([(hard, 19), (hard, 19)])
    both = batch.encode(
        Columns(int64s([7] * 8_000), BinaryColumn.of(values.slice() * 2)),
        base_offset=0,
        created_us=0,
        zstd_level=1,
    )
    assert len(both) > len(data)
    assert b"".join(piece.data for piece in merged(data)) == data


def test_a_merged_batch_inflates_to_a_quarter_of_a_mebibyte_at_most() -> None:
    data = encoded([(texts(1_000, n), 1) for n in range(20)])
    pieces = merged(data)
    inflated = [batch.read_header(piece.data).inflated_bytes for piece in pieces]
    assert 1 < len(pieces) < 20
    assert max(inflated) <= 256 * limits.KIB


def test_batches_that_leave_offsets_out_are_refused() -> None:
    data = encoded([(texts(3), None), (texts(3), None)])
    for base, last in ((1, 5), (0, 6), (0, 4)):
        with pytest.raises(BadBatchError):
            list(batches_of(data, base, last))
