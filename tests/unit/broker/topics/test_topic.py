"""Rows of the index: however they come into being, they are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seb_appliance.broker.topics.topic import ROW_BYTES, IndexRows
from seb_appliance.formats.contents import Section

sizes = st.tuples(st.integers(1, 9), st.integers(8, 2**40), st.integers(0, 2**50))
rows = st.lists(st.tuples(sizes, st.integers(1, 5)), min_size=1, max_size=20)


@given(rows, st.integers(0, 2**52), st.integers(0, 2**50))
def test_rows_added_at_once_or_unpacked_are_those_added_one_by_one(listed, end, newest_us):
    one_by_one = IndexRows(end=end, newest_us=newest_us, total_bytes=7)
    at_once = IndexRows(end=end, newest_us=newest_us, total_bytes=7)
    entries, sections, seq = [], [], 0
    for (count, length, largest_us), step in listed:
        seq += step
        last = one_by_one.end + count - 1
        section = Section(1, one_by_one.end, last, count, 8 * seq, length, seq, largest_us)
        entries.append((seq, 100 * seq, 1_000 + seq))
        sections.append(section)
        one_by_one.add(seq, 100 * seq, 1_000 + seq, section)
    at_once.add_all(entries, sections)
    packed = one_by_one.pack()
    assert len(packed) == len(listed) * ROW_BYTES
    unpacked = IndexRows.unpack(packed, end=one_by_one.end, total_bytes=one_by_one.total_bytes)
    for other in (at_once, unpacked):
        assert other._columns == one_by_one._columns
        assert (other.begin, other.end) == (one_by_one.begin, one_by_one.end)
        assert (other.newest, other.total_bytes) == (one_by_one.newest, one_by_one.total_bytes)
