"""What is read from the tables: the position, and everything for the broker's memory."""

from __future__ import annotations

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from seb_appliance.broker.ports import (
    EntryRow,
    GarbageRow,
    GroupOffsetRow,
    LeaseRow,
    LoadedState,
    ObjectRow,
    WriterRow,
)
from seb_appliance.errors import BadBatchError, CorruptObjectError
from seb_appliance.formats.contents import decode_sections
from seb_appliance.formats.entry import Position
from seb_appliance.state import index_pages, retries, rows
from seb_appliance.state.schema import (
    api_keys,
    compacted_runs,
    garbage,
    group_offsets,
    group_owners,
    journal_entries,
    journal_state,
    leases,
    producers,
    requests,
    stored_objects,
    stored_sections,
    streams,
    tidy_state,
    topics,
    users,
    writers,
)

_ENTRIES_AT_ONCE = 500  # the event loop gets a turn between


async def read_position(connection: AsyncConnection) -> Position:
    return rows.to_position((await connection.execute(select(journal_state))).one())


async def read_bucket_id(connection: AsyncConnection) -> bytes | None:
    """The bucket whose journal this is a view of; None before the first entry."""
    query = select(journal_state.c.bucket_id)
    bucket_id: bytes | None = (await connection.execute(query)).scalar_one()
    return bucket_id


async def load(connection: AsyncConnection) -> LoadedState:
    """The whole state, as of one position. Raises CorruptObjectError if a row cannot be read."""
    state = (await connection.execute(select(journal_state))).one()
    found_topics = await connection.execute(select(topics).order_by(topics.c.topic_id))
    found_streams = await connection.execute(select(streams))
    found_keys = await connection.execute(
        select(api_keys).order_by(api_keys.c.created_us, api_keys.c.api_key_id)
    )
    found_users = await connection.execute(select(users).order_by(users.c.name))
    found_owners = await connection.execute(select(group_owners))
    found_offsets = await connection.execute(select(group_offsets))
    found_requests = await connection.execute(select(requests).order_by(requests.c.place))
    found_producers = await connection.execute(select(producers).order_by(producers.c.place))
    found_writers = await connection.execute(select(writers).order_by(writers.c.first_seq))
    found_leases = await connection.execute(select(leases))
    found_objects = await connection.execute(select(stored_objects))
    found_stored = await connection.execute(
        select(stored_sections).order_by(stored_sections.c.topic_id, stored_sections.c.base_offset)
    )
    found_garbage = await connection.execute(select(garbage))
    found_runs = await connection.execute(
        select(compacted_runs).order_by(compacted_runs.c.topic_id, compacted_runs.c.base_offset)
    )
    tidied_seq: int = (await connection.execute(select(tidy_state.c.tidied_seq))).scalar_one()
    of = journal_entries.c
    found_untidied = await connection.execute(
        select(of.seq, of.length, of.created_us).where(of.seq > tidied_seq).order_by(of.seq)
    )
    try:
        living = [rows.to_topic(row) for row in found_topics]
        return LoadedState(
            position=rows.to_position(state),
            next_topic_id=state.next_topic_id,
            topics=living,
            streams=[rows.to_stream(row) for row in found_streams],
            api_keys=[rows.to_api_key(row) for row in found_keys],
            users=[rows.to_user(row) for row in found_users],
            writers=[WriterRow(*row) for row in found_writers],
            paged=await connection.run_sync(index_pages.last_pages),
            entries=await _load_entries(
                connection, {topic.topic_id for topic in living}, state.paged_seq
            ),
            tidied_seq=tidied_seq,
            untidied=[(row.seq, row.length, row.created_us) for row in found_untidied],
            objects=[ObjectRow(*row) for row in found_objects],
            stored=[rows.to_stored_section(row) for row in found_stored],
            garbage=[GarbageRow(*row) for row in found_garbage],
            runs=[(row.topic_id, row.base_offset, row.last_offset) for row in found_runs],
            group_owners={row.group_name: row.owner for row in found_owners},
            group_offsets=[GroupOffsetRow(*row) for row in found_offsets],
            leases=[LeaseRow(*row) for row in found_leases],
            requests=[retries.to_request(row) for row in found_requests],
            requests_place=state.requests_place,
            producers=[retries.to_producer(row) for row in found_producers],
        )
    except (BadBatchError, msgspec.DecodeError) as error:
        raise CorruptObjectError(f"a row of the local state cannot be read: {error}") from error


async def _load_entries(
    connection: AsyncConnection, living: set[int], paged_seq: int
) -> list[EntryRow]:
    """Entries behind `paged_seq` with records of living topics, oldest first; sections of dead
    topics are left out."""
    entries = []
    columns = journal_entries.c
    query = (
        select(
            columns.seq,
            columns.epoch,
            columns.writer_id,
            columns.created_us,
            columns.sections_at,
            columns.contents,
        )
        .where(columns.seq > paged_seq)
        .order_by(columns.seq)
    )
    async with connection.stream(query) as result:
        async for partition in result.partitions(_ENTRIES_AT_ONCE):
            for row in partition:
                sections = [
                    section
                    for section in decode_sections(row.contents)
                    if section.topic_id in living
                ]
                if sections:
                    entries.append(rows.to_entry(row, sections))
    return entries
