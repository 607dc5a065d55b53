"""Pages of the index: where the sections of one topic lie that were stored in one stretch of the
journal.

A stretch ends with the entry that makes it long enough, wherever a transaction ends, so that the
pages follow from the journal alone. Until then its sections are known from the rows of its entries.
A start loads only these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.ports import PagedRow
from seb_appliance.broker.topics.topic import EntryPlace, IndexRows
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.contents import Section, decode_sections
from seb_appliance.formats.entry import Entry
from seb_appliance.state.rows.reading import RowReader
from seb_appliance.state.tables import Row, Tables

LAST_PAGES: Final = """
SELECT topic_id, end_offset, newest_us, total_bytes FROM index_pages JOIN topics USING (topic_id)
WHERE base_offset = (
    SELECT max(newest.base_offset) FROM index_pages AS newest
    WHERE newest.topic_id = topics.topic_id
)
ORDER BY topic_id
"""
"""What the pages of each topic that has some add up to: a `PagedRow` each."""

_ENTRIES: Final = """
SELECT seq, sections_at, created_us, contents FROM journal_entries
WHERE seq > :after_seq AND seq <= :seq ORDER BY seq
"""
_PAGE: Final = "SELECT end_offset, total_bytes, sections FROM index_pages WHERE topic_id = ?"
_OF_OFFSET: Final = f"{_PAGE} AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1"
_AT_TIME: Final = f"{_PAGE} AND newest_us >= ? ORDER BY newest_us, base_offset LIMIT 1"


def stretches(
    entries: Sequence[Entry], paged_seq: int, waiting_sections: int
) -> Iterator[tuple[list[Entry], bool]]:
    """`entries` cut where a stretch of the journal ends; whether it ends with the last of them.
    They follow those `waiting_sections` sections that were stored behind entry `paged_seq`."""
    stretch: list[Entry] = []
    for entry in entries:
        stretch.append(entry)
        waiting_sections += len(entry.contents.sections)
        if is_long(entry.header.seq - paged_seq, waiting_sections):
            yield stretch, True
            paged_seq, waiting_sections, stretch = entry.header.seq, 0, []
    if stretch:
        yield stretch, False


def is_long(entries: int, sections: int) -> bool:
    """Whether a stretch of so many entries, and sections in them, is long enough."""
    return entries >= limits.INDEX_PAGE_ENTRIES or sections >= limits.INDEX_PAGE_SECTIONS


def make_pages(tables: Tables, after_seq: int, seq: int) -> None:
    """Write the pages of the entries behind `after_seq`, up to and with `seq`."""
    found: dict[int, tuple[list[EntryPlace], list[Section]]] = {
        topic_id: ([], []) for (topic_id,) in tables.rows("SELECT topic_id FROM topics")
    }
    for *place, contents in tables.each(_ENTRIES, after_seq=after_seq, seq=seq):
        entry = tuple(place)
        for section in decode_sections(contents):
            of_topic = found.get(section.topic_id)
            if of_topic is not None:
                of_topic[0].append(entry)
                of_topic[1].append(section)
    last = {row[0]: PagedRow(*row) for row in tables.rows(LAST_PAGES)}
    fresh = (
        _page(last.get(topic_id, PagedRow(topic_id, 0, 0, 0)), *of_topic)
        for topic_id, of_topic in found.items()
        if of_topic[0]
    )
    tables.insert("index_pages", fresh)


def _page(before: PagedRow, entries: list[EntryPlace], sections: list[Section]) -> Row:
    """The page of these sections, which follow what is paged of the topic."""
    page = IndexRows(
        end=before.end_offset, newest_us=before.newest_us, total_bytes=before.total_bytes
    )
    page.add_all(entries, sections)
    return (before.topic_id, page.begin, page.end, page.newest, page.total_bytes, page.pack())


class PageReader(RowReader):
    def __init__(self, path: Path) -> None:
        super().__init__(path, "index")

    async def of_offset(self, topic_id: int, offset: int) -> IndexRows | None:
        """The page that answers for `offset`. Raises CorruptObjectError, ConfigurationError."""
        page = await self._run(self._find, _OF_OFFSET, topic_id, offset)
        return page if page is not None and offset < page.end else None

    async def at_time(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        """The first page with a record of that timestamp or later."""
        return await self._run(self._find, _AT_TIME, topic_id, timestamp_us)

    def _find(self, query: str, *parameters: int) -> IndexRows | None:
        for end_offset, total_bytes, sections in self._fetch(query, *parameters):
            try:
                return IndexRows.unpack(sections, end=end_offset, total_bytes=total_bytes)
            except ValueError as error:
                raise CorruptObjectError(f"a page of the local index: {error}") from error
        return None
