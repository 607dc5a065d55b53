"""Record batch, version 2: what goes in comes out, and nothing else is taken."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits, zstd
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from tests.unit.formats.samples import body_of, columns, plain, with_body, with_header

ONE = batch.encode(plain(b"hello"), base_offset=5, created_us=9)


def same(read: Columns, written: Columns) -> bool:
    def items(column: BinaryColumn | None) -> list[bytes | None] | None:
        return None if column is None else column.slice()

    return (
        list(read.timestamps_us) == list(written.timestamps_us)
        and items(read.values) == items(written.values)
        and items(read.keys) == items(written.keys)
        and items(read.headers) == items(written.headers)
        and (read.offsets is None) == (written.offsets is None)
        and (read.offsets is None or list(read.offsets) == list(written.offsets or ()))
    )


@given(columns(), st.integers(0, 2**40), st.sampled_from([None, 1]))
def test_a_batch_reads_back_as_it_was_written(
    written: Columns, base: int, zstd_level: int | None
) -> None:
    if written.offsets is not None:
        written = Columns(
            written.timestamps_us,
            written.values,
            written.keys,
            written.headers,
            int64s(base + offset for offset in written.offsets),
        )
    last = None if written.offsets is None else written.offsets[-1] + 3
    data = batch.encode(
        written, base_offset=base, created_us=11, last_offset=last, zstd_level=zstd_level
    )
    read = batch.decode(data)
    assert len(data) % 8 == 0
    assert len(data) == read.header.total_bytes
    assert same(read.columns, written)
    assert read.header.base_offset == base
    assert read.header.created_us == 11
    expected = range(base, base + len(written)) if written.offsets is None else written.offsets
    assert list(read.offsets()) == list(expected)


@given(st.binary(max_size=100), st.integers(0, 2**60), st.integers(0, 2**40))
def test_one_plain_value_is_written_as_a_batch_of_one(value: bytes, time: int, base: int) -> None:
    columns = Columns(int64s([time]), BinaryColumn.of([value]))
    assert batch.encode_value(value, time, base_offset=base, created_us=7) == batch.encode(
        columns, base_offset=base, created_us=7
    )


@given(st.lists(columns(), min_size=1, max_size=4))
def test_batches_lie_back_to_back_and_are_found_again(several: list[Columns]) -> None:
    several = [Columns(c.timestamps_us, c.values, c.keys, c.headers) for c in several]
    data = b"".join(batch.encode(c, base_offset=0, created_us=1) for c in several)
    assert [header.count for _, header in batch.walk(data)] == [len(c) for c in several]
    assert all(
        same(batch.decode(data, at).columns, written)
        for (at, _), written in zip(batch.walk(data), several, strict=True)
    )


@given(columns(), st.integers(0, 2**40))
def test_a_restamped_batch_keeps_its_body_and_its_gaps(written: Columns, base: int) -> None:
    written = Columns(written.timestamps_us, written.values, written.keys, written.headers)
    data = batch.encode(written, base_offset=0, created_us=1)
    stamp = batch.restamp(batch.read_header(data), base_offset=base, created_us=77)
    read = batch.decode(stamp + data[batch.HEADER_BYTES :])
    assert same(read.columns, written)
    assert read.header.base_offset == base
    assert read.header.last_offset == base + len(written) - 1
    assert read.header.created_us == 77


def test_the_first_eighteen_bytes_are_where_version_1_has_them() -> None:
    magic, version, created, count = struct.unpack_from("<4shqI", ONE)
    assert (magic, version, created, count) == (b"seb!", 2, 9, 1)


def test_an_empty_value_is_not_a_tombstone() -> None:
    read = batch.decode(batch.encode(plain(b"", None), base_offset=0, created_us=1))
    assert read.columns.values.slice() == [b"", None]


def test_plain_columns_are_read_without_a_copy() -> None:
    data = batch.encode(plain(b"x" * 1000), base_offset=0, created_us=1)
    column = batch.decode(data).columns.values
    assert isinstance(column.data, memoryview)
    assert column.data.obj is data


def columns_of(*parts: bytes) -> bytes:
    return b"".join(part + b"\0" * (-len(part) % 8) for part in parts)


def int32s(*items: int) -> bytes:
    return struct.pack(f"<{len(items)}i", *items)


TWO = batch.encode(plain(b"aa", b"bb"), base_offset=0, created_us=1)
TIMES = struct.pack("<2q", 7, 7)
BAD_BODIES = {
    "empty": b"",
    "shorter than its timestamps": TIMES[:8],
    "without starts": TIMES,
    "starts that decrease": columns_of(TIMES, int32s(0, 4, 2), b"aabb"),
    "starts that begin below zero": columns_of(TIMES, int32s(-1, 2, 4), b"aabb"),
    "starts that begin above zero": columns_of(TIMES, int32s(1, 2, 4), b"aabb"),
    "starts that leave the data": columns_of(TIMES, int32s(0, 2, 400), b"aabb"),
    "starts at the largest int32": columns_of(TIMES, int32s(0, 2, 2**31 - 1), b"aabb"),
    "bytes after the last column": columns_of(TIMES, int32s(0, 2, 4), b"aabb", b"more"),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_not_its_columns_is_refused(body: bytes) -> None:
    with pytest.raises(BadBatchError):
        batch.decode(with_body(TWO, body))


BAD_HEADERS = {
    "no record": {"count": 0},
    "2^32-1 records": {"count": 2**32 - 1},
    "more records than a batch may have": {"count": limits.BATCH_RECORDS_MAX + 1},
    "an unknown flag": {"flags": 16},
    "a body longer than the buffer": {"stored_bytes": 2**32 - 1, "inflated_bytes": 2**32 - 1},
    "inflated length of a plain body": {"inflated_bytes": 8},
    "inflated over 64 MiB": {"flags": batch.ZSTD, "inflated_bytes": 64 * limits.MIB + 1},
    "a negative base offset": {"base_offset": -1},
    "last before base": {"base_offset": 6},
    "last beyond 2^53-1": {"base_offset": 2**53, "last_offset": 2**53},
    "a range with gaps and no offsets": {"last_offset": 6},
    "a wrong smallest timestamp": {"smallest_timestamp_us": 6},
    "a wrong largest timestamp": {"largest_timestamp_us": 8},
    "another timestamp than the only one": {"smallest_timestamp_us": 6, "largest_timestamp_us": 6},
    "a wrong CRC of the body": {"body_crc": 1},
}


@pytest.mark.parametrize("changes", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_cannot_be_true_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(BadBatchError):
        batch.decode(with_header(ONE, **changes))


BAD_BYTES = {
    "nothing": b"",
    "half a header": ONE[:40],
    "another magic": b"sebs" + ONE[4:],
    "version 1": ONE[:4] + b"\x01\x00" + ONE[6:],
    "version 3": ONE[:4] + b"\x03\x00" + ONE[6:],
    "a flipped bit in the header": ONE[:33] + bytes([ONE[33] ^ 1]) + ONE[34:],
    "a flipped bit in the body": ONE[:73] + bytes([ONE[73] ^ 1]) + ONE[74:],
    "reserved bytes set": ONE[:68] + b"\x01" + ONE[69:],
    "the last byte missing": ONE[:-1],
}


@pytest.mark.parametrize("data", BAD_BYTES.values(), ids=BAD_BYTES)
def test_bytes_that_are_no_batch_are_refused(data: bytes) -> None:
    with pytest.raises(BadBatchError):
        batch.decode(data)


@pytest.mark.parametrize(
    "offsets", [[3, 3], [4, 3], [0, 9], [-1, 3]], ids=["equal", "decreasing", "above", "below"]
)
def test_offsets_that_do_not_increase_inside_the_range_are_refused(offsets: list[int]) -> None:
    written = Columns(int64s([7, 7]), BinaryColumn.of([b"a", b"b"]), offsets=int64s([0, 1]))
    data = batch.encode(written, base_offset=0, last_offset=5, created_us=1)
    body = bytearray(body_of(data))
    struct.pack_into("<2q", body, 16, *offsets)
    with pytest.raises(BadBatchError, match="offset"):
        batch.decode(with_body(data, bytes(body)))


def test_a_null_with_bytes_is_refused() -> None:
    data = batch.encode(plain(b"aa", None), base_offset=0, created_us=1)
    body = bytearray(body_of(data))
    body[16] = 0  # the bitmap after two timestamps: the first value becomes null, its bytes stay
    with pytest.raises(BadBatchError, match="null"):
        batch.decode(with_body(data, bytes(body)))


def zstd_batch(stored: bytes, inflated_bytes: int) -> bytes:
    return with_body(ONE, stored, flags=batch.ZSTD, inflated_bytes=inflated_bytes)


BAD_FRAMES = {
    "a bomb of 1 GiB": (zstd.compress(b"\0" * (8 << 20)) * 128, 64 * limits.MIB),
    "more than it says": (zstd.compress(body_of(ONE) + b"more"), len(body_of(ONE))),
    "less than it says": (zstd.compress(body_of(ONE)), len(body_of(ONE)) + 8),
    "cut short": (zstd.compress(body_of(ONE))[:-1], len(body_of(ONE))),
    "two frames": (zstd.compress(body_of(ONE)) * 2, len(body_of(ONE))),
    "no frame": (b"not zstd", 8),
    "empty": (b"", 8),
}


@pytest.mark.parametrize(("stored", "inflated"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_frame_that_does_not_inflate_to_what_it_says_is_refused(
    stored: bytes, inflated: int
) -> None:
    with pytest.raises(BadBatchError):
        batch.decode(zstd_batch(stored, inflated))


def test_the_largest_column_item_is_known() -> None:
    assert BinaryColumn.of([b"a", b"abc", None, b""]).largest() == 3
    assert BinaryColumn.of([]).largest() == 0
