"""Arrow's faster way to decode a batch: the same records, or BadBatchError."""

from __future__ import annotations

import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import zstd
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import arrow, batch
from tests.unit.formats.samples import body_of, columns, plain, recrc, with_body
from tests.unit.formats.test_hostile_bytes import BATCHES

PLAIN, PACKED = batch.encode(plain(b"one", b"two", b"three"), base_offset=0, created_us=1), 256


STORED = arrow.SCHEMA.set(2, pa.field("packed", pa.binary()))


def read(data: bytes, schema: pa.Schema = arrow.SCHEMA) -> pa.RecordBatch:
    return arrow.record_batch(arrow.decode(data, 0, batch.read_header(data)), "t", schema)


@given(columns(), st.booleans())
def test_the_records_are_those_of_the_plain_decoder(sample, is_packed) -> None:
    level = 1 if is_packed else None
    last = None if sample.offsets is None else sample.offsets[-1]
    data = batch.encode(sample, base_offset=0, last_offset=last, created_us=1, zstd_level=level)
    assert read(data).equals(arrow.record_batch(batch.decode(data), "t"))


@given(st.sampled_from(BATCHES), st.integers(72, 400), st.binary(min_size=1, max_size=8))
def test_changed_bytes_are_refused_or_read_within_their_bounds(data, at, new) -> None:
    changed = bytearray(data)
    changed[at : at + len(new)] = new
    with suppress(BadBatchError):
        read(recrc(changed[: len(data)]), STORED).validate(full=True)


@pytest.mark.parametrize("starts", [(0, 9, 3, 11), (1, 3, 6, 11), (0, 3, 6, -1), (0, 3, 6, 99)])
def test_starts_that_decrease_or_leave_the_body_are_refused(starts) -> None:
    body = bytearray(body_of(PLAIN))
    body[24:40] = struct.pack("<4i", *starts)
    with pytest.raises(BadBatchError):
        read(with_body(PLAIN, bytes(body)))


@pytest.mark.parametrize("more", [-8, 8])
def test_a_frame_of_another_length_than_the_header_names_is_refused(more) -> None:
    """Else Arrow would hand out memory that nobody wrote."""
    body = body_of(PLAIN)
    frame = zstd.compress(body)
    names = {"flags": PACKED, "inflated_bytes": len(body) + more}
    with pytest.raises(BadBatchError):
        read(with_body(PLAIN, frame, **names))


def test_a_frame_that_does_not_name_its_length_is_read() -> None:
    packer = zstd.ZstdCompressor()
    body = body_of(PLAIN)
    frame = packer.compress(body) + packer.flush()
    assert zstd.get_frame_info(frame).decompressed_size is None
    data = with_body(PLAIN, frame, flags=PACKED, inflated_bytes=len(body))
    assert read(data).column("value").to_pylist() == [b"one", b"two", b"three"]
