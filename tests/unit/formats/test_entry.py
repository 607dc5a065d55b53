"""Journal entry, version 1, and its table of contents."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.errors import BadBatchError
from seb_appliance.formats import batch, entry
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.contents import (
    Contents,
    ProducerAppend,
    QualifiedSeq,
    Section,
    decode_contents,
)
from seb_appliance.formats.durable_streams import ClosedBy, StreamFork, StreamState
from seb_appliance.formats.entry import ORIGIN, EncodedEntry, Position
from seb_appliance.formats.operations import (
    ApiKeyCreated,
    ApiKeyRevoked,
    Append,
    CommittedOffset,
    EpochStarted,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    OffsetsCommitted,
    Operation,
    StreamSet,
    TopicChanged,
    TopicCompacted,
    TopicCreated,
    TopicDeleted,
)
from seb_appliance.formats.topic_settings import TopicSettings
from tests.unit.formats.samples import plain

IDS = {"writer_id": b"w" * 16, "entry_id": b"e" * 16, "bucket_id": b"b" * 16}
BATCH = batch.encode(plain(b"hello"), base_offset=0, created_us=1)
SECTION = Section(7, 0, 0, 1, 0, len(BATCH), crc32c(BATCH), 7)

small = st.integers(0, 2**40)
names = st.text("abc.", min_size=1, max_size=9)
topic_settings = st.builds(
    TopicSettings,
    linger_ms=st.none() | small,
    early_flush=st.none() | st.booleans(),
    max_record_bytes=st.none() | small,
    compression=st.sampled_from([None, "none", "zstd"]),
    cleanup=st.sampled_from([None, "delete", "compact", "compact,delete", "none"]),
    dirty_ratio=st.sampled_from([None, 0.25]),
)
grants = st.builds(Grant, operation=st.sampled_from(["produce", "admin"]), topics=names)
committed = st.lists(
    st.builds(CommittedOffset, topic_id=small, offset=small, metadata=st.sampled_from(["", "✓"])),
    max_size=3,
).map(tuple)
stream_states = st.builds(
    StreamState,
    content_type=st.just("text/plain"),
    ttl_s=st.none() | small,
    expires_us=st.none() | small,
    closed=st.booleans(),
    closed_by=st.none() | st.builds(ClosedBy, producer_id=names, epoch=small, seq=small),
    last_seq=st.sampled_from([None, "b", "\xff"]),
    fork_of=st.none() | st.builds(StreamFork, topic=names, offset=small, sub_offset=small),
)
events: st.SearchStrategy[Operation] = st.one_of(
    st.builds(EpochStarted, software=names),
    st.builds(TopicCreated, topic_id=small, name=names, created_us=small, settings=topic_settings),
    st.builds(TopicChanged, topic_id=small, settings=topic_settings),
    st.builds(TopicDeleted, topic_id=small),
    st.builds(StreamSet, topic_id=small, stream=stream_states),
    st.builds(TopicCompacted, topic_id=small, base_offset=small, last_offset=small),
    st.builds(OffsetsCommitted, group=st.just("g"), offsets=committed),
    st.builds(GroupReset, group=st.just("g"), offsets=committed),
    st.builds(GroupDeleted, group=st.just("g")),
    st.builds(LeaseTaken, group=st.just("g"), holder=st.just("worker-é"), ttl_ms=small),
    st.builds(LeaseReleased, group=st.just("g")),
    st.builds(
        ApiKeyCreated,
        api_key_id=names,
        name=names,
        secret_sha256=st.binary(min_size=32, max_size=32),
        grants=st.lists(grants, max_size=3).map(tuple),
        created_us=small,
        expires_us=st.none() | small,
    ),
    st.builds(ApiKeyRevoked, api_key_id=names, revoked_us=small),
)


def encoded(
    contents: Contents | None = None,
    parts: tuple[bytes, ...] = (BATCH,),
    after: Position = ORIGIN,
    **changes: Any,
) -> EncodedEntry:
    contents = contents or Contents([Append(section=0)], [SECTION])
    return entry.encode(contents, parts, after=after, epoch=3, created_us=5, **(IDS | changes))


@given(st.lists(events, max_size=6), st.lists(st.binary(max_size=40), max_size=4))
def test_an_entry_reads_back_as_it_was_written(
    operations: list[Operation], blobs: list[bytes]
) -> None:
    sections, at = [], 0
    for blob in blobs:
        sections.append(Section(1, at, at, 1, at, len(blob), crc32c(blob), 1))
        at += len(blob)
    operations += [Append(section=i) for i in range(len(sections))]
    written = encoded(Contents(operations, sections), tuple(blobs))
    read = entry.decode(written.body)
    assert read == written.entry
    assert read.contents == Contents(operations, sections)
    for section, blob in zip(read.contents.sections, blobs, strict=True):
        stored = entry.section_bytes(read.header, written.body, section.start, section.length)
        assert bytes(stored) == blob


def test_sections_begin_on_a_multiple_of_eight() -> None:
    assert encoded().entry.header.sections_at % 8 == 0


def test_the_beginning_of_an_entry_is_enough_for_its_contents() -> None:
    written = encoded()
    head = written.body[: written.entry.header.sections_at]
    header = entry.read_header(head)
    assert entry.read_contents(header, head) == written.entry.contents


def test_an_entry_follows_only_the_one_whose_header_crc_it_names() -> None:
    first = encoded()
    second = encoded(after=first.entry.header.position)
    other = encoded(entry_id=b"x" * 16)
    assert first.entry.header.follows(ORIGIN)
    assert second.entry.header.follows(first.entry.header.position)
    assert not second.entry.header.follows(other.entry.header.position)
    assert not second.entry.header.follows(ORIGIN)
    assert not first.entry.header.follows(second.entry.header.position)


def test_only_an_epoch_entry_carries_the_flag() -> None:
    started = Contents([EpochStarted(software="x")], [])
    assert entry.decode(encoded(started, (), is_epoch=True).body).header.is_epoch
    assert not encoded().entry.header.is_epoch


def patched(at: int, layout: str, *values: object, crc: bool = True) -> bytes:
    """An entry with bytes changed and, unless told not to, a header CRC that agrees."""
    data = bytearray(encoded().body)
    struct.pack_into(layout, data, at, *values)
    if crc:
        struct.pack_into("<I", data, 104, crc32c(bytes(data[:104])))
    return bytes(data)


GOOD = encoded().body
BAD_ENTRIES = {
    "nothing": b"",
    "half a header": GOOD[:60],
    "another magic": patched(0, "<4s", b"sebs"),
    "version 2": patched(4, "<H", 2),
    "an unknown flag": patched(6, "<H", 2),
    "a seq that does not follow prev": patched(8, "<Q", 2),
    "the largest seq": patched(8, "<Q", 2**64 - 1),
    "contents of 2^32-1 bytes": patched(28, "<I", 2**32 - 1),
    "contents longer than the entry": patched(28, "<I", limits.ENTRY_CONTENTS_BYTES_MAX),
    "a length of 2^63": patched(88, "<Q", 2**63),
    "a length shorter than the header": patched(88, "<Q", 50),
    "one byte less than it says": GOOD[:-1],
    "one byte more than it says": GOOD + b"\0",
    "a wrong CRC of the header": patched(80, "<q", 6, crc=False),
    "a wrong CRC of the contents": patched(100, "<I", 1),
    "the last word set": patched(108, "<I", 1),
    "a flipped bit in the contents": GOOD[:115] + bytes([GOOD[115] ^ 1]) + GOOD[116:],
}


@pytest.mark.parametrize("data", BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_bytes_that_are_no_entry_are_refused(data: bytes) -> None:
    with pytest.raises(BadBatchError):
        entry.decode(data)


BAD_SECTIONS = {
    "begins before the area": {"start": -8},
    "has a negative length": {"length": -8},
    "ends beyond the object": {"length": len(BATCH) + 1},
    "ends far beyond the object": {"start": 2**62, "length": 2**62},
    "has a negative offset": {"base_offset": -1},
    "ends before it begins": {"base_offset": 2},
    "passes 2^53-1": {"last_offset": 2**53},
    "has a negative count": {"record_count": -1},
    "has more records than offsets": {"record_count": 2},
    "has no record": {"record_count": 0},
}


@pytest.mark.parametrize("changes", BAD_SECTIONS.values(), ids=BAD_SECTIONS)
def test_a_section_that_cannot_be_true_is_refused(changes: dict[str, int]) -> None:
    section = msgspec.structs.replace(SECTION, **changes)
    data = encoded(Contents([Append(section=0)], [section])).body
    with pytest.raises(BadBatchError):
        entry.decode(data)


def pack(operations: object, sections: object = ()) -> bytes:
    return msgspec.msgpack.encode([operations, sections])


DELETED = {"type": "topic_deleted", "version": 1, "topic_id": 1}
COMMITTED = {"type": "offsets_committed", "version": 1, "group": "g"}
LEASED = {"type": "lease_taken", "version": 1, "group": "g", "holder": "a"}
BAD_CONTENTS = {
    "nothing": b"",
    "not msgpack": b"\xc1",
    "cut short": pack([DELETED])[:-1],
    "bytes after it": pack([DELETED]) + b"\0",
    "an unknown event": pack([{"type": "group_renamed", "version": 1}]),
    "an unknown version": pack([DELETED | {"version": 2}]),
    "an unknown field": pack([DELETED | {"reason": "x"}]),
    "a missing field": pack([{"type": "topic_deleted", "version": 1}]),
    "a text for a number": pack([DELETED | {"topic_id": "1"}]),
    "an offset below zero": pack([COMMITTED | {"offsets": [[1, -1, ""]]}]),
    "an offset of 2^53": pack([COMMITTED | {"offsets": [[1, 2**53, ""]]}]),
    "an offset of topic -1": pack([COMMITTED | {"offsets": [[-1, 1, ""]]}]),
    "an offset with a fourth member": pack([COMMITTED | {"offsets": [[1, 1, "", 1]]}]),
    "a lease for less than no time": pack([LEASED | {"ttl_ms": -1}]),
    "a fourth part": msgspec.msgpack.encode([[], [], [], []]),
    "a section of ten members": pack([], [[1, 0, 0, 1, 0, 0, 0, 0, [], 0]]),
    "an operation that names no section": pack([{"type": "append", "section": 0}]),
    "an operation that names a section below zero": pack([{"type": "append", "section": -1}]),
    "a list of 2^32-1 items": b"\x92\xdd\xff\xff\xff\xff",
    "a text of 2^32-1 bytes": b"\x92\x91\x81\xdb\xff\xff\xff\xff",
    "lists 100,000 deep": b"\x91" * 100_000,
}


def test_settings_of_a_release_that_knew_fewer_are_read() -> None:
    changed = {"type": "topic_changed", "version": 1, "topic_id": 1}
    settings = {"linger_ms": 5, "early_flush": None, "max_record_bytes": None}
    (read,) = decode_contents(pack([changed | {"settings": settings}])).operations
    assert read == TopicChanged(topic_id=1, settings=TopicSettings(linger_ms=5))


@pytest.mark.parametrize("data", BAD_CONTENTS.values(), ids=BAD_CONTENTS)
def test_contents_that_this_release_does_not_know_are_refused(data: bytes) -> None:
    with pytest.raises(BadBatchError):
        decode_contents(data)


def test_a_producers_checksum_is_written_only_where_there_is_one() -> None:
    """So that what has none is read by releases that know of none; those stop at the others."""

    class Earlier(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
        producer_id: str
        epoch: int
        seq: int
        offset: int
        count: int
        timestamp_us: int

    plain, checked = (ProducerAppend("p", 0, seq, 5, 2, 9) for seq in (3, QualifiedSeq(3, 8)))
    for append, checksum in ((plain, None), (checked, 8)):
        read = msgspec.msgpack.decode(msgspec.msgpack.encode(append), type=ProducerAppend)
        assert (read, read.seq, read.checksum) == (append, 3, checksum)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=Earlier).seq == 3
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(checked), type=Earlier)
