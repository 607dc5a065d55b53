"""Pages of the index: where the sections of one topic lie that were stored in one stretch of the
journal.

A stretch ends with the entry that makes it long enough, wherever a transaction ends, so that the
pages follow from the journal alone. Until then its sections are known from the rows of its entries;
that is all that a start has to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from sqlalchemy import Connection, func, insert, select

from seb_appliance import limits
from seb_appliance.broker.ports import PagedRow
from seb_appliance.broker.read.index_rows import EntryPlace, IndexRows
from seb_appliance.formats.contents import Section, decode_sections
from seb_appliance.formats.entry import Entry
from seb_appliance.state import rows
from seb_appliance.state.found import checksum_of
from seb_appliance.state.schema import index_pages, journal_entries, topics

_newest: Final = index_pages.alias("newest")
_LAST_PAGES: Final = (
    select(
        index_pages.c.topic_id,
        index_pages.c.end_offset,
        index_pages.c.newest_us,
        index_pages.c.total_bytes,
    )
    .join(topics, topics.c.topic_id == index_pages.c.topic_id)
    .where(
        index_pages.c.base_offset
        == select(func.max(_newest.c.base_offset))
        .where(_newest.c.topic_id == topics.c.topic_id)
        .scalar_subquery()
    )
    .order_by(index_pages.c.topic_id)
)

# Of one topic: an entry for each section.
_Found: TypeAlias = tuple[list[EntryPlace], list[Section]]


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


def make_pages(connection: Connection, after_seq: int, seq: int) -> int:
    """Write the pages of the entries behind `after_seq`, up to and with `seq`; what they add to
    the checksum."""
    living = connection.execute(select(topics.c.topic_id)).scalars()
    found: dict[int, _Found] = {topic_id: ([], []) for topic_id in living}
    columns = journal_entries.c
    query = (
        select(columns.seq, columns.sections_at, columns.created_us, columns.contents)
        .where(columns.seq > after_seq, columns.seq <= seq)
        .order_by(columns.seq)
    )
    for *place, contents in connection.execute(query):
        entry = tuple(place)
        for section in decode_sections(contents):
            of_topic = found.get(section.topic_id)
            if of_topic is not None:
                of_topic[0].append(entry)
                of_topic[1].append(section)
    last = {row.topic_id: row for row in last_pages(connection)}
    fresh = [
        _page(topic_id, last.get(topic_id, PagedRow(topic_id, 0, 0, 0)), *of_topic)
        for topic_id, of_topic in found.items()
        if of_topic[0]
    ]
    if fresh:
        connection.execute(insert(index_pages), fresh)
    return checksum_of(index_pages, (row.values() for row in fresh))


def last_pages(connection: Connection) -> list[PagedRow]:
    """What the pages of each topic that has some add up to."""
    return [PagedRow(*row) for row in connection.execute(_LAST_PAGES)]


def _page(
    topic_id: int, before: PagedRow, entries: list[EntryPlace], sections: list[Section]
) -> rows.Row:
    """The page of these sections, which follow what is paged of the topic."""
    page = IndexRows(
        end=before.end_offset, newest_us=before.newest_us, total_bytes=before.total_bytes
    )
    page.add_all(entries, sections)
    return {
        "topic_id": topic_id,
        "base_offset": page.begin,
        "end_offset": page.end,
        "newest_us": page.newest,
        "total_bytes": page.total_bytes,
        "sections": page.pack(),
    }
