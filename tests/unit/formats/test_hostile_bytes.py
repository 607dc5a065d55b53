"""Whatever the bytes are, a decoder answers, or raises BadBatchError; soon, and within its bounds.

Bytes that are valid but for a few changes get far into a decoder, so those are tried: with the
CRCs made to agree again, or the first check would stop every one of them.
"""

from __future__ import annotations

import gzip
import struct
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seb_appliance import limits, zstd
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, batch_v1, entry, segment
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.contents import Contents, Section
from seb_appliance.formats.operations import Append, StoredSection, TopicDeleted
from tests.unit.formats.samples import plain, recrc, segment_recrc, with_body

FIXTURES = Path(__file__).parents[2] / "fixtures" / "seb-v1"
SECONDS_MAX = 5.0  # of this thread, for inputs below a megabyte: a busy machine is no finding
LONG = settings(
    max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)

FULL = Columns(
    int64s([5, 6, 7]),
    BinaryColumn.of([b"one", None, b""]),
    BinaryColumn.of([b"k", None, b"k"]),
    BinaryColumn.of([b"", b"\x81\xa1a\xc4\x01b", b""]),
    int64s([0, 3, 4]),
)
BATCHES = [
    batch.encode(FULL, base_offset=0, last_offset=9, created_us=1),
    batch.encode(FULL, base_offset=0, last_offset=9, created_us=1, zstd_level=1),
    batch.encode(plain(b"hello", b"world"), base_offset=0, created_us=1),
]
ENTRY = entry.encode(
    Contents(
        [Append(section=0), TopicDeleted(topic_id=1)],
        [Section(1, 0, 9, 3, 0, len(BATCHES[0]), crc32c(BATCHES[0]), 7)],
    ),
    [BATCHES[0]],
    after=entry.ORIGIN,
    epoch=1,
    writer_id=b"w" * 16,
    entry_id=b"e" * 16,
    bucket_id=b"b" * 16,
    created_us=1,
).body
_ROWS = [
    StoredSection(1, 0, 9, 3, 32, len(BATCHES[0]), crc32c(BATCHES[0]), 1, 7),
    StoredSection(2, 0, 9, 3, 32 + len(BATCHES[0]), len(BATCHES[0]), crc32c(BATCHES[0]), 1, 7),
]
_HEAD = segment.header(segment.MANY_TOPICS, 1, 2)
SEGMENT = _HEAD + 2 * BATCHES[0] + segment.trailer(_HEAD, _ROWS, b"b" * 16)
FILES_V1 = [path.read_bytes() for path in sorted((FIXTURES / "cache").glob("*0[03].record_batch"))]

changes = st.lists(
    st.tuples(
        st.integers(0, 400),
        st.sampled_from([b"", b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 4, b"\xff" * 8])
        | st.binary(min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=4,
)


def mutated(data: bytes, changes: list[tuple[int, bytes]]) -> bytearray:
    """`data` with bytes overwritten; an empty change cuts the rest off."""
    result = bytearray(data)
    for at, new in changes:
        place = at % (len(result) + 1)
        if new:
            result[place : place + len(new)] = new
        else:
            del result[place:]
    return result


def survives(decode: Callable[[bytes], object], data: bytes) -> None:
    started = time.thread_time()
    with suppress(BadBatchError):
        decode(data)
    assert time.thread_time() - started < SECONDS_MAX


def read_all(data: bytes) -> None:
    """Decode every batch and touch every record, as a reader would."""
    for at, _ in batch.walk(data):
        found = batch.decode(data, at)
        for column in (found.columns.values, found.columns.keys, found.columns.headers):
            if column is not None:
                assert len(column.slice()) == found.header.count
        assert len(list(found.offsets())) == found.header.count


def read_v1(data: bytes) -> None:
    values = batch_v1.decode(data).values
    assert len(values.slice()) == len(values)


def read_entry(data: bytes) -> None:
    found = entry.decode(data)
    for section in found.contents.sections:
        stored = entry.section_bytes(found.header, data, section.start, section.length)
        assert len(stored) == section.length


def read_segment(data: bytes) -> None:
    index = segment.decode(data)
    for section in index.sections:
        assert len(data[section.at : section.at + section.length]) == section.length


def entry_recrc(data: bytearray) -> bytes:
    """An entry whose CRCs agree with its bytes, as far as it is long enough for them."""
    if len(data) >= entry.HEADER_BYTES:
        (length,) = struct.unpack_from("<I", data, 28)
        table = bytes(data[entry.HEADER_BYTES : entry.HEADER_BYTES + length])
        struct.pack_into("<Q", data, 88, len(data))
        struct.pack_into("<I", data, 100, crc32c(table))
        struct.pack_into("<I", data, 104, crc32c(bytes(data[:104])))
    return bytes(data)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    survives(read_all, data)
    survives(read_v1, data)
    survives(read_entry, data)
    survives(read_segment, data)


@given(st.sampled_from(BATCHES), changes)
def test_a_changed_batch_is_decoded_or_refused(data: bytes, changes: list) -> None:
    survives(read_all, recrc(mutated(data, changes)))


@given(changes)
def test_a_changed_body_inside_a_zstd_frame_is_decoded_or_refused(changes: list) -> None:
    body = bytes(mutated(BATCHES[0][batch.HEADER_BYTES :], changes))
    flags = batch.read_header(BATCHES[1]).flags
    stored = zstd.compress(body)
    survives(read_all, with_body(BATCHES[1], stored, flags=flags, inflated_bytes=len(body)))


@given(changes)
def test_a_changed_entry_is_decoded_or_refused(changes: list) -> None:
    survives(read_entry, entry_recrc(mutated(ENTRY, changes)))


@given(st.lists(st.tuples(st.integers(-210, 40), st.binary(min_size=1, max_size=8)), max_size=4))
def test_a_changed_segment_is_decoded_or_refused(changes: list) -> None:
    """Header and index, which lies at the end."""
    survives(read_segment, segment_recrc(mutated(SEGMENT, changes)))


@given(st.sampled_from(FILES_V1), changes, st.booleans())
def test_a_changed_version_1_file_is_decoded_or_refused(
    data: bytes, changes: list, zipped: bool
) -> None:
    changed = bytes(mutated(data, changes))
    survives(read_v1, gzip.compress(changed, 1) if zipped else changed)


@pytest.mark.slow
def test_many_more_changed_objects_are_decoded_or_refused() -> None:
    LONG(test_any_bytes_are_decoded_or_refused)()
    LONG(test_a_changed_batch_is_decoded_or_refused)()
    LONG(test_a_changed_body_inside_a_zstd_frame_is_decoded_or_refused)()
    LONG(test_a_changed_entry_is_decoded_or_refused)()
    LONG(test_a_changed_segment_is_decoded_or_refused)()
    LONG(test_a_changed_version_1_file_is_decoded_or_refused)()


def peak_bytes(decode: Callable[[bytes], object], data: bytes) -> int:
    """What Python allocated at most while decoding. (zstd's own window is bounded apart.)"""
    tracemalloc.start()
    try:
        survives(decode, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


ONE = BATCHES[2]
V1_HEAD = struct.pack("<4shqI14x", b"seb!", 1, 1, 16_000_000)
BOMB = zstd.compress(b"\0" * limits.MIB) * 64
GREEDY: dict[str, tuple[Callable[[bytes], object], bytes, int]] = {
    "2^32-1 records in a batch": (read_all, with_body(ONE, b"", count=2**32 - 1), 1),
    "4 Mi records without bytes": (
        read_all,
        with_body(ONE, b"", count=4 << 20, last_offset=(4 << 20) - 1),
        1,
    ),
    "2^32-1 records in version 1": (read_v1, struct.pack("<4shqI14x", b"seb!", 1, 1, 2**32 - 1), 1),
    "a zstd bomb that names 8 bytes": (
        read_all,
        with_body(ONE, BOMB, flags=batch.ZSTD, inflated_bytes=8),
        1,
    ),
    "a zstd bomb that names 64 MiB": (
        read_all,
        with_body(ONE, BOMB, flags=batch.ZSTD, inflated_bytes=64 * limits.MIB),
        66,
    ),
    "a gzip bomb": (read_v1, gzip.compress(b"\0" * (128 * limits.MIB), 1), 75),
    "16 Mi records in version 1": (
        read_v1,
        gzip.compress(V1_HEAD + b"\0" * (63 * limits.MIB), 1),
        75,
    ),
    "2^32-1 sections in a segment": (
        read_segment,
        SEGMENT[:-16] + b"\xff" * 4 + SEGMENT[-12:],
        1,
    ),
    "contents that promise 2^32-1 items": (
        read_entry,
        entry_recrc(bytearray(ENTRY[:112] + b"\x92\xdd\xff\xff\xff\xff" + ENTRY[118:])),
        1,
    ),
}


@pytest.mark.parametrize(("decode", "data", "mebibytes"), GREEDY.values(), ids=GREEDY)
def test_what_an_object_promises_is_not_allocated(
    decode: Callable[[bytes], object], data: bytes, mebibytes: int
) -> None:
    assert peak_bytes(decode, data) < mebibytes * limits.MIB + len(data)
