"""A journal without a bucket: entries that chain, as an appliance would have written them."""

from __future__ import annotations

from collections.abc import Iterable

from seb_appliance.broker.ports import ApiKeyRow
from seb_appliance.formats import entry as entry_format
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.contents import Contents, RequestResult, Section
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.entry import ORIGIN, Entry, Position
from seb_appliance.formats.operations import (
    ApiKeyCreated,
    Append,
    AuditNoted,
    CommittedOffset,
    EpochStarted,
    Event,
    LeaseTaken,
    OffsetsCommitted,
    StreamSet,
    TopicCreated,
)
from seb_appliance.formats.topic_settings import TopicSettings

BUCKET_ID = b"B" * 16
START_US = 1_800_000_000_000_000


class Journal:
    """`entries` so far; `write` adds the next one."""

    def __init__(self, bucket_id: bytes = BUCKET_ID) -> None:
        self.entries: list[Entry] = []
        self._bucket_id = bucket_id

    @property
    def position(self) -> Position:
        return self.entries[-1].header.position if self.entries else ORIGIN

    def write(
        self,
        *events: Event,
        sections: Iterable[Section] = (),
        results: Iterable[RequestResult] = (),
        last: Iterable[Event] = (),
        created_us: int | None = None,
    ) -> Entry:
        """`events` come before the appends of `sections`, `last` after them."""
        listed = list(sections)
        appends = [Append(section=i) for i in range(len(listed))]
        seq = self.position.seq + 1
        encoded = entry_format.encode(
            Contents([*events, *appends, *last], listed, list(results)),
            [b"r" * section.length for section in listed],
            after=self.position,
            epoch=1,
            writer_id=b"W" * 16,
            entry_id=seq.to_bytes(16, "big"),
            bucket_id=self._bucket_id,
            created_us=START_US + seq if created_us is None else created_us,
        )
        self.entries.append(entry_format.decode(encoded.body))
        return self.entries[-1]


def topic_created(topic_id: int, name: str = "", **settings: int) -> TopicCreated:
    return TopicCreated(
        topic_id=topic_id,
        name=name or f"topic-{topic_id}",
        created_us=START_US + topic_id,
        settings=TopicSettings(**settings),
    )


def api_key_created(api_key_id: str, expires_us: int | None = None) -> ApiKeyCreated:
    return ApiKeyCreated(
        api_key_id=api_key_id,
        name=f"key {api_key_id}",
        secret_sha256=api_key_id.encode().ljust(32, b"\0"),
        grants=(Grant(operation="produce", topics="logs.*"), Grant(operation="admin")),
        created_us=START_US,
        expires_us=expires_us,
    )


def api_key_row(created: ApiKeyCreated) -> ApiKeyRow:
    """The key right after it was made."""
    members = {name: getattr(created, name) for name in ApiKeyCreated.__struct_fields__[1:]}
    return ApiKeyRow(**members)


def audit_noted(number: int, **members: str) -> AuditNoted:
    return AuditNoted(
        **{
            "at_us": START_US + number,
            "actor": "aaaa",
            "address": "192.0.2.1",
            "action": "topic_changed",
            "subject_kind": "topic",
            "subject": f"topic-{number}",
            "before": None,
            "after": f'{{"n":{number}}}',
            **members,
        }
    )


def section(topic_id: int, base_offset: int = 0, *, count: int = 1, start: int = 0) -> Section:
    return Section(
        topic_id=topic_id,
        base_offset=base_offset,
        last_offset=base_offset + count - 1,
        record_count=count,
        start=start,
        length=8,
        crc=0xDEADBEEF,
        largest_timestamp_us=START_US,
    )


def sample(entries: int = 40, *, with_groups: bool = True) -> Journal:
    """A journal of `entries` entries at least that leaves rows in every table (those of consumer
    groups if asked)."""
    journal = Journal()
    journal.write(EpochStarted(software="test"))
    journal.write(topic_created(1), topic_created(2, linger_ms=50), api_key_created("aaaa"))
    journal.write(StreamSet(topic_id=2, stream=StreamState("text/plain", closed=True)))
    while len(journal.entries) < entries:
        offset = len(journal.entries)
        events: list[Event] = []
        if with_groups:
            committed = CommittedOffset(1 + offset % 2, offset, f"note {offset}")
            events.append(OffsetsCommitted(group=f"group-{offset % 3}", offsets=(committed,)))
            events.append(LeaseTaken(group="group-0", holder=f"worker-{offset}", ttl_ms=1_000))
        journal.write(*events, sections=[section(1, offset), section(2, offset, start=8)])
    return journal
