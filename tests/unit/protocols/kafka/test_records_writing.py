"""Stored records as consumers of the Kafka protocol get them; kafka-python reads them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.values import BatchSlice, pack_headers
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.protocols.kafka.records import writing
from seb_appliance.protocols.kafka.records.reading import read_batches
from seb_appliance.protocols.kafka.records.writing import batches_of
from tests.unit.protocols.kafka.record_sets import T_MS, MemoryRecords

binaries = st.binary(max_size=150)
maps = st.dictionaries(st.text(max_size=4), binaries, max_size=3).map(pack_headers)
rows = st.lists(
    st.tuples(st.none() | binaries, st.none() | binaries, maps, st.integers(0, 2**50)),
    min_size=1,
    max_size=150,
)


def stored(columns: Columns, base: int = 0, begin: int = 0, end: int | None = None) -> BatchSlice:
    """The records begin ≤ i < end of a batch with these columns."""
    last = None if columns.offsets is None else columns.offsets[-1]
    data = batch.encode(columns, base_offset=base, created_us=1, last_offset=last)
    count = len(columns) if end is None else end
    return BatchSlice(batch.decode(data), begin, count, memoryview(data))


def columns_of(
    values: list[bytes | None],
    keys: list[bytes | None] | None = None,
    headers: list[bytes] | None = None,
    times_us: list[int] | None = None,
    offsets: list[int] | None = None,
) -> Columns:
    return Columns(
        int64s(times_us or [T_MS * 1000] * len(values)),
        BinaryColumn.of(values),
        None if keys is None else BinaryColumn.of(keys),
        None if headers is None else BinaryColumn.of(headers),
        None if offsets is None else int64s(offsets),
    )


def read(batches: Iterable[bytes]) -> list[tuple[object, ...]]:
    found = []
    records = MemoryRecords(b"".join(batches))
    while (one := records.next_batch()) is not None:
        assert one.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in one]
    return found


@given(rows, st.data(), st.sampled_from(["all", "no keys", "no headers", "values"]), st.booleans())
def test_kafka_python_reads_what_is_stored(
    records: list[tuple[bytes | None, bytes | None, bytes, int]],
    data: st.DataObject,
    which: str,
    has_gaps: bool,
) -> None:
    values, keys, headers, times = map(list, zip(*records, strict=True))
    if which == "values":
        values = [value or b"" for value in values]
    count = len(values)
    offsets = None
    if has_gaps:
        steps = data.draw(st.lists(st.integers(1, 2**33), min_size=count, max_size=count))
        offsets = [sum(steps[: i + 1]) for i in range(count)]
    columns = columns_of(
        values,
        keys if which in {"all", "no headers"} else None,
        headers if which in {"all", "no keys"} else None,
        times,
        offsets,
    )
    begin = data.draw(st.integers(0, count - 1))
    end = data.draw(st.integers(begin + 1, count))
    got = read(batches_of([stored(columns, 1, begin, end)]))
    assert [row[0] for row in got] == (offsets or list(range(1, count + 1)))[begin:end]
    assert [row[1] for row in got] == [time // 1000 for time in times[begin:end]]
    assert [row[3] for row in got] == values[begin:end]
    if columns.keys is not None:
        assert [row[2] for row in got] == keys[begin:end]
    if columns.headers is not None:
        again = [pack_headers(dict(row[4])) for row in got]  # type: ignore[call-overload]
        assert again == headers[begin:end]


@given(rows)
def test_what_is_written_is_read_the_same(
    records: list[tuple[bytes | None, bytes | None, bytes, int]],
) -> None:
    values, keys, headers, times = map(list, zip(*records, strict=True))
    columns = columns_of(values, keys, headers, [time // 1000 * 1000 for time in times])
    again = read_batches(b"".join(batches_of([stored(columns)])), limits.MIB).records
    assert again.values == values
    assert (again.keys or [None] * len(keys)) == keys
    assert (again.headers or [b""] * len(headers)) == headers
    assert again.timestamps_us == columns.timestamps_us.tolist()


def test_the_head_of_a_batch_names_no_producer_and_no_compression() -> None:
    times_us = [5_000, 9_999, 7_000]
    (data,) = batches_of([stored(columns_of([b"a", b"b", b"c"], times_us=times_us), base=40)])
    one = MemoryRecords(data).next_batch()
    assert (one.base_offset, one.last_offset_delta, one.leader_epoch) == (40, 2, 0)
    assert (one.attributes, one.first_timestamp, one.max_timestamp) == (0, 5, 9)
    assert (one.producer_id, one.producer_epoch, one.base_sequence) == (-1, -1, -1)


def test_a_batch_holds_so_many_records_and_bytes() -> None:
    many = stored(columns_of([b"v"] * 2_500))
    assert len([*batches_of([many])]) == 3
    large = stored(columns_of([bytes(200 * limits.KIB)] * 5 + [bytes(limits.MIB)] * 2))
    assert [len(read([one])) for one in batches_of([large])] == [2, 2, 1, 1, 1]
    keyed = stored(columns_of([b""] * 20, [bytes(60 * limits.KIB)] * 20))
    assert [len(read([one])) for one in batches_of([keyed])] == [8, 8, 4]
    item = pack_headers({"a": bytes(10 * limits.KIB)})
    headed = stored(columns_of([b""] * 3, None, [item, b"", item]))
    assert [len(read([one])) for one in batches_of([headed])] == [2, 1]
    assert [row[0] for row in read(batches_of([many]))] == list(range(2_500))


def test_offsets_further_apart_than_a_batch_can_say_begin_another() -> None:
    far = 1 + 2**31 - 1
    same = stored(columns_of([b"a", b"b"], offsets=[1, far]), base=1)
    other = stored(columns_of([b"a", b"b"], offsets=[1, far + 1]), base=1)
    assert [len(read([one])) for one in batches_of([same])] == [2]
    assert [len(read([one])) for one in batches_of([other])] == [1, 1]
    assert [row[0] for row in read(batches_of([other]))] == [1, far + 1]


def test_the_slices_follow_each_other() -> None:
    whole = stored(columns_of([b"%d" % i for i in range(10)]), base=5)
    parts = [BatchSlice(whole.batch, 2, 4, whole.stored), BatchSlice(whole.batch, 7, 8, b"")]  # type: ignore[arg-type]
    assert [row[0] for row in read(batches_of(parts))] == [7, 8, 12]
    assert list(batches_of([])) == []


def test_batches_come_one_at_a_time() -> None:
    several = batches_of([stored(columns_of([b"v"] * 2_500))])
    assert len(read([next(several)])) == writing._BATCH_RECORDS


@pytest.mark.parametrize("size", [0, 63, 64, 8_191, 8_192, 70_000])
def test_values_of_every_length_are_written(size: int) -> None:
    (row,) = read(batches_of([stored(columns_of([bytes(size)]))]))
    assert row[3] == bytes(size)


@given(rows, st.integers(0, 5_000), st.none() | st.integers(0, 5_000))
def test_an_answer_keeps_to_its_bytes_but_for_a_first_record_that_is_larger(
    records: list[tuple[bytes | None, bytes | None, bytes, int]],
    most_bytes: int,
    first_bytes: int | None,
) -> None:
    values, keys, headers, _ = map(list, zip(*records, strict=True))
    one = stored(columns_of(values, keys, headers))
    everything = read(batches_of([one]))
    batches = list(batches_of([one], most_bytes, first_bytes))
    found = read(batches)
    assert found == everything[: len(found)]
    size_bytes = sum(map(len, batches))
    alone_bytes = len(next(batches_of([stored(columns_of(values[:1], keys[:1], headers[:1]))])))
    if size_bytes > most_bytes:
        assert len(found) == 1
        assert first_bytes is None or size_bytes <= first_bytes
    elif not found:
        assert alone_bytes > most_bytes
        assert first_bytes is not None
        assert alone_bytes > first_bytes
    elif size_bytes <= most_bytes // 2 and len(found) < len(everything):
        following = len(found) + 1
        more = stored(columns_of(values[:following], keys[:following], headers[:following]))
        assert len(next(batches_of([more]))) > most_bytes
