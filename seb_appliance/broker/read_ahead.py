"""Reading ahead: sections are fetched before they are asked for, for a reader that goes through old
records one after another.

A reader is known only by where it stops: whoever begins there next goes on. Nothing is fetched for
one who reads what is in memory anyway, or jumps about.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, TypeAlias

from seb_appliance.broker.catalog import Catalog
from seb_appliance.broker.index import SectionIndex
from seb_appliance.broker.sections import SectionReader
from seb_appliance.broker.topic import Topic
from seb_appliance.clock import Clock

# Bytes ahead of one reader: doubled with each read, and never more than all together may have, so
# that what is fetched is still there when it is wanted.
DEPTH_BYTES_FIRST: Final = 256 * 1024
DEPTH_BYTES_MAX: Final = 4 * 1024 * 1024
AHEAD_BYTES_MAX: Final = 8 * 1024 * 1024
SECTIONS_MAX: Final = 64  # ahead of one reader, however small they are
READERS_MAX: Final = 64
FORGOTTEN_AFTER_S: Final = 10.0

_Place: TypeAlias = tuple[int, int]  # topic id, the offset where a reader goes on


class ReadAhead:
    def __init__(
        self, catalog: Catalog, index: SectionIndex, sections: SectionReader, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._index = index
        self._sections = sections
        self._clock = clock
        # How deep to read ahead of each reader, and when it was here, longest ago first.
        self._readers: OrderedDict[_Place, tuple[int, float]] = OrderedDict()

    def moved(self, topic: Topic, offset: int, next_offset: int) -> None:
        """A read of old records, from `offset` on, stopped at `next_offset`."""
        known = self._readers.pop((topic.topic_id, offset), None)
        if next_offset == offset:
            return
        depth_bytes = DEPTH_BYTES_FIRST if known is None else min(2 * known[0], DEPTH_BYTES_MAX)
        now_s = self._clock.monotonic_s()
        self._forget(now_s)
        self._readers[topic.topic_id, next_offset] = (depth_bytes, now_s)
        if known is not None:
            fair_bytes = min(depth_bytes, AHEAD_BYTES_MAX // len(self._readers))
            self.fetch(topic, next_offset, topic.log_end_offset, fair_bytes)

    def fetch(self, topic: Topic, offset: int, end: int, size_bytes: int) -> None:
        """Begin to fetch the sections from `offset` up to `end` that begin in the first
        `size_bytes`, as far as the index tells without I/O where they are."""
        for _ in range(SECTIONS_MAX):
            if offset >= end or size_bytes <= 0:
                return
            found = self._index.at_hand(topic, offset)
            if found is None:
                return
            owner, rows, behind = found
            ref = self._catalog.section_ref(owner, rows, rows.row_of(offset))
            if not self._sections.fetch_ahead(ref):
                return
            size_bytes -= ref.length
            offset = min(ref.last_offset + 1, behind)

    def _forget(self, now_s: float) -> None:
        """Drop those who came no more, and the longest gone of too many."""
        while self._readers:
            place, (_, at_s) = next(iter(self._readers.items()))
            if now_s - at_s < FORGOTTEN_AFTER_S and len(self._readers) < READERS_MAX:
                return
            del self._readers[place]
