"""Work queues in SQLite are what they are in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seb_appliance.broker.queues.progress import Queues
from seb_appliance.errors import CorruptObjectError
from seb_appliance.formats.operations import (
    QueueDeleted,
    QueueEvent,
    QueueProgressed,
    QueueSet,
    TopicDeleted,
)
from seb_appliance.formats.queues.queues import (
    FailedDelivery,
    OffsetRange,
    QueueSettings,
    QueueStart,
)
from seb_appliance.state import projection, schema
from seb_appliance.state.loading import load
from seb_appliance.state.rows import queues as queue_rows
from seb_appliance.state.tables import JournalState, Tables, rows_checksum
from tests.unit.state.journal import Journal, topic_created

SETTINGS = QueueSettings(topics=("orders.*",), ordering="key", dead_letter="dead")
QUEUE, TOPIC = st.sampled_from(["a", "b"]), st.integers(1, 2)
RANGES = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 6)).map(lambda it: OffsetRange(it[0], sum(it))),
    max_size=3,
)
FAILED = st.lists(
    st.builds(
        FailedDelivery, st.integers(0, 40), st.integers(1, 5), st.integers(0, 9), st.integers(0, 9)
    ),
    max_size=3,
)
EVENTS = st.one_of(
    st.builds(
        QueueProgressed,
        queue=QUEUE,
        topic_id=TOPIC,
        acked=RANGES,
        rejected=RANGES,
        lost=RANGES,
        failed=FAILED,
    ),
    st.builds(
        QueueSet,
        queue=QUEUE,
        settings=st.just(SETTINGS),
        owner=st.sampled_from(["", "key"]),
        starts=st.lists(st.builds(QueueStart, TOPIC, st.integers(1, 20)), max_size=1).map(tuple),
        left=st.lists(TOPIC, max_size=1).map(tuple),
    ),
    st.builds(QueueDeleted, queue=QUEUE),
    st.builds(TopicDeleted, topic_id=TOPIC),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=30))
def test_events_lead_to_the_same_queues_in_sqlite_and_in_memory(
    events: list[QueueEvent | TopicDeleted],
):
    memory = Queues()
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        rows = Tables(connection)
        for at_us, event in enumerate(events):
            if isinstance(event, TopicDeleted):
                memory.forget_topic(event.topic_id)
                queue_rows.forget_topic(rows, event.topic_id)
            elif isinstance(event, QueueSet) or memory.get(event.queue) is not None:
                memory.apply(event, at_us)
                queue_rows.project(rows, event, at_us)
        assert queue_rows.load(connection) == list(memory)


def test_a_queue_is_there_after_the_file_was_closed(tmp_path: Path):
    path = tmp_path / "state.sqlite"
    schema.make(path)
    journal = Journal()
    journal.write(topic_created(1), QueueSet(queue="q", settings=SETTINGS, owner="key"))
    acked, failed = [OffsetRange(0, 3), OffsetRange(5, 6)], [FailedDelivery(4, 2, 70, 60)]
    journal.write(QueueProgressed(queue="q", topic_id=1, acked=acked, failed=failed))
    with closing(schema.connect(path)) as connection:
        connection.execute("BEGIN")
        projection.project(connection, journal.entries)
        connection.execute("COMMIT")
    with closing(schema.connect(path)) as connection:
        (queue,) = load(connection).queues
        assert rows_checksum(connection) == JournalState.read(connection).checksum
    assert queue.settings == SETTINGS
    assert queue.owner == "key"
    assert list(queue.on(1).settled) == [(0, 3), (5, 6)]
    assert queue.on(1).acked == 4
    assert queue.on(1).failed == {4: failed[0]}


def test_a_deleted_topic_leaves_no_rows_of_queues():
    journal = Journal()
    journal.write(topic_created(1), topic_created(2), QueueSet(queue="q", settings=SETTINGS))
    for topic_id in (1, 2):
        event = QueueProgressed(queue="q", topic_id=topic_id, acked=[OffsetRange(0, 1)])
        journal.write(event)
    journal.write(TopicDeleted(topic_id=1))
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        projection.project(connection, journal.entries)
        (queue,) = queue_rows.load(connection)
    assert list(queue.progress) == [2]


def test_progress_of_a_queue_that_is_not_there_is_a_damaged_journal():
    with closing(sqlite3.connect(":memory:")) as connection:
        schema.create(connection)
        with pytest.raises(CorruptObjectError, match="not there"):
            queue_rows.project(Tables(connection), QueueProgressed(queue="q", topic_id=1), 0)
