"""Lake tables in SQLite are what they are in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seb_appliance.broker.lake.tables import LakeTables
from seb_appliance.formats.operations import TableDropped
from seb_appliance.state import schema
from seb_appliance.state.rows import lake as lake_rows
from seb_appliance.state.tables import Tables
from tests.support.lake import SET, Story, data_file

STEPS = st.lists(st.sampled_from(["append", "empty", "merge", "trim", "set"]), max_size=40)


def story_of(steps: list[str]) -> Story:
    story = Story()
    for step in steps:
        living = sorted(one.file.name for one in story.table.living())
        at = story.table.head.next_offset
        match step:
            case "append":
                story.commit(data_file(at, at + 2), keep=4)
            case "empty":
                story.commit(keep=4)
            case "merge" if len(living) > 1:
                story.commit(data_file(0, at + 100), removed=tuple(living[:2]), keep=4)
            case "trim" if living:
                story.commit(removed=tuple(living[:1]), keep=4)
            case "set":
                paused = not story.table.head.definition.paused
                story.set(replace(story.table.head.definition, paused=paused))
    return story


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_events_lead_to_the_same_tables_in_sqlite_and_in_memory(steps: list[str], is_dropped: bool):
    events = story_of(steps).events
    if is_dropped:
        events.append((TableDropped(table_id=SET.table_id), 0))
    memory = LakeTables([])
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        rows = Tables(connection)
        for event, created_us in events:
            memory.apply(event, created_us)
            lake_rows.project(rows, event, created_us)
        assert lake_rows.load(connection) == memory.all()


def test_a_table_is_there_after_the_file_was_closed(tmp_path: Path):
    path = tmp_path / "state.sqlite"
    schema.make(path)
    story = story_of(["append", "append", "merge"])
    with closing(schema.connect(path)) as connection:
        connection.execute("BEGIN")
        rows = Tables(connection)
        for event, created_us in story.events:
            lake_rows.project(rows, event, created_us)
        connection.execute("COMMIT")
    with closing(schema.connect(path)) as connection:
        assert lake_rows.load(connection) == [story.table]


def test_tables_of_one_moment_keep_their_order_after_a_snapshot(tmp_path: Path):
    """Of two with the same name in the catalog, the older one has it."""
    path, copy = tmp_path / "state.sqlite", tmp_path / "copy.sqlite"
    schema.make(path)
    first, second = SET, replace(SET, table_id="0000000000000000", topic_id=8)
    changed = replace(first, paused=True)
    memory = LakeTables([])
    with closing(schema.connect(path)) as connection:
        connection.execute("BEGIN")
        rows = Tables(connection)
        for event in (first, second, changed):
            memory.apply(event, 1_000)
            lake_rows.project(rows, event, 1_000)
        connection.execute("COMMIT")
        connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(schema.connect(copy)) as connection:
        assert lake_rows.load(connection) == memory.all()
