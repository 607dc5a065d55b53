"""What a log of entries amounts to, as the broker loads it: a fold in plain Python, without SQLite.

It is what `state/projection.py` does in tables, written once more, so that both can be compared.
Nothing lies in pages here: every entry's sections are in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from seb_appliance.broker.append.retry_results import Producers, RememberedRequests
from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.broker.ports import (
    ApiKeyRow,
    DocumentRow,
    EntryRef,
    EntryRow,
    GarbageRow,
    GroupOffsetRow,
    LeaseRow,
    LoadedState,
    ObjectRow,
    TopicRow,
    UserRow,
    WriterRow,
)
from seb_appliance.broker.queues.progress import Queues
from seb_appliance.broker.topics.topic import Run, with_run, without_below
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.entry import ORIGIN, Entry, EntryHeader, Position
from seb_appliance.formats.operations import (
    ApiKeyCreated,
    ApiKeyRevoked,
    Append,
    DocumentRemoved,
    DocumentSet,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    ObjectsAdopted,
    ObjectsCondemned,
    ObjectsRemoved,
    OffsetsCommitted,
    Operation,
    QueueEvent,
    SegmentsReplaced,
    StoredObject,
    StoredSection,
    StreamSet,
    TableEvent,
    TopicChanged,
    TopicCompacted,
    TopicCreated,
    TopicDeleted,
    TopicForked,
    TopicTrimmed,
    UserRemoved,
    UserSet,
    object_id_of,
)


def folded(entries: Sequence[Entry]) -> LoadedState:
    """The state as of the last of `entries`, which begin with the log's first."""
    fold = Fold()
    for entry in entries:
        fold.apply(entry)
    return fold.loaded(entries)


class Fold:
    """As far as `apply` was called, in the order of the log."""

    def __init__(self) -> None:
        self.position: Position = ORIGIN
        self.next_topic_id = 1
        self.topics: dict[int, TopicRow] = {}
        self.streams: dict[int, StreamState] = {}
        self.api_keys: dict[str, ApiKeyRow] = {}
        self.users: dict[str, UserRow] = {}
        self.documents: dict[tuple[str, str], DocumentRow] = {}
        self.writers: list[WriterRow] = []
        self.tidied_seq = 0
        self.objects: dict[str, ObjectRow] = {}
        self.stored: dict[tuple[int, int], tuple[int, StoredSection]] = {}
        self.garbage: dict[str, int] = {}
        self.runs: dict[int, list[Run]] = {}
        self.group_offsets: dict[tuple[str, int], GroupOffsetRow] = {}
        self.leases: dict[str, LeaseRow] = {}
        self.requests = RememberedRequests(())
        self.producers = Producers(())
        self.tables = LakeTables(())
        self.queues = Queues()
        self.place = 0

    def apply(self, entry: Entry) -> None:
        header = entry.header
        assert header.follows(self.position), (header, self.position)
        self.position = header.position
        writer = (header.epoch, header.writer_id)
        if not self.writers or (self.writers[-1].epoch, self.writers[-1].writer_id) != writer:
            self.writers.append(WriterRow(header.seq, *writer))
        self.producers.forget_idle(header.created_us)
        for operation in entry.contents.operations:
            if isinstance(operation, Append):
                section = entry.contents.sections[operation.section]
                if section.topic_id in self.topics:
                    self.producers.apply(section.topic_id, section.producers, header.created_us)
            else:
                self._apply(operation, header)
        self.requests.apply(entry.contents.results, header.created_us)
        self.place += sum(max(1, len(result.produced)) for result in entry.contents.results)
        self.producers.make_room()

    def _apply(self, operation: Operation, header: EntryHeader) -> None:
        match operation:
            case TopicCreated(topic_id=topic_id):
                self.topics[topic_id] = TopicRow(
                    topic_id, operation.name, operation.created_us, operation.settings
                )
                self.next_topic_id = max(self.next_topic_id, topic_id + 1)
            case TopicForked(topic_id=topic_id, log_start_offset=start):
                self.topics[topic_id] = TopicRow(
                    topic_id,
                    operation.name,
                    operation.created_us,
                    operation.settings,
                    log_start_offset=start,
                    held_offset=start,
                    parent_id=operation.parent_id,
                    fork_offset=operation.fork_offset,
                )
                self.next_topic_id = max(self.next_topic_id, topic_id + 1)
            case TopicChanged(topic_id=topic_id, settings=settings):
                self.topics[topic_id] = replace(self.topics[topic_id], settings=settings)
            case StreamSet(topic_id=topic_id):
                self.streams[topic_id] = operation.stream
            case TopicDeleted(topic_id=topic_id):
                self._delete_topic(topic_id)
            case TopicTrimmed(topic_id=topic_id, log_start_offset=start):
                self.topics[topic_id] = replace(
                    self.topics[topic_id], log_start_offset=start, held_offset=start
                )
                self._forget_unread()
            case SegmentsReplaced():
                self._switch(operation, header.seq)
            case ObjectsAdopted():
                self._add(operation.objects, header.seq)
            case TopicCompacted(topic_id=topic_id, base_offset=base, last_offset=last):
                self.runs[topic_id] = with_run(
                    self.runs.get(topic_id, []), Run(base, last, header.seq)
                )
                self._forget_unread()
            case ObjectsCondemned(keys=keys):
                for key in keys:
                    self.objects.pop(key, None)
                    self.garbage[key] = header.created_us
            case ObjectsRemoved(keys=keys):
                for key in keys:
                    self.garbage.pop(key, None)
            case _ if isinstance(operation, TableEvent):
                self.tables.apply(operation, header.created_us)
            case _ if isinstance(operation, QueueEvent):
                self.queues.apply(operation, header.created_us)
            case _:
                self._apply_to_access(operation)
                self._apply_to_group(operation, header)

    def _apply_to_access(self, operation: Operation) -> None:
        match operation:
            case ApiKeyCreated():
                self.api_keys[operation.api_key_id] = _api_key(operation)
            case ApiKeyRevoked(api_key_id=api_key_id):
                del self.api_keys[api_key_id]
            case UserSet(name=name):
                self.users[name] = UserRow(
                    name, operation.role, operation.password_hash, operation.set_us
                )
            case UserRemoved(name=name):
                del self.users[name]
            case DocumentSet(kind=kind, name=name):
                row = DocumentRow(kind, name, operation.document, operation.set_us)
                self.documents[kind, name] = row
            case DocumentRemoved(kind=kind, name=name):
                del self.documents[kind, name]

    def _apply_to_group(self, operation: Operation, header: EntryHeader) -> None:
        match operation:
            case OffsetsCommitted(group=group) | GroupReset(group=group):
                for item in operation.offsets:
                    row = GroupOffsetRow(
                        group, item.topic_id, item.offset, item.metadata, header.created_us
                    )
                    self.group_offsets[group, item.topic_id] = row
            case GroupDeleted(group=group):
                for place in [place for place in self.group_offsets if place[0] == group]:
                    del self.group_offsets[place]
                self.leases.pop(group, None)
            case LeaseTaken(group=group, holder=holder, ttl_ms=ttl_ms):
                self.leases[group] = LeaseRow(group, header.seq, holder, ttl_ms)
            case LeaseReleased(group=group):
                self.leases.pop(group, None)

    def _delete_topic(self, topic_id: int) -> None:
        del self.topics[topic_id]
        self.streams.pop(topic_id, None)
        self.runs.pop(topic_id, None)
        self.producers.forget_topic(topic_id)
        self.queues.forget_topic(topic_id)
        for place in [place for place in self.group_offsets if place[1] == topic_id]:
            del self.group_offsets[place]
        self._forget_unread()

    def _is_read(self, topic_id: int, last_offset: int) -> bool:
        topic = self.topics.get(topic_id)
        return topic is not None and last_offset >= topic.log_start_offset

    def _forget_unread(self) -> None:
        for place, (_, section) in list(self.stored.items()):
            if not self._is_read(place[0], section.last_offset):
                del self.stored[place]
        for topic_id in list(self.runs):
            topic = self.topics.get(topic_id)
            start = topic.log_start_offset if topic is not None else None
            kept = [] if start is None else without_below(self.runs[topic_id], start)
            self.runs[topic_id] = kept

    def _switch(self, switch: SegmentsReplaced, seq: int) -> None:
        self.tidied_seq = switch.entries_until or self.tidied_seq
        for item in switch.replaced:
            for place in list(self.stored):
                inside = item.base_offset <= place[1] <= item.last_offset
                if place[0] == item.topic_id and inside:
                    del self.stored[place]
        self._add(switch.objects, seq)

    def _add(self, objects: Sequence[StoredObject], seq: int) -> None:
        for i, made in enumerate(objects):
            object_id = object_id_of(seq, i)
            self.objects[made.key] = ObjectRow(object_id, made.key, made.length)
            for section in made.sections:
                if self._is_read(section.topic_id, section.last_offset):
                    self.stored[section.topic_id, section.base_offset] = (object_id, section)

    @property
    def in_force(self) -> set[str]:
        """Keys of the objects that hold something in force."""
        living = {object_id for object_id, _ in self.stored.values()}
        return {row.key for row in self.objects.values() if row.object_id in living}

    def loaded(self, entries: Sequence[Entry]) -> LoadedState:
        runs = [(topic_id, *run) for topic_id in sorted(self.runs) for run in self.runs[topic_id]]
        return LoadedState(
            position=self.position,
            next_topic_id=self.next_topic_id,
            topics=[self.topics[topic_id] for topic_id in sorted(self.topics)],
            api_keys=[self.api_keys[name] for name in sorted(self.api_keys)],
            users=[self.users[name] for name in sorted(self.users)],
            documents=[row for _, row in sorted(self.documents.items())],
            writers=self.writers,
            entries=list(self._living(entries)),
            tidied_seq=self.tidied_seq,
            untidied=[
                (entry.header.seq, entry.header.length, entry.header.created_us)
                for entry in entries[self.tidied_seq :]
            ],
            objects=sorted(self.objects.values(), key=lambda row: row.object_id),
            stored=[row for _, row in sorted(self.stored.items(), key=lambda item: item[0])],
            garbage=[GarbageRow(*row) for row in sorted(self.garbage.items())],
            runs=runs,
            group_offsets=[row for _, row in sorted(self.group_offsets.items())],
            leases=[row for _, row in sorted(self.leases.items())],
            requests=list(self.requests),
            requests_place=self.place,
            producers=list(self.producers._by_id.values()),
            lake_tables=self.tables.all(),
            queues=[one.copy() for one in self.queues],
            streams=sorted(self.streams.items()),
        )

    def _living(self, entries: Iterable[Entry]) -> Iterable[EntryRow]:
        for entry in entries:
            sections = [one for one in entry.contents.sections if one.topic_id in self.topics]
            if sections:
                header = entry.header
                ref = EntryRef(header.seq, header.epoch, header.writer_id)
                yield EntryRow(ref, header.created_us, header.sections_at, sections)


def _api_key(event: ApiKeyCreated) -> ApiKeyRow:
    return ApiKeyRow(
        event.api_key_id,
        event.name,
        event.secret_sha256,
        event.grants,
        event.created_us,
        event.expires_us,
        event.description,
        event.disabled,
        event.quotas,
    )
