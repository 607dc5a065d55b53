"""What makes a topic a stream of the Durable Streams protocol, in SQLite."""

from __future__ import annotations

from pathlib import Path

from seb_appliance.formats.durable_streams import ClosedBy, StreamFork, StreamState
from seb_appliance.formats.operations import StreamSet, TopicDeleted
from seb_appliance.state.database import StateDatabase
from tests.unit.state.journal import Journal, topic_created

OPEN = StreamState("text/plain", ttl_s=60, last_seq="b", fork_of=StreamFork("parent", 3, 1))
CLOSED = StreamState("text/plain", closed=True, closed_by=ClosedBy("p", 1, 2))


async def test_a_stream_is_as_it_was_set_last_and_goes_with_its_topic(tmp_path: Path) -> None:
    journal = Journal()
    journal.write(topic_created(1), StreamSet(topic_id=1, stream=CLOSED))
    journal.write(topic_created(2), StreamSet(topic_id=2, stream=CLOSED))
    journal.write(StreamSet(topic_id=1, stream=OPEN))
    journal.write(StreamSet(topic_id=2, stream=OPEN), TopicDeleted(topic_id=2))
    found = []
    for entry in journal.entries:
        database = await StateDatabase.open(tmp_path / "state.sqlite")
        assert database.set_aside == ""  # its checksum is true
        await database.apply([entry])
        found.append(dict((await database.load()).streams))
        await database.close()
    assert found == [{1: CLOSED}, {1: CLOSED, 2: CLOSED}, {1: OPEN, 2: CLOSED}, {1: OPEN}]
