"""Records without declared columns: each is one row, as it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lake.samples import NOW_US, Record, values, written

EPOCH = datetime.fromtimestamp(0, UTC)
MAYBE_TEXT = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)
RECORDS = st.lists(
    st.builds(
        Record,
        st.integers(1, 5),  # how far it is from the one before
        MAYBE_TEXT,
        MAYBE_TEXT,
        st.none() | st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=3),
        st.integers(0, 10**17),
    ),
    min_size=1,
    max_size=20,
)


def test_a_record_is_a_row(tmp_path: Path) -> None:
    record = Record(7, b"hello", "ä".encode(), {"h": b"\xff"}, NOW_US + 1)
    assert written(tmp_path, "", [record]).rows == [
        {
            "offset": 7,
            "timestamp": datetime.fromtimestamp(NOW_US // 10**6, UTC).replace(microsecond=1),
            "key": "ä",
            "key_binary": None,
            "headers": [("h", b"\xff")],
            "value": "hello",
            "value_binary": None,
        }
    ]


def test_what_is_not_utf8_is_in_a_column_of_bytes(tmp_path: Path) -> None:
    [one, cut, other] = written(
        tmp_path, "", [Record(0, b"\xff", b"\xfe"), Record(1, b"a\xc3"), Record(2, b"\xa9b", b"k")]
    ).rows
    assert (one["value"], one["value_binary"], one["key"], one["key_binary"]) == (
        None,
        b"\xff",
        None,
        b"\xfe",
    )
    assert (cut["value_binary"], other["value_binary"]) == (b"a\xc3", b"\xa9b")
    assert (other["key"], other["key_binary"]) == ("k", None)


def test_a_tombstone_has_no_value_and_an_empty_value_is_one(tmp_path: Path) -> None:
    [tombstone, empty] = written(tmp_path, "", values(None, b"")).rows
    assert (tombstone["value"], tombstone["value_binary"]) == (None, None)
    assert (empty["value"], empty["value_binary"]) == ("", None)


def test_a_time_that_no_calendar_has_becomes_the_last_or_first_that_it_has(tmp_path: Path) -> None:
    records = [Record(i, b"", None, None, us) for i, us in enumerate([2**63 - 1, -(2**63), 5])]
    found = written(tmp_path, "", records)
    years = [row["timestamp"].year for row in found.rows]
    assert years == [9999, 1, 1970]
    assert (found.file.smallest_us, found.file.largest_us) == (
        -62_135_596_800_000_000,
        253_402_300_799_999_999,
    )


def test_only_the_offsets_asked_for_are_in_the_file(tmp_path: Path) -> None:
    records = [Record(offset, b"") for offset in (2, 3, 5, 9)]
    found = written(tmp_path, "", records, begin=3, end=9)
    assert [row["offset"] for row in found.rows] == [3, 5]
    assert (found.file.first_offset, found.file.last_offset, found.file.records) == (3, 8, 2)


def test_a_batch_outside_of_the_offsets_adds_nothing(tmp_path: Path) -> None:
    found = written(tmp_path, "", values(b"a", b"b"), [Record(5, b"")], begin=5, end=6)
    assert [row["offset"] for row in found.rows] == [5]


@given(st.lists(RECORDS, min_size=1, max_size=3), st.integers(0, 30), st.integers(31, 200))
def test_every_record_is_there_once_and_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[Record]], begin: int, end: int
) -> None:
    offset = -1
    for group in groups:
        for record in group:
            offset = record.offset = offset + record.offset
    wanted = [one for group in groups for one in group if begin <= one.offset < end]
    if not wanted:
        return
    folder = tmp_path_factory.mktemp("rows")
    found = written(folder, "", *groups, begin=begin, end=end, zstd_level=1).rows
    assert [row["offset"] for row in found] == [one.offset for one in wanted]
    for row, one in zip(found, wanted, strict=True):
        for name, item in (("key", one.key), ("value", one.value)):
            text, other = row[name], row[f"{name}_binary"]
            assert text is None or other is None
            assert (other if text is None else text.encode()) == item
        assert dict(row["headers"]) == (one.headers or {})
        assert (row["timestamp"] - EPOCH) // timedelta(microseconds=1) == one.timestamp_us
