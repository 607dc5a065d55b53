"""Finding the row of an offset or of a time: of a segment, or of the entries that are not tidied.

Rows of segments and the newest rows of entries are in memory. SQLite holds the older ones in pages,
each of those sections of one topic that were stored in one stretch of the journal. A lookup takes
one page, whatever the length of the log, and pages looked up lately stay in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from seb_appliance.broker.counters import Counters
from seb_appliance.broker.read.index_rows import IndexRows
from seb_appliance.broker.topics.topic import gone, owner_of
from seb_appliance.errors import CorruptObjectError, TopicNotFoundError

if TYPE_CHECKING:
    from seb_appliance.broker.ports import State
    from seb_appliance.broker.topics.topic import Topic

KEPT_ROWS_MAX: Final = 65_536  # 4 MB

_Place: TypeAlias = tuple[int, int]  # topic id, first offset


class Stretch(NamedTuple):
    """Rows of `owner`, the topic itself or one that it was forked from, which answer for the topic
    up to the offset `end` (exclusive), and for others perhaps further."""

    owner: Topic
    rows: IndexRows
    end: int


class SectionIndex:
    """The rows of all topics: `Topic.index` and, for what was dropped from it, pages of `state`."""

    def __init__(self, state: State, counters: Counters) -> None:
        self._state = state
        self._counters = counters
        self._kept: OrderedDict[_Place, IndexRows] = OrderedDict()
        self._begins: dict[int, list[int]] = {}  # of the kept pages, ascending, by topic id
        self._kept_rows = 0

    def cached(self, topic: Topic, offset: int) -> Stretch | None:
        """As `rows_of`, if that takes no I/O."""
        owner, end = owner_of(topic, offset)
        rows = self._own_cached(owner, offset)
        return None if rows is None else Stretch(owner, rows, end)

    async def rows_of(self, topic: Topic, offset: int) -> Stretch:
        """Rows, one of which answers for `offset`: from the log start up to before the log end.
        They are good until the caller waits for something. Raises TopicNotFoundError when the
        topic was deleted meanwhile, CorruptObjectError."""
        _require_rows(topic)
        owner, end = owner_of(topic, offset)
        return Stretch(owner, await self.own_rows_of(owner, offset), end)

    async def own_rows_of(self, topic: Topic, offset: int) -> IndexRows:
        """As `rows_of`, of an offset that no other topic's rows answer for."""
        rows = self._own_cached(topic, offset)
        if rows is None:
            page = await self._state.index_page(topic.topic_id, offset)
            if page is None and topic.stored.begin <= offset < topic.stored.end:
                return topic.stored  # merged meanwhile
            rows = self._keep(topic, page)
        return rows

    def _own_cached(self, topic: Topic, offset: int) -> IndexRows | None:
        if offset < topic.stored.end:
            return topic.stored
        if offset >= topic.index.begin:
            return topic.index
        begins = self._begins.get(topic.topic_id, ())
        i = bisect_right(begins, offset) - 1
        if i < 0:
            return None
        place = (topic.topic_id, begins[i])
        page = self._kept[place]
        if offset >= page.end:
            return None
        self._kept.move_to_end(place)
        return page

    async def offset_of_time(self, topic: Topic, timestamp_us: int) -> int:
        """An offset, perhaps before the first record of that timestamp or later, and as near as the
        rows tell (what is gone may have had a larger one); the log end if no record has. Raises
        as `rows_of`."""
        offset = topic.log_start_offset
        while True:
            owner, end = owner_of(topic, offset)
            found = max(offset, await self._own_offset_of_time(owner, timestamp_us))
            if owner is topic or found < end:
                return found
            offset = end

    async def _own_offset_of_time(self, topic: Topic, timestamp_us: int) -> int:
        stored, newest, end = topic.stored, topic.index, topic.log_end_offset
        begin = -1
        while begin != topic.entries_begin:  # else pages may be gone, and a later one was found
            if len(stored) and stored.newest >= timestamp_us:
                return stored.bases[stored.row_at_time(timestamp_us)]
            begin, rows = topic.entries_begin, newest
            if newest.begin > begin and newest.newest_before_us >= timestamp_us:
                page = await self._state.index_page_at(topic.topic_id, timestamp_us)
                rows = self._keep(topic, page)
        row = rows.row_at_time(timestamp_us)
        return max(rows.bases[row] if row < len(rows) else min(rows.end, end), begin)

    async def bytes_from(self, topic: Topic, offset: int) -> int:
        """About how many bytes are stored from `offset` on, which is in the log, what a fork shares
        with others included. Raises as `rows_of`."""
        _require_rows(topic)
        size_bytes = 0
        while True:
            owner, end = owner_of(topic, offset)
            size_bytes += await self._own_bytes_from(owner, offset)
            if owner is topic:
                return size_bytes
            size_bytes -= await self._own_bytes_from(owner, end)
            offset = end

    async def _own_bytes_from(self, topic: Topic, offset: int) -> int:
        if offset >= topic.log_end_offset:
            return 0
        if offset < topic.stored.end:
            return topic.size_bytes - topic.stored.bytes_before_offset(offset)
        rows = await self.own_rows_of(topic, offset)
        return topic.index.total_bytes - rows.bytes_before_offset(offset)

    async def measure(self, topic: Topic) -> None:
        """Update `topic.bytes_gone` from the index pages, for rows that are not in memory."""
        while (begin := topic.entries_begin) < topic.log_end_offset and not topic.purged:
            try:
                rows = await self.own_rows_of(topic, begin)
            except (CorruptObjectError, TopicNotFoundError):
                if begin == topic.entries_begin and not topic.purged:
                    raise
                continue  # trimmed or deleted meanwhile
            if begin == topic.entries_begin:
                topic.bytes_gone = rows.bytes_before[rows.row_of(begin)]
                topic.is_measured = True
                return

    def _keep(self, topic: Topic, page: IndexRows | None) -> IndexRows:
        self._counters.index_lookups += 1
        _require_rows(topic)
        if page is None:
            raise CorruptObjectError(f"the local index of topic {topic.name!r} has a hole")
        place = (topic.topic_id, page.begin)
        if place not in self._kept:
            self._kept[place] = page
            insort(self._begins.setdefault(topic.topic_id, []), page.begin)
            self._kept_rows += len(page)
            while self._kept_rows > KEPT_ROWS_MAX and len(self._kept) > 1:
                self._drop(*self._kept.popitem(last=False))
        return page

    def _drop(self, place: _Place, page: IndexRows) -> None:
        topic_id, begin = place
        self._kept_rows -= len(page)
        begins = self._begins[topic_id]
        del begins[bisect_left(begins, begin)]
        if not begins:
            del self._begins[topic_id]


def _require_rows(topic: Topic) -> None:
    """A deleted topic has none, in whichever arrays they were. Raises TopicNotFoundError."""
    if topic.purged:
        raise gone(topic)
