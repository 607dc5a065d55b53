"""A topic as the catalog holds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from seb_appliance.broker.compacted_runs import Run
from seb_appliance.broker.index_rows import IndexRows
from seb_appliance.broker.lineage import Need
from seb_appliance.broker.stored_rows import StoredRows
from seb_appliance.errors import TopicHeldError, TopicNotFoundError, TopicReplacedError
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.operations import TopicSettings


@dataclass(slots=True, eq=False)
class Topic:
    """A topic as of the last applied entry. `log_end_offset`: what the next record will get.
    `index`: where its newest records lie (index.py finds the others); `stored`: those in segments,
    which lie below all others. `bytes_gone`: of `index.total_bytes`, those in force no more.
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
    runs: list[Run] = field(default_factory=list)
    merged_to_start: int = 0
    deleted: bool = False
    stream: StreamState | None = None  # of the Durable Streams protocol
    purged: bool = False
    held_offset: int = 0
    fork_offset: int = 0
    parent: Topic | None = field(default=None, repr=False)
    forks: dict[int, Topic] = field(default_factory=dict, repr=False)  # by id

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
