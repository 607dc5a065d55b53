"""Decides every write to a topic, in arrival order; offsets are assigned here (`place`).

Decisions rest on one view *ahead* of the catalog: what is stored, in flight, and in the open
window. What was admitted is never withdrawn, so it can fail only by fencing, and everything behind
it fails too. A refusal that rests on something not stored yet says so (`Refusal.after`) and is
answered once that window is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from seb_appliance import limits
from seb_appliance.broker.append.window import Placeable, Window
from seb_appliance.broker.delays.delaying import still_to_come
from seb_appliance.broker.shares import OPERATOR, AllShares
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.broker.topics.topic import Run, no_such_topic, topic_held, with_run
from seb_appliance.broker.values import (
    RECORD_OVERHEAD_BYTES,
    NewBatches,
    NewRecords,
    Prepared,
    prepare,
)
from seb_appliance.errors import (
    ForkRefusedError,
    NameHeldError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    RefusedError,
    SebError,
    StreamClosedError,
    TopicDiffersError,
)
from seb_appliance.formats.compression import Compressor, compressor_of
from seb_appliance.formats.contents import Produced, encoded_bytes
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.operations import (
    StreamSet,
    TopicChanged,
    TopicCompacted,
    TopicCreated,
    TopicDeleted,
    TopicForked,
    TopicTrimmed,
)
from seb_appliance.formats.topic_settings import TopicSettings


class Refusal(Exception):  # noqa: N818 - not an error of its own: it carries one
    """`error` is the answer; when `after` is given, only once that window is stored."""

    def __init__(self, error: SebError, after: Window | None) -> None:
        super().__init__(error)
        self.error = error
        self.after = after if after is not None and not after.is_done else None


@dataclass(frozen=True, slots=True)
class Fork:
    """Of what, under which name, and where. `depth`: how many topics there are above."""

    parent: AdmittedTopic
    name: str
    offset: int
    depth: int


@dataclass(slots=True, eq=False)
class AdmittedTopic:
    """A topic as it will be once everything admitted so far is stored."""

    topic_id: int
    settings: TopicSettings  # as set
    effective: TopicSettings  # with the defaults filled in
    next_offset: int
    log_start_offset: int = 0
    stream: StreamState | None = None
    owner: str = OPERATOR  # whose share it takes
    changed_in: Window | None = None  # the window that creates or last changes it
    appended_in: Window | None = None  # the window of its newest records
    fork: Fork | None = None  # what it was forked from, if it was
    forks: int = 0  # that there are of it
    forked_in: Window | None = None  # the window of the newest of them
    runs: list[Run] = field(default_factory=list)  # what compaction has gone over
    compacted_in: Window | None = None  # the window of the newest of these runs
    compressor: Compressor | None = field(init=False)  # of what it gets from now on

    def __post_init__(self) -> None:
        self.compressor = compressor_of(self.effective)

    @property
    def is_appended_to(self) -> bool:
        """Whether records of it are on their way."""
        return self.appended_in is not None and not self.appended_in.is_done

    @property
    def is_closed(self) -> bool:
        """A closed one of Durable Streams takes no records."""
        return self.stream is not None and self.stream.closed


class Admission:
    """The view ahead of the catalog. Each `admit_…` either adds to the window and changes the view,
    or raises `Refusal` and changes nothing."""

    def __init__(
        self,
        catalog: Catalog,
        next_topic_id: int,
        effective: Callable[[TopicSettings], TopicSettings],
        log_time_us: Callable[[], int],
        shares: AllShares,
    ) -> None:
        """`effective` fills in the defaults of a topic's settings. `log_time_us`: the time on the
        log's clock."""
        self.effective = effective
        remedy = "Delete topics that nobody needs."
        self._shares = shares.declare("topics", limits.TOPICS_MAX, "topics", remedy)
        self._topics: dict[str, AdmittedTopic] = {}
        self._living: set[int] = set()  # their ids
        self._held: dict[str, AdmittedTopic] = {}  # deleted, with forks
        self._load(catalog)
        self._deleted_in: dict[str, Window] = {}
        self._next_topic_id = next_topic_id
        self._last_timestamp_us = catalog.position.created_us
        self._log_time_us = log_time_us

    def _load(self, catalog: Catalog) -> None:
        by_id: dict[int, AdmittedTopic] = {}
        for topic in catalog.with_rows():
            known = by_id[topic.topic_id] = AdmittedTopic(
                topic.topic_id,
                topic.settings,
                self.effective(topic.settings),
                topic.log_end_offset,
                topic.log_start_offset,
                topic.stream,
                topic.owner,
            )
            self._shares.take_anyway(topic.owner, 1)
            known.runs = list(topic.runs)
            if topic.deleted:  # its runs are not kept, and its cleanup may have been another before
                known.runs = [Run(topic.held_offset, limits.OFFSET_MAX, 0)]
            if topic.parent is not None:
                parent = by_id[topic.parent.topic_id]
                known.fork = _fork_of(parent, topic.parent.name, topic.fork_offset)
                parent.forks += 1
            if topic.deleted:
                self._held[topic.name] = known
            else:
                self._topics[topic.name] = known
                self._living.add(topic.topic_id)

    def find(self, name: str) -> AdmittedTopic | None:
        return self._topics.get(name)

    def lives(self, topic_id: int) -> bool:
        """Whether this topic is there, and was not deleted."""
        return topic_id in self._living

    def is_held(self, name: str) -> bool:
        """Whether the topic is deleted, and has forks."""
        return name in self._held

    def names(self) -> dict[int, str]:
        """The names of all topics, by id."""
        return {topic.topic_id: name for name, topic in self._topics.items()}

    def changed_in(self, name: str) -> Window | None:
        """The window that makes or last changes the topic; None when that was long ago."""
        topic = self._topics.get(name)
        return topic.changed_in if topic is not None else None

    def deleted_in(self, name: str) -> Window | None:
        """The window that deletes the topic; None when that was long ago."""
        return self._deleted_in.get(name)

    def missing(self, name: str) -> Refusal:
        """The refusal for a topic that is not there, or will not be."""
        error = topic_held(name) if name in self._held else no_such_topic(name)
        return Refusal(error, self.deleted_in(name))

    def closed(self, name: str) -> Refusal:
        """The refusal for records to a stream that is closed, or will be."""
        topic = self._topics[name]
        error = StreamClosedError(
            f"The stream {name!r} is closed and accepts no more records.",
            log_end_offset=topic.next_offset,
        )
        return Refusal(error, topic.changed_in)

    # --- records ---

    def prepare(
        self, records: NewRecords | NewBatches, effective: TopicSettings, now_us: int
    ) -> Prepared:
        """Check records and give them timestamps, but no offsets yet. Raises Refusal."""
        assert effective.max_record_bytes is not None
        try:
            delays = still_to_come(records, effective, now_us) if records.delayed else ()
            made = prepare(records, effective.max_record_bytes, self._timestamp_us(now_us), now_us)
            return replace(made, delays=delays) if delays else made
        except RefusedError as error:
            raise Refusal(error, None) from None

    def _timestamp_us(self, now_us: int) -> int:
        """The appliance's own record timestamps do not go back with the clock; but a clock that was
        ahead, and was set right, is followed."""
        if now_us >= self._last_timestamp_us:
            self._last_timestamp_us = now_us
        else:
            right_us = max(now_us, self._log_time_us())
            if right_us < self._last_timestamp_us - limits.CLOCK_JUMP_US_MAX:
                self._last_timestamp_us = right_us
        return self._last_timestamp_us

    def check_room_for(self, missing_topics: int, owner: str) -> None:
        """Raises Refusal if this number of new topics would exceed the limit of all topics or of
        this owner's."""
        if not missing_topics:
            return
        try:
            self._shares.check(owner, missing_topics)
        except SebError as error:
            raise Refusal(error, None) from None

    def check_free(self, name: str, owner: str) -> None:
        """A topic that is not there can be made under this name. Raises Refusal."""
        if name in self._held:
            error = NameHeldError(
                f"The name {name!r} belongs to a deleted topic that still has forks. It becomes "
                "free when its last fork is deleted.",
                topic=name,
            )
            raise Refusal(error, self.deleted_in(name))
        self.check_room_for(1, owner)

    def place(
        self, window: Window, name: str, prepared: Placeable, now_us: int, owner: str = OPERATOR
    ) -> Produced:
        """Give prepared records their offsets; a missing topic is created before them in the
        window. Never refuses: all checks were made."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._create(window, name, TopicSettings(), now_us, owner)
        offset = topic.next_offset
        window.add_records(topic.topic_id, offset, topic.compressor, prepared)
        topic.next_offset += prepared.count
        topic.appended_in = window
        return Produced(topic.topic_id, offset, prepared.count, prepared.timestamp_us)

    def place_value(
        self, window: Window, topic: AdmittedTopic, value: bytes, now_us: int
    ) -> Produced:
        """`prepare` and `place` in one step, for the hot path: one record with neither record key
        nor headers, no longer than the topic allows."""
        timestamp_us = self._timestamp_us(now_us)
        offset = topic.next_offset
        size_bytes = len(value) + RECORD_OVERHEAD_BYTES
        window.add_value(topic.topic_id, offset, topic.compressor, value, timestamp_us, size_bytes)
        topic.next_offset = offset + 1
        topic.appended_in = window
        return Produced(topic.topic_id, offset, 1, timestamp_us)

    # --- topics ---

    def admit_topic_created(
        self, window: Window, name: str, settings: TopicSettings, now_us: int, owner: str = OPERATOR
    ) -> bool:
        """Whether the topic is made now; False when an equal one is there, perhaps not yet stored
        (`find(name).changed_in`)."""
        found = self._topics.get(name)
        if found is not None:
            if found.settings != settings:
                error = TopicDiffersError(
                    f"Topic {name!r} exists with other settings; change them with "
                    f"PATCH /v1/topics/{name}.",
                    topic=name,
                )
                raise Refusal(error, found.changed_in)
            return False
        self.check_free(name, owner)
        self._create(window, name, settings, now_us, owner)
        return True

    def _create(
        self, window: Window, name: str, settings: TopicSettings, now_us: int, owner: str
    ) -> AdmittedTopic:
        topic = self._add(window, name, settings, 0, owner)
        window.add_event(
            TopicCreated(topic_id=topic.topic_id, name=name, created_us=now_us, settings=settings)
        )
        return topic

    def _add(
        self, window: Window, name: str, settings: TopicSettings, next_offset: int, owner: str
    ) -> AdmittedTopic:
        topic = self._topics[name] = AdmittedTopic(
            self._next_topic_id,
            settings,
            self.effective(settings),
            next_offset,
            owner=owner,
            changed_in=window,
        )
        self._shares.take_anyway(owner, 1)
        self._living.add(topic.topic_id)
        self._next_topic_id += 1
        self._deleted_in.pop(name, None)
        return topic

    def admit_topic_forked(
        self,
        window: Window,
        name: str,
        parent_name: str,
        offset: int | None,
        settings: TopicSettings | None,
        now_us: int,
        owner: str = OPERATOR,
    ) -> bool:
        """As `admit_topic_created`, of a fork. `offset` None: the parent's log end, `settings`
        None: its settings; where a fork is there already, None is whatever it has."""
        found = self._topics.get(name)
        if found is not None:
            is_same = found.fork is not None and (
                found.fork.name == parent_name
                and offset in (None, found.fork.offset)
                and settings in (None, found.settings)
            )
            if not is_same:
                error = TopicDiffersError(
                    f"Topic {name!r} exists and is not this fork of {parent_name!r}.", topic=name
                )
                raise Refusal(error, found.changed_in)
            return False
        parent = self._topics.get(parent_name)
        if parent is None:
            raise self.missing(parent_name)
        self.check_free(name, owner)
        offset = parent.next_offset if offset is None else offset
        self._check_forkable(parent, parent_name, offset)
        as_set = parent.settings if settings is None else settings
        topic = self._add(window, name, as_set, offset, owner)
        topic.log_start_offset = parent.log_start_offset
        topic.fork = _fork_of(parent, parent_name, offset)
        parent.forks += 1
        parent.forked_in = window
        window.add_event(
            TopicForked(
                topic_id=topic.topic_id,
                name=name,
                created_us=now_us,
                settings=as_set,
                parent_id=parent.topic_id,
                fork_offset=offset,
                log_start_offset=parent.log_start_offset,
            )
        )
        return True

    def _check_forkable(self, parent: AdmittedTopic, name: str, offset: int) -> None:
        error: RefusedError | None = None
        after = parent.changed_in
        if offset > parent.next_offset:
            after = parent.appended_in
            error = OffsetOutOfRangeError(
                f"Offset {offset} is beyond the log end {parent.next_offset} of {name!r}.",
                log_end_offset=parent.next_offset,
            )
        elif offset < parent.log_start_offset:
            error = OffsetExpiredError(
                f"Offset {offset} is gone; the log of {name!r} starts at "
                f"{parent.log_start_offset}.",
                log_start_offset=parent.log_start_offset,
            )
        elif run := _run_around(parent, offset):
            after = _owner_of(parent, offset).compacted_in
            error = ForkRefusedError(
                f"The records of {name!r} from {run[0]} to {run[1]} are compacted: a fork at "
                f"{offset} would lack records that were the newest of their record key at that "
                f"offset. Fork it at {run[1] + 1} or later, or at {run[0]} or earlier.",
                base_offset=run[0],
                next_offset=run[1] + 1,
            )
        elif parent.fork is not None and parent.fork.depth >= limits.FORK_DEPTH_MAX:
            error = ForkRefusedError(
                f"Topic {name!r} is already a fork of a fork, {limits.FORK_DEPTH_MAX} levels "
                "deep, which is the limit.",
                limit=limits.FORK_DEPTH_MAX,
            )
        elif parent.forks >= limits.FORKS_PER_TOPIC_MAX:
            after = parent.forked_in
            error = ForkRefusedError(
                f"Topic {name!r} already has {limits.FORKS_PER_TOPIC_MAX} forks.",
                limit=limits.FORKS_PER_TOPIC_MAX,
            )
        if error is not None:
            raise Refusal(error, after)

    def admit_topic_changed(self, window: Window, name: str, settings: TopicSettings) -> None:
        topic = self._topics[name]  # who changes it has just looked at it
        topic.settings = settings
        topic.effective = self.effective(settings)
        topic.compressor = compressor_of(topic.effective)
        topic.changed_in = window
        window.add_event(TopicChanged(topic_id=topic.topic_id, settings=settings))

    def admit_stream_set(self, window: Window, name: str, stream: StreamState) -> None:
        """The topic is there."""
        topic = self._topics[name]
        topic.stream = stream
        topic.changed_in = window
        event = StreamSet(topic_id=topic.topic_id, stream=stream)
        window.add_event(event, encoded_bytes(event))

    def admit_topic_compacted(self, window: Window, name: str, event: TopicCompacted) -> None:
        """The topic may be deleted, or created again under its name."""
        topic = self._topics.get(name)
        if topic is not None and topic.topic_id == event.topic_id:
            added = Run(event.base_offset, event.last_offset, 0)  # its entry is not sealed yet
            topic.runs = with_run(topic.runs, added)
            topic.compacted_in = window
        window.add_event(event)

    def admit_topic_trimmed(self, window: Window, name: str, before: int) -> bool:
        """Whether the log start offset moves now; False when it is there already, perhaps not yet
        stored (`find(name).changed_in`)."""
        topic = self._topics.get(name)
        if topic is None:
            raise self.missing(name)
        if before > topic.next_offset:
            error = OffsetOutOfRangeError(
                f"Offset {before} is beyond the log end {topic.next_offset} of {name!r}.",
                log_end_offset=topic.next_offset,
            )
            raise Refusal(error, topic.appended_in)
        if before <= topic.log_start_offset:
            return False
        topic.log_start_offset = before
        topic.changed_in = window
        window.add_event(TopicTrimmed(topic_id=topic.topic_id, log_start_offset=before))
        return True

    def admit_topic_deleted(self, window: Window, name: str) -> None:
        topic = self._topics.get(name)
        if topic is None:
            raise self.missing(name)
        del self._topics[name]
        self._living.discard(topic.topic_id)
        self._deleted_in = {
            gone: within for gone, within in self._deleted_in.items() if not within.is_done
        }
        self._deleted_in[name] = window
        if topic.forks:
            self._held[name] = topic
        else:
            self._shares.give_back(topic.owner, 1)
        self._free_parents(topic, window)
        window.add_event(TopicDeleted(topic_id=topic.topic_id))

    def _free_parents(self, topic: AdmittedTopic, window: Window) -> None:
        """A topic goes in this window; deleted ones above it go with the last of their forks."""
        while topic.forks == 0 and topic.fork is not None:
            name, topic = topic.fork.name, topic.fork.parent
            topic.forks -= 1
            if self._held.get(name) is not topic or topic.forks:
                return
            del self._held[name]
            self._shares.give_back(topic.owner, 1)
            self._deleted_in[name] = window


def _owner_of(topic: AdmittedTopic, offset: int) -> AdmittedTopic:
    """The topic whose compaction decides what a fork of `topic` at `offset` has."""
    while topic.fork is not None and offset < topic.fork.offset:
        topic = topic.fork.parent
    return topic


def _run_around(topic: AdmittedTopic, offset: int) -> Run | None:
    """The run that would be cut in two at `offset`."""
    if offset == topic.log_start_offset:  # nothing lies below it
        return None
    runs = _owner_of(topic, offset).runs
    return next((run for run in runs if run[0] < offset <= run[1]), None)


def _fork_of(parent: AdmittedTopic, name: str, offset: int) -> Fork:
    depth = 1 if parent.fork is None else parent.fork.depth + 1
    return Fork(parent, name, offset, depth)
