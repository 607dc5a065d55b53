"""Pages of the index: where the sections of one topic lie that were stored in one stretch of the
journal.

A stretch ends with the entry that makes it long enough, wherever a transaction ends, so that the
pages follow from the journal alone. Until then its sections are known from the rows of its entries;
that is all that a start has to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, func, insert, select, update

from seb_appliance import limits
from seb_appliance.broker.index_rows import IndexRows
from seb_appliance.broker.ports import PagedRow
from seb_appliance.formats.entry import Entry
from seb_appliance.formats.operations import decode_sections
from seb_appliance.state import rows
from seb_appliance.state.digest import row_checksum
from seb_appliance.state.found import checksum_of
from seb_appliance.state.schema import index_pages, index_state, journal_entries, topics

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


def stretches(
    connection: Connection, entries: Sequence[Entry]
) -> Iterator[tuple[list[Entry], bool]]:
    """`entries` cut where a stretch of the journal ends; whether it ends with the last of them."""
    state = connection.execute(select(index_state)).one()
    paged_seq, waiting = state.paged_seq, state.waiting_sections
    stretch: list[Entry] = []
    for entry in entries:
        stretch.append(entry)
        waiting += len(entry.contents.sections)
        if is_long(entry.header.seq - paged_seq, waiting):
            yield stretch, True
            paged_seq, waiting, stretch = entry.header.seq, 0, []
    if stretch:
        yield stretch, False


def is_long(entries: int, sections: int) -> bool:
    """Whether a stretch of so many entries, and sections in them, is long enough."""
    return entries >= limits.INDEX_PAGE_ENTRIES or sections >= limits.INDEX_PAGE_SECTIONS


def project(connection: Connection, entries: Sequence[Entry], *, ends: bool) -> int:
    """`entries` were projected; with the last of them a stretch `ends`, or not. How much the file's
    checksum grows by what is written."""
    before = connection.execute(select(index_state)).one()
    sections = sum(len(entry.contents.sections) for entry in entries)
    after = before._asdict() | {"waiting_sections": before.waiting_sections + sections}
    added = 0
    if ends:
        seq = entries[-1].header.seq
        added = make_pages(connection, before.paged_seq, seq)
        after |= {"paged_seq": seq, "waiting_sections": 0}
    if after != before._asdict():
        connection.execute(update(index_state), after)
    table = index_state.name
    return added + row_checksum(table, after.values()) - row_checksum(table, before)


def make_pages(connection: Connection, after_seq: int, seq: int) -> int:
    """Write the pages of the entries behind `after_seq`, up to and with `seq`; what they add to
    the checksum."""
    pages: dict[int, IndexRows] = {
        topic_id: IndexRows()
        for topic_id in connection.execute(select(topics.c.topic_id)).scalars()
    }
    for row in last_pages(connection):
        pages[row.topic_id] = IndexRows(
            end=row.end_offset, newest_us=row.newest_us, total_bytes=row.total_bytes
        )
    columns = journal_entries.c
    query = (
        select(columns.seq, columns.created_us, columns.sections_at, columns.contents)
        .where(columns.seq > after_seq, columns.seq <= seq)
        .order_by(columns.seq)
    )
    for entry in connection.execute(query):
        for section in decode_sections(entry.contents):
            page = pages.get(section.topic_id)
            if page is not None:
                page.add(entry.seq, entry.sections_at, entry.created_us, section)
    fresh = [_of_page(topic_id, page) for topic_id, page in pages.items() if page]
    if fresh:
        connection.execute(insert(index_pages), fresh)
    return checksum_of(index_pages, (row.values() for row in fresh))


def last_pages(connection: Connection) -> list[PagedRow]:
    """What the pages of each topic that has some add up to."""
    return [PagedRow(*row) for row in connection.execute(_LAST_PAGES)]


def _of_page(topic_id: int, page: IndexRows) -> rows.Row:
    return {
        "topic_id": topic_id,
        "base_offset": page.begin,
        "end_offset": page.end,
        "newest_us": page.newest,
        "total_bytes": page.total_bytes,
        "sections": page.pack(),
    }
