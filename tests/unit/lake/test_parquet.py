"""A data file: what its footer says, and what the journal says of it."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.formats.lake.tables import (
    ERROR,
    KEY,
    KEY_BINARY,
    OFFSET,
    RAW,
    TIMESTAMP,
    ColumnStats,
)
from seb_appliance.lake.parquet import STATS_BYTES_MAX, ParquetWriter, rounded_up
from tests.unit.lake.samples import NOW_US, Record, Written, batch_of, values, written


def stats_of(found: Written) -> dict[int, ColumnStats]:
    return {one.field_id: one for one in found.file.stats}


def test_columns_have_their_field_ids_also_those_of_a_map(tmp_path: Path) -> None:
    found = written(tmp_path, "a:long, b:json, _rest", values(b"{}"))
    ids = {field.name: int(field.metadata[b"PARQUET:field_id"]) for field in found.schema}
    assert ids == {
        "offset": 1, "timestamp": 2, "key": 3, "key_binary": 8, "headers": 5, "a": 16, "b": 17,
        "_rest": 10, "_raw": 11, "_error": 12,
    }  # fmt: skip
    headers = found.schema.field("headers").type
    pair = (headers.key_field, headers.item_field)
    assert [int(field.metadata[b"PARQUET:field_id"]) for field in pair] == [6, 7]


def test_times_are_of_utc_and_in_microseconds(tmp_path: Path) -> None:
    found = written(tmp_path, "t:timestamp", values(b"{}"))
    for name in ("timestamp", "t"):
        assert found.schema.field(name).type == pa.timestamp("us", tz="UTC")


def test_offset_and_timestamp_are_never_null(tmp_path: Path) -> None:
    found = written(tmp_path, "", values(None))
    required = {field.name for field in found.schema if not field.nullable}
    assert {"offset", "timestamp"} <= required
    assert "value" not in required


def test_row_groups_are_of_100_000_rows_with_pages_that_are_indexed(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    writer = ParquetWriter(columns_of("", []), 0, 64 << 20, path)
    for at in range(0, 240_000, 60_000):
        writer.add(batch_of([Record(at + i, b"x") for i in range(60_000)]), 0, 10**9)
    file = writer.finish(0, 239_999, 1)
    footer = pq.read_metadata(path)
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    assert [group.num_rows for group in groups] == [100_000, 100_000, 40_000]
    assert groups[0].column(0).has_offset_index
    assert groups[0].column(0).has_column_index
    assert groups[0].column(0).compression == "ZSTD"
    assert pq.read_table(path)["offset"].to_pylist() == list(range(240_000))
    assert (file.records, file.length) == (240_000, path.stat().st_size)


def test_every_engine_knows_the_encodings(tmp_path: Path) -> None:
    """Vectorized readers refuse the delta encodings."""
    footer = written(tmp_path, "a:long, s:string", values(b'{"a":1,"s":"x"}', None)).footer
    group = footer.row_group(0)
    used = {one for i in range(footer.num_columns) for one in group.column(i).encodings}
    assert used <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "BIT_PACKED"}


def test_a_group_of_large_records_is_written_when_it_has_32_mib(tmp_path: Path) -> None:
    dice = random.Random(1)
    records = [Record(i, dice.randbytes(1 << 20)) for i in range(40)]
    footer = written(tmp_path, "", *([one] for one in records)).footer
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [32, 8]


@pytest.mark.parametrize("repeats", [1, 20])
def test_a_file_is_full_at_about_the_bytes_it_was_to_have(tmp_path: Path, repeats: int) -> None:
    dice = random.Random(1)
    writer = ParquetWriter(columns_of("", []), 0, 1 << 20, tmp_path / "rows")
    offset = 0
    while not writer.is_full:
        value = dice.randbytes(100 // repeats).hex().encode() * repeats
        writer.add(batch_of([Record(offset + i, value) for i in range(500)]), 0, 10**9)
        offset += 500
    length = writer.finish(0, offset - 1, 1).length
    assert 0.8 * (1 << 20) < length < 1.5 * (1 << 20)


def test_a_file_is_named_for_its_offsets_and_a_random_number(tmp_path: Path) -> None:
    found = written(tmp_path, "", values(b"x"), begin=0, end=8)
    assert found.file.name == "data/0-7-0000000000000005.parquet"
    assert (found.file.schema, found.file.bad) == (3, 0)


def test_the_journal_knows_nulls_and_bounds_of_columns(tmp_path: Path) -> None:
    text = "i:long, n:double, s:string, b:boolean, t:timestamp, j:json"
    found = written(
        tmp_path,
        text,
        [
            Record(3, b'{"i":5,"n":-1.5,"s":"b","b":true,"t":"1970-01-01T00:00:01Z","j":1}', b"k"),
            Record(4, b'{"i":-2,"n":2,"s":"\xc3\xa9","j":"x"}', None, None, NOW_US + 1),
            Record(9, None, b"\xff"),
        ],
    )
    i64, f64 = struct.Struct("<q").pack, struct.Struct("<d").pack
    assert stats_of(found) == {
        one.field_id: one
        for one in (
            ColumnStats(OFFSET.field_id, 0, i64(3), i64(9)),
            ColumnStats(TIMESTAMP.field_id, 0, i64(NOW_US), i64(NOW_US + 1)),
            ColumnStats(KEY.field_id, 2, b"k", b"k"),
            ColumnStats(KEY_BINARY.field_id, 2),
            ColumnStats(5, 0),
            ColumnStats(16, 1, i64(-2), i64(5)),
            ColumnStats(17, 1, f64(-1.5), f64(2)),
            ColumnStats(18, 1, b"b", "é".encode()),
            ColumnStats(19, 2, b"\x01", b"\x01"),
            ColumnStats(20, 2, i64(10**6), i64(10**6)),
            ColumnStats(21, 1),
            ColumnStats(RAW.field_id, 3),
            ColumnStats(ERROR.field_id, 2),
        )
    }


def test_bounds_are_of_all_row_groups(tmp_path: Path) -> None:
    groups = [[Record(i * 60_000 + j, b'{"a":%d}' % (i * 7 - j)) for j in range(60_000)]
              for i in range(2)]  # fmt: skip
    found = written(tmp_path, "a:long", *groups)
    assert found.footer.num_row_groups == 2
    one = stats_of(found)[16]
    assert (one.lower, one.upper) == (struct.pack("<q", -59_999), struct.pack("<q", 7))


def test_a_row_group_of_nulls_leaves_the_bounds_of_the_others(tmp_path: Path) -> None:
    records = [Record(i, b"{}" if i < 100_000 else b'{"a":1}') for i in range(100_001)]
    one = stats_of(written(tmp_path, "a:long", records))[16]
    assert (one.nulls, one.lower, one.upper) == (
        100_000,
        struct.pack("<q", 1),
        struct.pack("<q", 1),
    )


def test_long_texts_are_shortened_and_the_upper_bound_is_above_them(tmp_path: Path) -> None:
    long = "é" * 40
    one = stats_of(written(tmp_path, "", [Record(0, b"", long.encode())]))[KEY.field_id]
    assert one.lower == ("é" * 16).encode()
    assert one.upper == ("é" * 15 + "ê").encode()


def test_a_text_too_long_for_the_footer_has_no_bounds(tmp_path: Path) -> None:
    """Nor has it any from the row groups beside it."""
    keys = [b"x" * 50_000, *[b"k"] * 100_000]
    records = [Record(i, b"", key) for i, key in enumerate(keys)]
    one = stats_of(written(tmp_path, "", records))[KEY.field_id]
    assert one == ColumnStats(KEY.field_id, 0)


@given(st.text(min_size=1), st.integers(0, 20))
def test_an_upper_bound_is_never_below_the_text(text: str, repeats: int) -> None:
    text *= repeats + 1
    upper = rounded_up(text)
    if upper is None:
        assert set(text[:16]) == {"\U0010ffff"}
    else:
        assert upper.encode() >= text.encode()
        assert len(upper) <= 16


def test_the_last_character_of_an_upper_bound_may_be_the_last_there_is() -> None:
    assert rounded_up("a" + "\U0010ffff" * 20) == "b"
    assert rounded_up("a" * 15 + "\ud7ff" + "x") == "a" * 15 + "\ue000"
    assert rounded_up("\U0010ffff" * 20) is None


def test_statistics_of_many_columns_keep_to_their_length(tmp_path: Path) -> None:
    text = ",".join(f"a{i:03}:string" for i in range(200))
    row = {f"a{i:03}": "ä" * 30 for i in range(200)}
    found = written(tmp_path, text, values(msgspec.json.encode(row)))
    packed = [msgspec.msgpack.encode(one) for one in found.file.stats]
    assert 0.9 * STATS_BYTES_MAX < sum(map(len, packed)) <= STATS_BYTES_MAX
    assert stats_of(found)[16].lower == ("ä" * 16).encode()
