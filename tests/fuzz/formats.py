"""Targets: what is read from the bucket, and sent as record batches.

A change is most often caught by a CRC, so each input is decoded as it is, and with its CRCs made to
agree.
"""

from __future__ import annotations

import gzip
import sqlite3
import struct
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyarrow as pa

from seb_appliance import zstd
from seb_appliance.api.encoding.record_bodies import parse_batches
from seb_appliance.errors import BadBatchError, CorruptObjectError, NewerReleaseError, RefusedError
from seb_appliance.formats import arrow, batch, batch_v1, entry, segment
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s
from seb_appliance.formats.contents import decode_contents, encode_contents
from seb_appliance.limits import REQUEST_BYTES_MAX
from seb_appliance.state import schema
from seb_appliance.state.checks import needs_upgrade, read_checked_revision
from seb_appliance.state.files import sqlite_errors
from seb_appliance.storage import layout
from tests.fuzz.target import Target, tried
from tests.unit.formats.samples import body_of, plain, recrc, segment_recrc, with_body
from tests.unit.formats.test_hostile_bytes import BATCHES, ENTRY, FILES_V1, SEGMENT, entry_recrc

NUMBERS: Final = tuple(
    struct.pack(layout, number)
    for layout, numbers in (
        ("<I", (0, 1, 8, 2**16, 2**31, 2**32 - 1)),
        ("<q", (0, 1, -1, 2**32, 2**53, 2**63 - 1)),
    )
    for number in numbers
)


def items(column: BinaryColumn | None) -> list[bytes | None] | None:
    return None if column is None else column.slice()


def batch_is_read(data: bytes) -> None:
    """Every batch, every record; and the same again, from what was read."""
    for at, _ in batch.walk(data):
        found = batch.decode(data, at)
        head, columns = found.header, found.columns
        assert len(list(found.offsets())) == head.count
        again = batch.decode(
            batch.encode(
                columns,
                base_offset=head.base_offset,
                created_us=head.created_us,
                last_offset=head.last_offset,
            )
        ).columns
        assert again.timestamps_us.tolist() == columns.timestamps_us.tolist()
        for name in ("values", "keys", "headers"):
            assert items(getattr(again, name)) == items(getattr(columns, name)), name


def zstd_batch(data: bytes) -> bytes:
    """`data` as the body of a compressed batch."""
    stored = zstd.compress(data)
    flags = batch.read_header(BATCHES[1]).flags
    return with_body(BATCHES[1], stored, flags=flags, inflated_bytes=len(data))


def check_batch(data: bytes) -> None:
    tried(batch_is_read, (data, recrc(bytearray(data))))


def check_batch_zstd(data: bytes) -> None:
    batch_is_read(zstd_batch(data))


def _version_1(data: bytes) -> None:
    values = batch_v1.decode(data).values
    assert len(values.slice()) == len(values)


def check_batch_v1(data: bytes) -> None:
    tried(_version_1, (data, gzip.compress(data, 1)))


def _entry(data: bytes) -> None:
    found = entry.decode(data)
    contents = decode_contents(encode_contents(found.contents))
    assert contents == found.contents
    for section in contents.sections:
        stored = entry.section_bytes(found.header, data, section.start, section.length)
        assert len(stored) == section.length


def check_entry(data: bytes) -> None:
    tried(_entry, (data, entry_recrc(bytearray(data))))


def check_entry_contents(data: bytes) -> None:
    """The table of contents alone."""
    found = decode_contents(data)
    assert decode_contents(encode_contents(found)) == found


def _segment(data: bytes) -> None:
    index = segment.decode(data)
    for section in index.sections:
        assert len(data[section.at : section.at + section.length]) == section.length


def check_segment(data: bytes) -> None:
    tried(_segment, (data, segment_recrc(bytearray(data))))


def _arrow(data: bytes) -> None:
    parse_batches(data, REQUEST_BYTES_MAX)  # the appliance stores what passes here, nothing else
    for at, _ in batch.walk(data):
        found = batch.decode(data, at)
        stream = arrow.encoded_schema() + arrow.encoded_batch("t", [(found, 0, found.header.count)])
        with pa.ipc.open_stream(stream + b"\xff\xff\xff\xff\0\0\0\0") as reader:
            table = reader.read_all()
        table.validate(full=True)
        assert table["value"].to_pylist() == items(found.columns.values)
        assert table["offset"].to_pylist() == list(found.offsets())


def check_arrow(data: bytes) -> None:
    tried(_arrow, (data, recrc(bytearray(data))))


@cache
def state_file() -> bytes:
    """An empty state, as a snapshot holds it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "state.sqlite"
        schema.make(path)
        return path.read_bytes()


def check_snapshot(data: bytes) -> None:
    """`data`: where to write what over a good file: 3 bytes, a length, that many bytes."""
    changed = bytearray(state_file())
    at = 0
    while at + 4 <= len(data):
        place = int.from_bytes(data[at : at + 3]) % len(changed)
        new = data[at + 4 : at + 4 + data[at + 3]]
        changed[place : place + len(new)] = new
        at += 4 + data[at + 3]
    changed[18:20] = b"\1\1"  # a file in memory has no WAL beside it
    with sqlite_errors(Path("snapshot")), closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(bytes(changed))
        needs_upgrade(read_checked_revision(connection))


def check_bucket_keys(data: bytes) -> None:
    """What a LIST shows: a key is one of ours, and then nothing else is spelled as it is."""
    key = data.decode("utf-8", "replace")
    entry_at, snapshot, claim = (
        layout.parse_entry(key),
        layout.parse_snapshot(key),
        layout.parse_claim(key),
    )
    if entry_at is not None:
        whose, seq = entry_at
        made = layout.create_only_key(seq) if whose is None else layout.claimed_key(whose, seq)
        assert made == key
    if snapshot is not None:
        assert snapshot.key == layout.SNAPSHOTS + key.removeprefix(layout.SNAPSHOTS)
    if claim is not None:
        assert claim.name == key.rpartition("/")[2]
    if (epoch := layout.epoch_of(key)) is not None:
        assert f"-{epoch}-" in key
    layout.is_go_broker_key(key)


_KEYED: Final = Columns(
    int64s([5, 6, 7]),
    BinaryColumn.of([b"one", None, b""]),
    BinaryColumn.of([b"k", b"k", None]),
    BinaryColumn.of([b"", b"\x81\xa1a\xc4\x01b", b""]),
)
SENT: Final = (  # record batches that a client may send
    batch.encode(_KEYED, base_offset=0, created_us=1),
    batch.encode(_KEYED, base_offset=0, created_us=1, zstd_level=1),
    batch.encode(plain(b"hello", b"world"), base_offset=0, created_us=1),
)
_CONTENTS: Final = encode_contents(entry.decode(ENTRY).contents)
_NAME: Final = b"w" * 8
_CLAIM: Final = layout.Claim(3, b"w" * 16)
_KEYS: Final = tuple(
    key.encode()
    for key in (
        layout.create_only_key(17),
        layout.claimed_key(_CLAIM, 17),
        layout.claim_key(_CLAIM),
        layout.segment_key(7, 0, 99, 3, _NAME),
        layout.packed_key(1, 20, 3, _NAME),
        layout.SnapshotName(17, "0123456789abcdef").key,
    )
)

TARGETS: Final = (
    Target("batch", check_batch, tuple(BATCHES), NUMBERS, (BadBatchError,)),
    Target(
        "batch_zstd",
        check_batch_zstd,
        (body_of(BATCHES[0]),),
        NUMBERS,
        (BadBatchError,),
    ),
    Target("batch_v1", check_batch_v1, tuple(FILES_V1), NUMBERS, (BadBatchError,)),
    Target("entry", check_entry, (ENTRY,), NUMBERS, (BadBatchError,)),
    Target("entry_contents", check_entry_contents, (_CONTENTS,), NUMBERS, (BadBatchError,)),
    Target("segment", check_segment, (SEGMENT,), NUMBERS, (BadBatchError,)),
    Target("arrow", check_arrow, SENT, NUMBERS, (RefusedError,)),
    Target(
        "snapshot",
        check_snapshot,
        (b"", b"\0\x01\x00\x04\xff\xff\xff\xff", b"\0\x10\x05\x08\0\0\0\0\0\0\0\0"),
        NUMBERS,
        (CorruptObjectError, NewerReleaseError),
        is_slow=True,
    ),
    Target("bucket_keys", check_bucket_keys, _KEYS, (b"-", b"/", b"_seb/", b".seb")),
)
