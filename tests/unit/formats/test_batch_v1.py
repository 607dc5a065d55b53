"""Record batch, version 1: the files in tests/fixtures/seb-v1 were written by the Go broker."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, batch_v1

FIXTURES = Path(__file__).parents[2] / "fixtures" / "seb-v1"
README = (FIXTURES / "README.md").read_text(encoding="utf-8")
RECORDS = {
    "000000000000": [b"first-record-data", b"second-record-data", b"third-record-data"],
    "000000000003": [b"", b"hello", b"", "wørld".encode()],
    "000000000007": [bytes([i % 256]) * i for i in range(1, 257)],
}
CREATED_US = {
    name: (int(s3), int(cache))
    for name, s3, cache in re.findall(
        r"^\| (\d{12})\.record_batch \|.*\| (\d{16}) / (\d{16}) \|", README, re.MULTILINE
    )
}
SMALL = (FIXTURES / "cache" / "000000000000.record_batch").read_bytes()


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("place", ["s3", "cache"])
def test_a_file_of_the_go_broker_is_read_whole(name: str, place: str) -> None:
    stored = (FIXTURES / place / f"{name}.record_batch").read_bytes()
    read = batch_v1.decode(stored)
    assert read.values.slice() == RECORDS[name]
    assert read.created_us == CREATED_US[name][0 if place == "s3" else 1]


@pytest.mark.parametrize("name", RECORDS)
def test_the_fixtures_are_the_files_that_their_readme_describes(name: str) -> None:
    sums = re.search(rf"^- {name}: `(\w{{64}})` `(\w{{64}})`", README, re.MULTILINE)
    assert sums is not None
    for place, expected in zip(("s3", "cache"), sums.groups(), strict=True):
        stored = (FIXTURES / place / f"{name}.record_batch").read_bytes()
        assert hashlib.sha256(stored).hexdigest() == expected


def test_both_copies_of_a_file_differ_only_in_when_they_were_made() -> None:
    plain = gzip.decompress((FIXTURES / "s3" / "000000000000.record_batch").read_bytes())
    assert plain[:6] + plain[14:] == SMALL[:6] + SMALL[14:]


def file(count: int, *starts: int, data: bytes = b"abcd") -> bytes:
    header = struct.pack("<4shqI14x", b"seb!", 1, 1, count)
    return header + struct.pack(f"<{len(starts)}I", *starts) + data


BAD_FILES = {
    "nothing": b"",
    "half a header": SMALL[:20],
    "another magic": b"nope" + SMALL[4:],
    "version 2": SMALL[:4] + b"\x02\x00" + SMALL[6:],
    "2^32-1 records": file(2**32 - 1),
    "an index cut short": file(3, 0, 1),
    "starts that decrease": file(3, 0, 3, 2),
    "starts that begin above zero": file(2, 1, 2),
    "starts that leave the data": file(2, 0, 5),
    "a start at 2^32-1": file(2, 0, 2**32 - 1),
    "a gzip stream cut short": gzip.compress(SMALL)[:-9],
    "a gzip stream with a wrong check": gzip.compress(SMALL)[:-8] + b"\0" * 8,
    "bytes after the gzip stream": gzip.compress(SMALL) + b"more",
    "a gzip bomb of 256 MiB": gzip.compress(b"\0" * (256 << 20), 1),
    "gzip of nothing": gzip.compress(b""),
    "only gzip's magic": b"\x1f\x8b",
}


@pytest.mark.parametrize("stored", BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_version_1_batch_is_refused(stored: bytes) -> None:
    with pytest.raises(BadBatchError):
        batch_v1.decode(stored)


def test_a_file_without_records_is_empty() -> None:
    read = batch_v1.decode(file(0, data=b""))
    assert len(read.values) == 0


@given(
    values=st.lists(st.binary(max_size=40), min_size=1, max_size=20),
    created_us=st.integers(0, limits.OFFSET_MAX),
    base_offset=st.integers(0, 2**40),
    in_a_bucket=st.booleans(),
)
def test_what_was_written_is_read_and_is_the_same_as_version_2(
    values: list[bytes], created_us: int, base_offset: int, in_a_bucket: bool
) -> None:
    stored = batch_v1.encode(values, created_us)
    if in_a_bucket:
        stored = batch_v1.compress(stored)
    assert batch_v1.is_version_1(stored)
    read = batch_v1.decode(stored)
    assert (read.values.slice(), read.created_us) == (values, created_us)
    newer = batch_v1.as_version_2(stored, base_offset)
    assert not batch_v1.is_version_1(newer)
    found = batch.decode(newer)
    assert found.columns.values.slice() == values
    assert list(found.offsets()) == list(range(base_offset, base_offset + len(values)))
    assert set(found.columns.timestamps_us) == {created_us}
    assert found.header.created_us == created_us


@pytest.mark.parametrize("name", RECORDS)
def test_a_file_is_written_byte_for_byte_as_the_go_broker_writes_it(name: str) -> None:
    plain = (FIXTURES / "cache" / f"{name}.record_batch").read_bytes()
    stored = (FIXTURES / "s3" / f"{name}.record_batch").read_bytes()
    written = batch_v1.encode(RECORDS[name], CREATED_US[name][1])
    assert written == plain
    assert batch_v1.compress(written)[:10] == stored[:10]
    assert gzip.decompress(batch_v1.compress(written)) == plain


@pytest.mark.parametrize(
    "stored", [file(0, data=b""), batch_v1.encode([b"x"], -1)], ids=["no record", "before 1970"]
)
def test_a_file_that_no_topic_can_hold_has_no_version_2(stored: bytes) -> None:
    with pytest.raises(BadBatchError):
        batch_v1.as_version_2(stored, 0)
