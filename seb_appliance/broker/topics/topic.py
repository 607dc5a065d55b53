"""A topic as the catalog holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from seb_appliance import limits
from seb_appliance.broker.read.index_rows import IndexRows, StoredRows
from seb_appliance.errors import TopicHeldError, TopicNotFoundError, TopicReplacedError
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.topic_settings import TopicSettings

if TYPE_CHECKING:
    from seb_appliance.broker.upkeep.stored_objects import StoredObjects

Run: TypeAlias = tuple[int, int]
"""A range in which compaction has left one record of each record key: base and last offset,
inclusive. Runs only say what to compact next."""


def with_run(runs: Iterable[Run], base_offset: int, last_offset: int) -> list[Run]:
    """`runs`, ascending and apart, with one more in the place of what lies there."""
    below, above = [], []
    for base, last in runs:
        if base < base_offset:
            below.append((base, min(last, base_offset - 1)))
        if last > last_offset:
            above.append((max(base, last_offset + 1), last))
    return [*below, (base_offset, last_offset), *above]


def without_below(runs: Iterable[Run], offset: int) -> list[Run]:
    """`runs` without those that lie wholly below `offset`."""
    return [run for run in runs if run[1] >= offset]


@dataclass(slots=True, eq=False)
class Topic:
    """A topic as of the last applied entry. `log_end_offset`: what the next record will get.
    `index`: where its newest records lie (index.py finds the others); `stored`: those in segments,
    which lie below all others. `bytes_gone`: the part of `index.total_bytes` that is merged or
    deleted; `is_measured`: whether it is up to date (`Index.measure` reads rows not in memory).
    `runs`: what compaction went over, ascending; `merged_to_start`: how often since the start it
    reached the log start, where it may leave tombstones out.

    A fork reads offsets below `fork_offset` of its `parent`; its rows begin there. `deleted`: it
    has no name any more; `purged`: nor any fork, and its rows are gone. Rows wholly below
    `held_offset` are in force no more: neither it nor a fork of it needs them."""

    topic_id: int
    name: str
    created_us: int
    settings: TopicSettings
    log_start_offset: int = 0
    log_end_offset: int = 0
    index: IndexRows = field(default_factory=IndexRows)
    stored: StoredRows = field(default_factory=StoredRows)
    bytes_gone: int = 0
    is_measured: bool = True
    runs: list[Run] = field(default_factory=list)
    merged_to_start: int = 0
    deleted: bool = False
    stream: StreamState | None = None  # of the Durable Streams protocol
    purged: bool = False
    held_offset: int = 0
    fork_offset: int = 0
    parent: Topic | None = field(default=None, repr=False)
    forks: dict[int, Topic] = field(default_factory=dict, repr=False)  # by id
    owner: str = ""  # who made it, if that is known

    @property
    def entries_begin(self) -> int:
        """The first offset of its own that lies in a journal entry."""
        return max(self.stored.end, self.held_offset, self.fork_offset)

    @property
    def needs(self) -> list[Need]:
        """What each of its forks needs of it."""
        return [(fork.held_offset, fork.fork_offset) for fork in self.forks.values()]

    @property
    def read_from(self) -> int | None:
        """Its log start offset; None: nobody reads it by its name."""
        return None if self.deleted else self.log_start_offset

    @property
    def had_entries(self) -> bool:
        """Whether a journal entry ever held records of it."""
        return self.index.end > 0

    @property
    def size_bytes(self) -> int:
        """Of all sections in force."""
        return self.stored.total_bytes + self.index.total_bytes - self.bytes_gone

    def forget_entries(self) -> None:
        """Rows of entries below `entries_begin` are in force no more."""
        begin = self.entries_begin
        self.is_measured = begin >= min(self.index.begin, self.log_end_offset)
        if begin >= self.log_end_offset:
            self.bytes_gone = self.index.total_bytes
        elif begin >= self.index.begin:
            self.bytes_gone = self.index.bytes_before[self.index.row_of(begin)]
        self.index.forget_below(begin)


def no_such_topic(name: str) -> TopicNotFoundError:
    return TopicNotFoundError(
        f"There is no topic {name!r}. Create it with PUT /v1/topics/{name}.", topic=name
    )


def topic_held(name: str) -> TopicHeldError:
    return TopicHeldError(
        f"The topic {name!r} was deleted; its name is free when its last fork is deleted, too.",
        topic=name,
    )


def check_id(name: str, topic_id: int, wanted_id: int | None) -> None:
    """`wanted_id`: of the topic that is meant; None: whichever has the name. Raises
    TopicReplacedError."""
    if wanted_id not in (None, topic_id):
        raise TopicReplacedError(
            f"Topic {name!r} has the id {topic_id}, not {wanted_id}: another one had its name.",
            topic=name,
            topic_id=topic_id,
        )


def gone(topic: Topic) -> TopicNotFoundError:
    """The answer to who asks for a deleted topic."""
    return no_such_topic(topic.name) if topic.purged else topic_held(topic.name)


# --- forks: a fork reads its parent's records below its fork offset, so the parent keeps those ---


NOTHING: Final = limits.OFFSET_MAX
"""The held offset of a topic of whose rows nobody needs any."""

Need: TypeAlias = tuple[int, int]
"""Of a fork: the first offset that it or a fork of it needs, and its fork offset. It needs of its
parent what lies between, if anything does."""


def owner_of(topic: Topic, offset: int) -> tuple[Topic, int]:
    """The topic whose rows answer for `offset` of `topic`, and up to where (exclusive) they do."""
    end = limits.OFFSET_MAX + 1
    while offset < topic.fork_offset:
        assert topic.parent is not None, topic
        end = min(end, topic.fork_offset)
        topic = topic.parent
    return topic, end


def held_offset(log_start_offset: int | None, needs: Iterable[Need]) -> int:
    """The first offset of a topic that anyone needs; NOTHING when nobody does. `log_start_offset`
    None: the topic is deleted."""
    begins = [begin for begin, end in needs if begin < end]
    if log_start_offset is not None:
        begins.append(log_start_offset)
    return min(begins, default=NOTHING)


def pinned_below(needs: Iterable[Need]) -> int:
    """What lies below this offset is some fork's, too: compaction must leave it as it is."""
    return max((end for begin, end in needs if begin < end), default=0)


def holes(log_start_offset: int | None, needs: Iterable[Need]) -> list[tuple[int, int]]:
    """Offsets (the end is exclusive) above the held offset that nobody needs, ascending."""
    wanted = sorted((begin, end) for begin, end in needs if begin < end)
    if log_start_offset is not None:
        wanted.append((log_start_offset, limits.OFFSET_MAX + 1))
        wanted.sort()
    found: list[tuple[int, int]] = []
    reached = wanted[0][1] if wanted else 0
    for begin, end in wanted[1:]:
        if begin > reached:
            found.append((reached, begin))
        reached = max(reached, end)
    if wanted and reached <= limits.OFFSET_MAX:
        found.append((reached, limits.OFFSET_MAX + 1))
    return found


def settle(topics: Iterable[Topic], stored: StoredObjects) -> None:
    """Some rows of these topics, and of those that they were forked from, may not be needed any
    more: those in segments go, but the last. Rows of entries go once they are merged."""
    due = {topic.topic_id: topic for topic in topics}
    for topic in list(due.values()):
        while topic.parent is not None:
            topic = topic.parent
            due[topic.topic_id] = topic
    # A fork is younger than its parent, whose needs follow from its own.
    for _, topic in sorted(due.items(), reverse=True):
        if topic.purged:
            continue
        needs = topic.needs
        topic.held_offset = held_offset(topic.read_from, needs)
        stored.release(topic.stored.drop_below(topic.held_offset))
        for hole in holes(topic.read_from, needs) if needs else ():
            stored.release(topic.stored.drop_within(*hole))
        topic.forget_entries()
