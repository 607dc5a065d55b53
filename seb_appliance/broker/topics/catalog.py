"""The applied state in memory: topics, groups, API keys. Only journal entries change it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.access.api_keys import ApiKeyEvent, ApiKeys
from seb_appliance.broker.access.document_rows import DocumentRows
from seb_appliance.broker.access.users import Users
from seb_appliance.broker.append.retry_results import Producers, RememberedRequests
from seb_appliance.broker.delays.delays import Delays
from seb_appliance.broker.groups.groups import Groups
from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.broker.ports import EntryRef, LoadedState, PagedRow, SectionRef, TopicRow
from seb_appliance.broker.queues.progress import Queues
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.topic import (
    IndexRows,
    Run,
    Topic,
    held_offset,
    holes,
    no_such_topic,
    topic_held,
    with_run,
    without_below,
)
from seb_appliance.broker.upkeep.stored_objects import StoredObjects, Untidied
from seb_appliance.formats import operations as ops
from seb_appliance.formats.contents import Section
from seb_appliance.formats.entry import Entry, EntryHeader, Position
from seb_appliance.formats.operations import StoredSection
from seb_appliance.formats.topic_settings import BodyShape
from seb_appliance.tasks import in_slices

# Topics whose old index rows are dropped at each entry, so that no entry takes long.
_SWEPT_AT_ONCE: Final = 64
_SWITCHED_AT_ONCE: Final = 200  # topics


@dataclass(frozen=True, slots=True)
class Totals:
    """Over all topics: their number, readable records and stored bytes."""

    topics: int
    records: int
    size_bytes: int


class Catalog:
    """`apply` mirrors state/projection.py in memory."""

    def __init__(
        self,
        loaded: LoadedState,
        monotonic_s: Callable[[], float],
        shares: AllShares | None = None,
    ) -> None:
        self._monotonic_s = monotonic_s  # leases live by it
        self.position: Position = loaded.position
        self.api_keys = ApiKeys(loaded.api_keys)
        self.users = Users(loaded.users)
        self.documents = DocumentRows(loaded.documents)
        self.tables = LakeTables(loaded.lake_tables)
        self.queues = Queues(loaded.queues)
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[int, Topic] = {}  # also held topics: deleted, with forks
        self._held: dict[str, Topic] = {}
        # First seq, epoch and writer id of each writer, ascending.
        self._writers = [(row.first_seq, row.epoch, row.writer_id) for row in loaded.writers]
        self._paged_seqs = (0, 0)  # the last but one, and the last
        self._to_sweep: deque[Topic] = deque()
        self._switching: deque[Iterator[None]] = deque()
        paged = {row.topic_id: row for row in loaded.paged}
        self.stored = StoredObjects(loaded.objects, loaded.garbage)
        self.untidied = Untidied(loaded.untidied)
        for row in loaded.topics:
            parent = None if row.parent_id is None else self._by_id[row.parent_id]
            self._add_topic(_loaded_topic(row, paged.get(row.topic_id), parent))
        self.delays = Delays(loaded.delays, self.find_rows, shares or AllShares())
        for topic_id, stream in loaded.streams:
            self._by_id[topic_id].stream = stream
        self._load_entries(loaded)
        self._load_stored(loaded)
        self.groups = Groups(
            loaded.group_offsets, loaded.leases, loaded.group_owners, monotonic_s(), shares
        )
        self.requests = RememberedRequests(loaded.requests, loaded.requests_place, shares)
        self.producers = Producers(loaded.producers, shares)

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def body_of(self, name: str) -> BodyShape:
        """How bodies for this topic are read unless the request says it; also of no topic."""
        topic = self.find(name)
        return "envelope" if topic is None else topic.settings.body or "envelope"

    def topic(self, name: str) -> Topic:
        """Raises TopicNotFoundError; TopicHeldError while forks hold the name."""
        found = self._by_name.get(name)
        if found is None:
            raise topic_held(name) if name in self._held else no_such_topic(name)
        return found

    async def totals(self) -> Totals:
        """In slices: thousands of topics take long."""
        living, records, size_bytes = list(self._by_name.values()), 0, 0
        async for topic in in_slices(living):
            records += topic.log_end_offset - topic.log_start_offset
        async for topic in in_slices(self.with_rows()):
            size_bytes += topic.size_bytes
        return Totals(len(living), records, size_bytes)

    def topic_names(self) -> list[str]:
        """In order."""
        return sorted(self._by_name)

    def topics(self) -> list[Topic]:
        return [self._by_name[name] for name in self.topic_names()]

    def unsorted(self) -> Iterable[Topic]:
        """`topics` in any order: to sort thousands of names takes 10 ms."""
        return self._by_name.values()

    def with_rows(self) -> list[Topic]:
        """All topics, also held ones; a fork comes after its parent."""
        return list(self._by_id.values())

    def section_ref(self, topic: Topic, rows: IndexRows, row: int) -> SectionRef:
        """Where row `row` of the topic's `rows` lies."""
        seq = rows.seqs[row]
        return SectionRef(
            self.entry_ref(seq) if seq > 0 else self.stored.get(-seq).ref,
            topic.topic_id,
            rows.bases[row],
            rows.end_of(row) - 1,
            rows.starts[row],
            rows.lengths[row],
            rows.crcs[row],
        )

    def entry_ref(self, seq: int) -> EntryRef:
        """Names entry `seq`."""
        after = bisect_right(self._writers, seq, key=lambda writer: writer[0])
        _, epoch, writer_id = self._writers[after - 1]
        return EntryRef(seq, epoch, writer_id)

    def last_entry(self, topic: Topic) -> EntryRef:
        """The last one with records of the topic; of all, if their place in the journal is not
        known any more."""
        seqs = topic.index.seqs
        return self.entry_ref(seqs[-1] if seqs else self.position.seq)

    @property
    def writers(self) -> list[EntryRef]:
        """Every writer's first entry, oldest first."""
        return [EntryRef(*writer) for writer in self._writers]

    def forget_paged(self, paged_seq: int) -> None:
        """The sections of all entries up to and with `paged_seq` are in pages of the index. Drop
        those of one page earlier from memory, some topics at a time."""
        if paged_seq > self._paged_seqs[1]:
            self._paged_seqs = (self._paged_seqs[1], paged_seq)
            self._to_sweep = deque(self._by_id.values())
        for _ in range(min(_SWEPT_AT_ONCE, len(self._to_sweep))):
            self._to_sweep.popleft().index.forget(self._paged_seqs[0])

    def find_id(self, topic_id: int) -> Topic | None:
        """None when the topic was deleted."""
        found = self._by_id.get(topic_id)
        return None if found is None or found.deleted else found

    def find_rows(self, topic_id: int) -> Topic | None:
        """As `find_id`, but also a held topic."""
        return self._by_id.get(topic_id)

    def apply(self, entry: Entry) -> list[Topic]:
        """Apply an entry, except `steps`; returns the changed topics."""
        header = entry.header
        assert header.follows(self.position), (header, self.position)
        assert not self._switching
        self.position = header.position
        if not self._writers or self._writers[-1][1:] != (header.epoch, header.writer_id):
            self._writers.append((header.seq, header.epoch, header.writer_id))
        self.untidied.add(header.seq, header.length, header.created_us)
        changed, unsettled = list[Topic](), list[Topic]()
        self.producers.forget_idle(header.created_us)
        for operation in entry.contents.operations:
            match operation:
                case ops.Append(section=number):
                    section = entry.contents.sections[number]
                    self.producers.apply(section.topic_id, section.producers, header.created_us)
                    changed += self._add_section(
                        header.seq, header.created_us, header.sections_at, section
                    )
                case _ if isinstance(operation, ops.TopicEvent):
                    changed.append(self._change_topic(operation, unsettled))
                case ops.SegmentsReplaced():
                    self._switching.append(self._switch(operation, header.seq))
                case ops.TopicCompacted(topic_id=topic_id, base_offset=base, last_offset=last):
                    if (topic := self.find_id(topic_id)) is not None:
                        runs = with_run(topic.runs, Run(base, last, header.seq))
                        topic.runs = without_below(runs, topic.log_start_offset)
                        topic.merged_to_start += base <= topic.log_start_offset
                case ops.ObjectsCondemned(keys=keys):
                    self.stored.condemn(keys, header.created_us)
                case ops.ObjectsRemoved(keys=keys):
                    self.stored.remove(keys)
                case ops.ObjectsAdopted():
                    changed += self._adopt(operation, header.seq)
                case _ if isinstance(operation, ApiKeyEvent):
                    self.api_keys.apply(operation)
                case ops.UserSet() | ops.UserRemoved():
                    self.users.apply(operation)
                case ops.DocumentSet() | ops.DocumentRemoved():
                    self.documents.apply(operation)
                case _ if isinstance(operation, ops.TableEvent):
                    self.tables.apply(operation, header.created_us)
                case _ if isinstance(operation, ops.QueueEvent):
                    self.queues.apply(operation, header.created_us)
                case ops.RecordsDelayed():
                    self.delays.apply(operation)
                case _ if isinstance(operation, ops.GroupEvent):
                    self._change_group(operation, header)
                # The creator of a topic or a group owns it.
                case ops.AuditNoted(action="topic_created" | "topic_forked", subject=name):
                    if name in self._by_name:
                        self._by_name[name].owner = operation.actor
                case ops.AuditNoted(action="group_created", subject=name):
                    self.groups.own(name, operation.actor)
                case ops.AuditNoted() | ops.EpochStarted() | ops.DelaysPassed():
                    pass
        _settle(unsettled, self.stored)
        self.requests.apply(entry.contents.results, header.created_us)
        self.producers.make_room()
        return changed

    def steps(self) -> Iterator[None]:
        """The rest of `apply`: switch to new segments, in steps of a few milliseconds. Between the
        steps each topic has its old or its new sections: reads may run, `apply` may not."""
        while self._switching:
            yield from self._switching.popleft()

    def _change_topic(self, operation: ops.TopicEvent, unsettled: list[Topic]) -> Topic:
        """Adds to `unsettled` the topics that may have unneeded rows now."""
        if isinstance(operation, ops.TopicCreated | ops.TopicForked):
            topic = Topic(
                operation.topic_id, operation.name, operation.created_us, operation.settings
            )
            if isinstance(operation, ops.TopicForked):
                topic.log_start_offset = topic.held_offset = operation.log_start_offset
                topic.log_end_offset = topic.fork_offset = operation.fork_offset
                topic.index = IndexRows(end=operation.fork_offset)
                topic.parent = self._by_id[operation.parent_id]
            self._add_topic(topic)
            return topic
        topic = self._by_id[operation.topic_id]
        match operation:
            case ops.TopicChanged():
                topic.settings = operation.settings
            case ops.StreamSet():
                topic.stream = operation.stream
            case ops.TopicDeleted():
                unsettled.append(self._delete_topic(topic))
            case ops.TopicTrimmed():
                topic.log_start_offset = operation.log_start_offset
                topic.runs = without_below(topic.runs, topic.log_start_offset)
                unsettled.append(topic)
        return topic

    def _change_group(self, operation: ops.GroupEvent, header: EntryHeader) -> None:
        match operation:
            case ops.OffsetsCommitted() | ops.GroupReset():
                self.groups.commit(operation.group, operation.offsets, header.created_us)
            case ops.GroupDeleted():
                self.groups.delete(operation.group)
            case ops.LeaseTaken():
                self.groups.take_lease(operation, header.seq, self._monotonic_s())
            case ops.LeaseReleased():
                self.groups.release_lease(operation.group)

    def _add_topic(self, topic: Topic) -> None:
        self._by_id[topic.topic_id] = topic
        (self._held if topic.deleted else self._by_name)[topic.name] = topic
        if topic.parent is not None:
            topic.parent.forks[topic.topic_id] = topic

    def _delete_topic(self, topic: Topic) -> Topic:
        """Returns the topic that may have unneeded rows now."""
        del self._by_name[topic.name]
        topic.deleted = True
        topic.stream = None
        topic.runs = []
        self.groups.forget_topic(topic.topic_id)
        self.producers.forget_topic(topic.topic_id)
        self.queues.forget_topic(topic.topic_id)
        if topic.forks:
            self._held[topic.name] = topic
        # Without forks, a deleted topic's rows go and its name is free.
        while not topic.forks and topic.deleted:
            del self._by_id[topic.topic_id]
            if self._held.get(topic.name) is topic:
                del self._held[topic.name]
            topic.purged = True
            self.stored.release(topic.stored.drop_below(topic.stored.end))
            if topic.parent is None:
                break
            del topic.parent.forks[topic.topic_id]
            topic = topic.parent
        return topic

    def _add_section(
        self, seq: int, created_us: int, sections_at: int, section: Section
    ) -> list[Topic]:
        topic = self._by_id.get(section.topic_id)
        if topic is None:  # deleted later in the log
            return []
        assert section.base_offset == topic.log_end_offset, (section, topic.log_end_offset)
        topic.index.add(seq, sections_at, created_us, section)
        topic.log_end_offset = section.last_offset + 1
        return [topic]

    def _add_objects(
        self, objects: Iterable[ops.StoredObject], seq: int
    ) -> Iterator[tuple[int, StoredSection]]:
        """The sections of the new objects, each with its object's id."""
        for i, stored in enumerate(objects):
            object_id = ops.object_id_of(seq, i)
            self.stored.add(object_id, stored.key, stored.length)
            yield from ((object_id, section) for section in stored.sections)

    def _switch(self, switch: ops.SegmentsReplaced, seq: int) -> Iterator[None]:
        """Switch to new segments, topic by topic, without unneeded sections."""
        fresh: defaultdict[int, list[tuple[int, StoredSection]]] = defaultdict(list)
        for n, added in enumerate(self._add_objects(switch.objects, seq), 1):
            fresh[added[1].topic_id].append(added)
            if n % _SWITCHED_AT_ONCE == 0:
                yield
        for n, replaced in enumerate(switch.replaced, 1):
            self._replace(replaced, fresh.get(replaced.topic_id, ()))
            if n % _SWITCHED_AT_ONCE == 0:
                yield
        self.untidied.drop(switch.entries_until)

    def _adopt(self, adopted: ops.ObjectsAdopted, seq: int) -> list[Topic]:
        """Objects continue the logs of their topics."""
        fresh: defaultdict[int, list[tuple[int, StoredSection]]] = defaultdict(list)
        for object_id, section in self._add_objects(adopted.objects, seq):
            topic = self._by_id[section.topic_id]
            assert section.base_offset == topic.log_end_offset, (section, topic.log_end_offset)
            topic.log_end_offset = section.last_offset + 1
            self.stored.use(object_id, section.length)
            fresh[section.topic_id].append((object_id, section))
        for topic_id, sections in fresh.items():
            topic, base = self._by_id[topic_id], sections[0][1].base_offset
            assert not topic.had_entries, (topic.name, base)
            topic.stored.replace(base, topic.log_end_offset - 1, sections)
            topic.forget_entries()
        return [self._by_id[topic_id] for topic_id in fresh]

    def _replace(
        self, replaced: ops.ReplacedRange, fresh: Sequence[tuple[int, StoredSection]]
    ) -> None:
        topic = self._by_id.get(replaced.topic_id)
        if topic is None:
            return
        base, last = replaced.base_offset, replaced.last_offset
        sections = [
            item
            for item in fresh
            if base <= item[1].base_offset <= last and item[1].last_offset >= topic.held_offset
        ]
        for object_id, section in sections:
            self.stored.use(object_id, section.length)
        self.stored.release(topic.stored.replace(base, last, sections))
        topic.forget_entries()

    def _load_entries(self, loaded: LoadedState) -> None:
        for entry in loaded.entries:
            for section in entry.sections:
                topic = self._by_id.get(section.topic_id)
                if topic is not None and not topic.had_entries:
                    topic.log_end_offset = section.base_offset  # behind adopted objects
                self._add_section(entry.ref.seq, entry.created_us, entry.sections_at, section)

    def _load_stored(self, loaded: LoadedState) -> None:
        rows: defaultdict[int, list[tuple[int, StoredSection]]] = defaultdict(list)
        for object_id, section in loaded.stored:
            rows[section.topic_id].append((object_id, section))
            self.stored.use(object_id, section.length)
        for topic_id, *run in loaded.runs:
            self._by_id[topic_id].runs.append(Run(*run))
        for topic_id, sections in rows.items():
            self._by_id[topic_id].stored.replace(0, limits.OFFSET_MAX, sections)
        for topic in self._by_id.values():
            begins = topic.stored.end, topic.log_start_offset
            topic.log_end_offset = max(topic.log_end_offset, *begins)
            topic.forget_entries()


def _loaded_topic(row: TopicRow, paged: PagedRow | None, parent: Topic | None) -> Topic:
    """The topic as far as the pages of its index go."""
    begin = PagedRow(row.topic_id, row.fork_offset, 0, 0) if paged is None else paged
    return Topic(
        row.topic_id,
        row.name,
        row.created_us,
        row.settings,
        row.log_start_offset,
        begin.end_offset,
        IndexRows(end=begin.end_offset, newest_us=begin.newest_us, total_bytes=begin.total_bytes),
        deleted=row.deleted,
        held_offset=row.held_offset,
        fork_offset=row.fork_offset,
        parent=parent,
        owner=row.owner,
    )


def _settle(topics: Iterable[Topic], stored: StoredObjects) -> None:
    """Drop unneeded rows of segments, except the last one, of these topics and their ancestors.
    Rows of entries are dropped once they are merged."""
    due: dict[int, Topic] = {}
    for topic in topics:
        above: Topic | None = topic
        while above is not None:
            due[above.topic_id] = above
            above = above.parent
    # A fork is younger than its parent, whose needs follow from the fork's.
    for _, topic in sorted(due.items(), reverse=True):
        if topic.purged:
            continue
        needs = topic.needs
        topic.held_offset = held_offset(topic.read_from, needs)
        stored.release(topic.stored.drop_below(topic.held_offset))
        for hole in holes(topic.read_from, needs) if needs else ():
            stored.release(topic.stored.drop_within(*hole))
        topic.forget_entries()
