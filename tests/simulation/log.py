"""The true log: every record that the journal ever held, read from all that was ever stored.

Entries may be gone from the bucket since; the simulated bucket remembers what each key held first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from seb_appliance.broker.ports import EntryRef
from seb_appliance.formats import batch, batch_v1
from seb_appliance.formats.entry import Entry, section_bytes
from seb_appliance.formats.operations import ObjectsAdopted, TopicCreated, TopicForked
from seb_appliance.storage import layout
from tests.simulation.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Record:
    """`mark`: which call sent it."""

    offset: int
    key: bytes | None
    value: bytes | None
    mark: bytes
    created_us: int  # of its entry


@dataclass
class Log:
    """Records by topic id, in the order of the journal."""

    records: dict[int, list[Record]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    entry_of: dict[bytes, int] = field(default_factory=dict)  # seq, by mark
    oldest_us: int = 0  # `created` of the first entry
    newest_us: int = 0
    forks: dict[int, tuple[int, int]] = field(default_factory=dict)  # parent, and offset

    def of(self, topic_id: int) -> list[Record]:
        """All records of a topic, by offset: a fork's begin with its parent's."""
        own = self.records.get(topic_id, [])
        if topic_id not in self.forks:
            return own
        parent_id, offset = self.forks[topic_id]
        return [*self.of(parent_id)[:offset], *own]


def read_log(bucket: Bucket, entries: Sequence[Entry], mode: str) -> Log:
    """What `entries`, the whole journal, hold. Raises KeyError with the key of
    one that was never stored."""
    log = Log()
    for entry in entries:
        header = entry.header
        log.oldest_us = log.oldest_us or header.created_us
        log.newest_us = header.created_us
        for operation in entry.contents.operations:
            if isinstance(operation, TopicCreated | TopicForked):
                log.names[operation.topic_id] = operation.name
            if isinstance(operation, ObjectsAdopted):
                _adopt(log, operation, bucket, header.seq)
            if isinstance(operation, TopicForked):
                log.forks[operation.topic_id] = (operation.parent_id, operation.fork_offset)
        if not entry.contents.sections:
            continue
        ref = EntryRef(header.seq, header.epoch, header.writer_id)
        body = bucket.first_stored[layout.object_key("A" if mode == "A" else "B", ref)]
        for section in entry.contents.sections:
            data = bytes(section_bytes(header, body, section.start, section.length))
            rows = log.records.setdefault(section.topic_id, [])
            for at, head in batch.walk(data):
                rows += _records(batch.decode(data, at, head), header.created_us)
            for record in rows[-section.record_count :]:
                log.entry_of[record.mark] = header.seq
    return log


def _adopt(log: Log, adopted: ObjectsAdopted, bucket: Bucket, seq: int) -> None:
    """Imported records: in files of a Go broker, or in objects made of them."""
    for one in adopted.objects:
        body = bucket.first_stored[one.key]
        for section in one.sections:
            data = body[section.at : section.at + section.length]
            rows = log.records.setdefault(section.topic_id, [])
            if one.key.endswith(".record_batch"):
                values = batch_v1.decode(data).values.slice()
                offsets = range(section.base_offset, section.last_offset + 1)
                rows += [
                    Record(offset, None, value, mark_of(value, b""), section.created_us)
                    for offset, value in zip(offsets, values, strict=True)
                ]
            else:
                for at, head in batch.walk(data):
                    rows += _records(batch.decode(data, at, head), section.created_us)
            for record in rows[-section.record_count :]:
                log.entry_of[record.mark] = seq


def _records(found: batch.Batch, created_us: int) -> list[Record]:
    columns, count = found.columns, found.header.count
    keys = [None] * count if columns.keys is None else columns.keys.slice()
    heads = [b""] * count if columns.headers is None else columns.headers.slice()
    values = columns.values.slice()
    return [
        Record(offset, keys[i], values[i], mark_of(values[i], heads[i] or b""), created_us)
        for i, offset in enumerate(found.offsets())
    ]


def mark_of(value: bytes | None, headers: bytes) -> bytes:
    """What says which call sent a record."""
    if headers:
        mark: bytes = msgspec.msgpack.decode(headers)["m"]
        return mark
    assert value is not None
    return value.split(b" ", 1)[0]
