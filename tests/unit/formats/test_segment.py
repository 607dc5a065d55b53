"""Segments and packed objects: what is written is read again, and nothing else is taken."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import segment
from seb_appliance.formats.operations import StoredSection
from tests.unit.formats.samples import segment_recrc

BUCKET_ID = b"B" * 16


def section(topic_id: int, base: int, at: int, *, count: int = 2, length: int = 8) -> StoredSection:
    return StoredSection(topic_id, base, base + count - 1, count, at, length, 77, 5 + base, 9)


def encoded(sections: list[StoredSection], topic_id: int = 0) -> bytes:
    head = segment.header(topic_id, 3, 99)
    body = b"".join(b"r" * one.length for one in sections)
    return head + body + segment.trailer(head, sections, BUCKET_ID)


PACKED = encoded([section(1, 0, 32), section(1, 2, 40), section(7, 4, 48, length=16)])


def test_the_index_of_a_packed_object_is_read_again() -> None:
    index = segment.decode(PACKED)
    assert (index.topic_id, index.base, index.last, index.bucket_id) == (0, 3, 99, BUCKET_ID)
    assert index.sections == (section(1, 0, 32), section(1, 2, 40), section(7, 4, 48, length=16))
    assert (index.record_count, index.created_us, index.largest_timestamp_us) == (6, 9, 9)


def test_the_index_is_found_from_the_end_of_the_object() -> None:
    tail = PACKED[-segment.TRAILER_BYTES :]
    assert segment.index_bytes(tail) == 3 * segment.ROW_BYTES + segment.TRAILER_BYTES
    index = segment.read_index(PACKED[:32], PACKED[-segment.index_bytes(tail) :], len(PACKED))
    assert index == segment.decode(PACKED)


@given(counts=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_any_sections_come_back(counts: list[int]) -> None:
    at, base, sections = 32, 0, []
    for count in counts:
        sections.append(section(4, base, at, count=count, length=8 * count))
        at, base = at + 8 * count, base + count
    assert list(segment.decode(encoded(sections, 4)).sections) == sections


@pytest.mark.parametrize("at", range(len(PACKED)))
def test_a_flipped_byte_is_found_unless_a_section_covers_it(at: int) -> None:
    damaged = bytearray(PACKED)
    damaged[at] ^= 0x10
    if 32 <= at < 64:  # the sections have CRCs of their own
        segment.decode(bytes(damaged))
    else:
        with pytest.raises(BadBatchError):
            segment.decode(bytes(damaged))


@pytest.mark.parametrize("length", [0, 31, 32, 55, 88, len(PACKED) - 1])
def test_a_segment_cut_short_is_refused(length: int) -> None:
    with pytest.raises(BadBatchError):
        segment.decode(PACKED[:length])


GOOD = [section(1, 0, 32), section(1, 2, 40)]
WRONG: dict[str, list[StoredSection]] = {
    "a gap": [GOOD[0], msgspec.structs.replace(GOOD[1], at=48)],
    "an overlap of offsets": [GOOD[0], msgspec.structs.replace(GOOD[1], base_offset=1)],
    "topics out of order": [section(2, 0, 32), section(1, 0, 40)],
    "no records": [GOOD[0], msgspec.structs.replace(GOOD[1], record_count=0)],
    "too many records": [GOOD[0], msgspec.structs.replace(GOOD[1], record_count=3)],
    "an uneven length": [msgspec.structs.replace(GOOD[0], length=9)],
    "an empty section": [msgspec.structs.replace(GOOD[0], length=0)],
    "a range that ends before it begins": [msgspec.structs.replace(GOOD[0], last_offset=-1)],
    "an offset too large": [msgspec.structs.replace(GOOD[0], last_offset=limits.OFFSET_MAX + 1)],
}


@pytest.mark.parametrize("what", WRONG)
def test_an_index_that_contradicts_itself_is_refused(what: str) -> None:
    with pytest.raises(BadBatchError):
        segment.decode(encoded(WRONG[what]))


def test_a_segment_of_one_topic_holds_no_other() -> None:
    segment.decode(encoded([section(5, 0, 32)], 5))
    with pytest.raises(BadBatchError, match="another"):
        segment.decode(encoded([section(5, 0, 32)], 6))


@pytest.mark.parametrize(("at", "form", "value"), [(4, "<H", 2), (6, "<H", 1)])
def test_a_version_or_flag_of_a_later_release_is_refused(at: int, form: str, value: int) -> None:
    data = bytearray(PACKED)
    struct.pack_into(form, data, at, value)
    with pytest.raises(BadBatchError, match="not known"):
        segment.decode(segment_recrc(data))
