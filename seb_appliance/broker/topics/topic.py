"""A topic as the catalog holds it, and the index rows that say where its records lie."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import add
from typing import Final, NamedTuple, TypeAlias

from seb_appliance import limits
from seb_appliance.errors import (
    OutcomeUnknownError,
    TopicHeldError,
    TopicNotFoundError,
    TopicReplacedError,
)
from seb_appliance.formats.contents import Section
from seb_appliance.formats.durable_streams import StreamState
from seb_appliance.formats.operations import StoredSection
from seb_appliance.formats.topic_settings import TopicSettings

_COLUMNS: Final = "qqqqIqqq"
ROW_BYTES: Final = sum(array(kind).itemsize for kind in _COLUMNS)

# Of an entry: its seq, the position in the object of its first section, created_us.
EntryPlace: TypeAlias = tuple[int, int, int]


class IndexRows:
    """One row for each section of a topic, in arrays of 60 bytes a row, in offset order. A row
    covers the offsets from its base to the next row's base, the last one those up to `end`.

    The newest rows are in memory, older ones are packed into pages of SQLite. Of earlier rows
    `newest_us` (largest timestamp) and `total_bytes` are known. `starts`: first byte in the object.
    `newest_us`: the running maximum of record timestamps, which clients may send in any order;
    bisection needs it ascending. `created_us`: of the section's entry."""

    def __init__(self, *, end: int = 0, newest_us: int = 0, total_bytes: int = 0) -> None:
        self._columns: tuple[array[int], ...] = tuple(array(kind) for kind in _COLUMNS)
        self.bases, self.seqs, self.starts, self.lengths = self._columns[:4]
        self.crcs, self.newest_us, self.created_us, self.bytes_before = self._columns[4:]
        self.newest_before_us = newest_us
        self.end = end
        self.total_bytes = total_bytes

    def __len__(self) -> int:
        return len(self.bases)

    @property
    def begin(self) -> int:
        """The first offset that a row covers."""
        return self.bases[0] if self.bases else self.end

    @property
    def newest(self) -> int:
        """The largest timestamp up to the end, in µs."""
        return self.newest_us[-1] if self.newest_us else self.newest_before_us

    def add(self, seq: int, sections_at: int, created_us: int, section: Section) -> None:
        self.newest_us.append(max(self.newest, section.largest_timestamp_us))
        self.bases.append(section.base_offset)
        self.seqs.append(seq)
        self.starts.append(sections_at + section.start)
        self.lengths.append(section.length)
        self.crcs.append(section.crc)
        self.created_us.append(created_us)
        self.bytes_before.append(self.total_bytes)
        self.total_bytes += section.length
        self.end = section.last_offset + 1

    def add_all(self, entries: Sequence[EntryPlace], sections: Sequence[Section]) -> None:
        """As `add` of each (entry i has section i), in a fraction of the time."""
        lengths = [section.length for section in sections]
        largest_us = [section.largest_timestamp_us for section in sections]
        bytes_before = list(accumulate(lengths, initial=self.total_bytes))
        self.newest_us.extend(list(accumulate(largest_us, max, initial=self.newest))[1:])
        self.bases.extend([section.base_offset for section in sections])
        seqs, sections_at, created_us = zip(*entries, strict=True)
        self.seqs.extend(seqs)
        self.starts.extend(map(add, sections_at, [section.start for section in sections]))
        self.lengths.extend(lengths)
        self.crcs.extend([section.crc for section in sections])
        self.created_us.extend(created_us)
        self.total_bytes = bytes_before.pop()
        self.bytes_before.extend(bytes_before)
        self.end = sections[-1].last_offset + 1

    def forget(self, seq: int) -> None:
        """Drop the rows of entries up to and with `seq`."""
        self._forget_first(bisect_right(self.seqs, seq))

    def forget_below(self, offset: int) -> None:
        """Drop the rows that lie entirely below `offset`."""
        self._forget_first(len(self) if offset >= self.end else self.row_of(offset))

    def _forget_first(self, count: int) -> None:
        if count > 0:
            self.newest_before_us = self.newest_us[count - 1]
            for column in self._columns:
                del column[:count]

    def row_of(self, offset: int) -> int:
        """The row that covers `offset`; -1 when it is below the first."""
        return bisect_right(self.bases, offset) - 1

    def row_at_time(self, timestamp_us: int) -> int:
        """The row with the first record of that timestamp or later; len(self) if none has it."""
        return bisect_left(self.newest_us, timestamp_us)

    def end_of(self, row: int) -> int:
        """The end (exclusive) of the offsets that the row covers."""
        return self.bases[row + 1] if row + 1 < len(self.bases) else self.end

    def bytes_before_offset(self, offset: int) -> int:
        """About how many stored bytes of the topic lie before `offset`, which a row covers."""
        row = self.row_of(offset)
        base = self.bases[row]
        read = (offset - base) / (self.end_of(row) - base)
        return self.bytes_before[row] + int(self.lengths[row] * read)

    def pack(self) -> bytes:
        """All rows, column after column."""
        return b"".join(column.tobytes() for column in self._columns)

    @classmethod
    def unpack(cls, packed: bytes, *, end: int, total_bytes: int) -> IndexRows:
        """The reverse of `pack`. Raises ValueError for a wrong length."""
        count, rest = divmod(len(packed), ROW_BYTES)
        if rest or not count:
            raise ValueError(f"{len(packed)} bytes are not a whole number of index rows")
        rows = cls(end=end, total_bytes=total_bytes)
        at = 0
        for column in rows._columns:
            size = count * column.itemsize
            column.frombytes(packed[at : at + size])
            at += size
        return rows


Gone: TypeAlias = tuple[int, int]  # a removed row: the id of its object, and its bytes


class StoredRows(IndexRows):
    """The rows of sections in segments and packed objects, below all rows of entries and all in
    memory: 60 MB for a terabyte. `seqs` are the negated object ids; `bytes_before` counts from the
    first row. `end` keeps its value when the last row is dropped. Offsets that no fork needs may be
    missing between rows; they are never looked up."""

    def __init__(self, *, end: int = 0, newest_us: int = 0, total_bytes: int = 0) -> None:
        super().__init__(end=end, newest_us=newest_us, total_bytes=total_bytes)
        self.ends = array("q")

    def end_of(self, row: int) -> int:
        return self.ends[row]

    def replace(
        self, base_offset: int, last_offset: int, fresh: Sequence[tuple[int, StoredSection]]
    ) -> list[Gone]:
        """Replace the rows within base to last offset by sections, each with its object's id."""
        begin, end = bisect_left(self.bases, base_offset), bisect_right(self.bases, last_offset)
        return self._splice(begin, end, fresh)

    def drop_below(self, offset: int) -> list[Gone]:
        """Drop the rows that lie entirely below `offset`."""
        return self._splice(0, bisect_right(self.ends, offset), ())

    def drop_within(self, begin: int, end: int) -> list[Gone]:
        """Drop the rows entirely within `begin` up to `end` (exclusive), except the last row of
        all: the rows of entries begin behind it."""
        first = bisect_left(self.bases, begin)
        behind = min(bisect_right(self.ends, end), len(self) - 1)
        return self._splice(first, behind, ()) if first < behind else []

    def _splice(
        self, begin: int, end: int, fresh: Sequence[tuple[int, StoredSection]]
    ) -> list[Gone]:
        gone = [
            (-seq, length)
            for seq, length in zip(self.seqs[begin:end], self.lengths[begin:end], strict=True)
        ]
        sections = [section for _, section in fresh]
        self.bases[begin:end] = array("q", [section.base_offset for section in sections])
        self.seqs[begin:end] = array("q", [-object_id for object_id, _ in fresh])
        self.ends[begin:end] = array("q", [section.last_offset + 1 for section in sections])
        self.starts[begin:end] = array("q", [section.at for section in sections])
        self.lengths[begin:end] = array("q", [section.length for section in sections])
        self.crcs[begin:end] = array("I", [section.crc for section in sections])
        self.created_us[begin:end] = array("q", [section.created_us for section in sections])
        # If the largest timestamp was removed, later rows keep it; searches by time then look at
        # more rows than needed.
        newest = self.newest_us[begin - 1] if begin else 0
        maxima = array("q")
        for section in sections:
            newest = max(newest, section.largest_timestamp_us)
            maxima.append(newest)
        self.newest_us[begin:end] = maxima
        at = self.bytes_before[begin] if begin < len(self.bytes_before) else self.total_bytes
        *sums, at = accumulate((section.length for section in sections), initial=at)
        behind = self.bytes_before[end:]
        shift = at - (behind[0] if behind else self.total_bytes)
        self.bytes_before[begin:] = array("q", [*sums, *(before + shift for before in behind)])
        self.total_bytes += shift
        if sections:
            self.end = max(self.end, sections[-1].last_offset + 1)
        return gone


class Run(NamedTuple):
    """A compacted range: base and last offset (inclusive), and the journal entry that compacted it.
    Runs only decide what to compact next, and which files of a table to write anew."""

    base: int
    last: int
    seq: int


def with_run(runs: Iterable[Run], added: Run) -> list[Run]:
    """`runs`, ascending and disjoint, with one more, which replaces what it overlaps."""
    below, above = [], []
    for base, last, seq in runs:
        if base < added.base:
            below.append(Run(base, min(last, added.base - 1), seq))
        if last > added.last:
            above.append(Run(max(base, added.last + 1), last, seq))
    return [*below, added, *above]


def without_below(runs: Iterable[Run], offset: int) -> list[Run]:
    """`runs` without those entirely below `offset`."""
    return [run for run in runs if run.last >= offset]


@dataclass(slots=True, eq=False)
class Topic:
    """A topic as of the last applied entry. `log_end_offset`: of the next record. `index`: rows of
    its newest entries; `stored`: rows of segments, which lie below them. `bytes_gone`: the part of
    `index.total_bytes` that is merged or deleted; `is_measured`: whether that is up to date
    (`SectionIndex.measure` reads rows not in memory). `runs`: compacted ranges, ascending;
    `merged_to_start`: how often compaction reached the log start, where it may remove tombstones.

    A fork reads offsets below `fork_offset` from its `parent`; its rows begin there. `deleted`: it
    has no name any more; `purged`: nor forks, and its rows are gone. Rows entirely below
    `held_offset` are inactive: neither the topic nor a fork of it needs them."""

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
    owner: str = ""  # who made it, if known
    delayed_from: int = limits.OFFSET_MAX  # no record below it is delayed

    @property
    def entries_begin(self) -> int:
        """The first offset of its own that lies in a journal entry."""
        return max(self.stored.end, self.held_offset, self.fork_offset)

    @property
    def needs(self) -> list[Need]:
        """The needs of its forks."""
        return [(fork.held_offset, fork.fork_offset) for fork in self.forks.values()]

    @property
    def read_from(self) -> int | None:
        """Its log start offset; None when it is deleted."""
        return None if self.deleted else self.log_start_offset

    @property
    def had_entries(self) -> bool:
        """Whether a journal entry ever held records of it."""
        return self.index.end > 0

    @property
    def written_us(self) -> int | None:
        """When its newest record was stored, as far as memory tells: of a record whose row is not
        in memory, the largest timestamp of the topic. None for an empty topic."""
        if self.log_end_offset <= self.log_start_offset:
            return None
        if self.parent is not None and self.log_end_offset <= self.fork_offset:
            return self.parent.written_us
        index = self.index
        return index.created_us[-1] if index.created_us else max(index.newest, self.stored.newest)

    @property
    def size_bytes(self) -> int:
        """Of all active sections."""
        return self.stored.total_bytes + self.index.total_bytes - self.bytes_gone

    def forget_entries(self) -> None:
        """Rows of entries below `entries_begin` are inactive."""
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


def deleted_since(name: str) -> OutcomeUnknownError:
    """For a change that was stored, of a topic that was deleted in the same moment: that it is not
    there would say that nothing was done."""
    return OutcomeUnknownError(
        f"The change of topic {name} was stored, and the topic was deleted since."
    )


def topic_held(name: str) -> TopicHeldError:
    return TopicHeldError(
        f"The topic {name!r} was deleted but still has forks. Its name becomes free when its "
        "last fork is deleted.",
        topic=name,
    )


def check_id(name: str, topic_id: int, wanted_id: int | None) -> None:
    """`wanted_id` None: any id. Raises TopicReplacedError."""
    if wanted_id not in (None, topic_id):
        raise TopicReplacedError(
            f"Topic {name!r} was deleted and created again: it has the id {topic_id}, not "
            f"{wanted_id}.",
            topic=name,
            topic_id=topic_id,
        )


def gone(topic: Topic) -> TopicNotFoundError:
    """The error for a deleted topic."""
    return no_such_topic(topic.name) if topic.purged else topic_held(topic.name)


# --- forks: the parent keeps the records below their fork offsets ---

NOTHING: Final = limits.OFFSET_MAX
"""The held offset of a topic whose rows nobody needs."""

Need: TypeAlias = tuple[int, int]
"""The first offset that a fork or its forks need, and its fork offset: it needs the records of its
parent between them, if any."""


def owner_of(topic: Topic, offset: int) -> tuple[Topic, int]:
    """The topic whose rows cover `offset` of `topic`, and the end (exclusive) of their cover."""
    end = limits.OFFSET_MAX + 1
    while offset < topic.fork_offset:
        assert topic.parent is not None, topic
        end = min(end, topic.fork_offset)
        topic = topic.parent
    return topic, end


def held_offset(log_start_offset: int | None, needs: Iterable[Need]) -> int:
    """The first offset of a topic that is needed; NOTHING if none is. `log_start_offset` None: the
    topic is deleted."""
    begins = [begin for begin, end in needs if begin < end]
    if log_start_offset is not None:
        begins.append(log_start_offset)
    return min(begins, default=NOTHING)


def pinned_below(needs: Iterable[Need]) -> int:
    """Forks share records below this offset: compaction must not change them."""
    return max((end for begin, end in needs if begin < end), default=0)


def holes(log_start_offset: int | None, needs: Iterable[Need]) -> list[tuple[int, int]]:
    """Ranges (end exclusive) above the held offset that nobody needs, ascending."""
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
