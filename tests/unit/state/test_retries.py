"""What makes retries safe is the same in memory and in SQLite, however entries are batched."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import Producer, RememberedRequest
from seb_appliance.broker.ports import LoadedState
from seb_appliance.broker.topics.catalog import Catalog
from seb_appliance.formats.contents import Produced, ProducerAppend, QualifiedSeq, RequestResult
from seb_appliance.formats.entry import ORIGIN
from seb_appliance.formats.operations import Event, TopicDeleted
from seb_appliance.state import checks
from seb_appliance.state.database import StateDatabase
from seb_appliance.state.tables import state_digest
from tests.unit.state.journal import START_US, Journal, section, topic_created

HOUR_US = 3600 * 1_000_000
TOPICS = (1, 2)

# What one entry holds: the hours since the last one, the Idempotency-Keys of its requests, appends
# of producers (topic, producer, whether it begins a new epoch), and the topic it deletes last.
entries = st.tuples(
    st.sampled_from([0, 0, 0, 1, 12, 23, 24, 80, 167, 168, 169]),
    st.lists(st.sampled_from("abcdefgh"), max_size=4, unique=True),
    st.lists(
        st.tuples(st.sampled_from(TOPICS), st.sampled_from("pqrst"), st.booleans()), max_size=5
    ),
    st.sampled_from([None, None, None, None, 0, 1]),
)


def _scope(key: str) -> bytes:
    """That of one of three owners."""
    return b"%06d" % (ord(key) // 3) + key.encode() * 10


class History:
    """Entries as a broker would write them, except that it remembers for ever who sent what."""

    def __init__(self) -> None:
        self.journal = Journal()
        self._now_us = START_US
        self._topic_ids = list(TOPICS)
        self._next_topic_id = len(TOPICS) + 1
        self._seqs: dict[tuple[int, str], tuple[int, int]] = {}
        self._ends: dict[int, int] = {}
        self.journal.write(*map(topic_created, TOPICS), created_us=START_US)

    def write(self, hours: int, keys: list[str], appends: list, deleted: int | None) -> None:
        self._now_us += hours * HOUR_US
        seq = len(self.journal.entries)
        results = [
            RequestResult(_scope(key), bytes(16), [Produced(1, seq, i, seq)] * (seq % 4))
            for i, key in enumerate(keys)
        ]
        by_topic: dict[int, list[ProducerAppend]] = {}
        for place, name, new_epoch in appends:
            topic_id = self._topic_ids[place - 1]
            of_topic = by_topic.setdefault(topic_id, [])
            epoch, number = self._seqs.get((topic_id, name), (0, -1))
            epoch, number = (epoch + 1, 0) if new_epoch else (epoch, number + 1)
            self._seqs[topic_id, name] = epoch, number
            offset = self._ends.get(topic_id, 0)
            self._ends[topic_id] = offset + 1
            numbered = QualifiedSeq(number, offset) if offset % 2 else number
            of_topic.append(ProducerAppend(name, epoch, numbered, offset, 1, START_US))
        sections = []
        for topic_id, of_topic in by_topic.items():
            plain = section(
                topic_id, of_topic[0].offset, count=len(of_topic), start=8 * len(sections)
            )
            sections.append(msgspec.structs.replace(plain, producers=tuple(of_topic)))
        self.journal.write(sections=sections, results=results, created_us=self._now_us)
        if deleted is not None:
            self._make_anew(deleted)

    def _make_anew(self, place: int) -> None:
        old, new = self._topic_ids[place], self._next_topic_id
        self._topic_ids[place] = new
        self._next_topic_id += 1
        events: list[Event] = [TopicDeleted(topic_id=old), topic_created(new)]
        self.journal.write(*events, created_us=self._now_us)


def in_memory(history: History) -> Catalog:
    catalog = Catalog(LoadedState(ORIGIN), lambda: 0.0)
    for entry in history.journal.entries:
        catalog.apply(entry)
    return catalog


def remembered(catalog: Catalog) -> tuple[list[RememberedRequest], list[Producer]]:
    return list(catalog.requests), list(catalog.producers._by_id.values())


async def loaded_after(path: Path, history: History, batch: int) -> LoadedState:
    database = await StateDatabase.open(path)
    listed = history.journal.entries
    for first in range(0, len(listed), batch):
        await database.apply(listed[first : first + batch])
    loaded = await database.load()
    await database.close()
    checks.prepare(path)
    return loaded


async def check(history: History, folder: Path, batch: int) -> None:
    catalog = in_memory(history)
    one_by_one = await loaded_after(folder / "one", history, 1)
    together = await loaded_after(folder / "many", history, batch)
    assert (one_by_one.requests, one_by_one.producers) == remembered(catalog)
    assert together == one_by_one
    assert state_digest(folder / "one") == state_digest(folder / "many")
    assert remembered(Catalog(together, lambda: 0.0)) == remembered(catalog)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(entries, min_size=1, max_size=20), batch=st.integers(2, 40))
def test_memory_and_sqlite_remember_the_same(
    monkeypatch: pytest.MonkeyPatch, steps: list, batch: int
) -> None:
    monkeypatch.setattr(limits, "REMEMBERED_REQUESTS_MAX", 5)
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 4)
    history = History()
    for step in steps:
        history.write(*step)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(history, Path(folder), batch))


async def test_a_producer_that_idles_too_long_begins_anew_however_entries_are_batched(
    tmp_path: Path,
) -> None:
    history = History()
    history.write(0, [], [(1, "p", False)], None)
    history.write(169, [], [], None)
    history.write(0, [], [(1, "p", False)], None)
    history.write(0, [], [], None)
    await check(history, tmp_path, 10)
    (producer,) = in_memory(history).producers._by_id.values()
    assert [append.seq for append in producer.recent] == [1]


async def test_a_producer_goes_with_a_topic_that_is_deleted_behind_its_append(
    tmp_path: Path,
) -> None:
    """In one entry: first the record, then the deletion."""
    history = History()
    history.write(0, [], [(1, "p", False), (2, "p", False), (1, "q", False)], None)
    plain = section(1, 2)
    appended = msgspec.structs.replace(
        plain, producers=(ProducerAppend("r", 0, 0, 2, 1, START_US),)
    )
    other = msgspec.structs.replace(
        section(2, 1, start=8), producers=(ProducerAppend("p", 0, 1, 1, 1, START_US),)
    )
    history.journal.write(
        sections=[appended, other], last=[TopicDeleted(topic_id=1)], created_us=START_US
    )
    await check(history, tmp_path, 10)
    (producer,) = in_memory(history).producers._by_id.values()
    assert (producer.topic_id, producer.producer_id, producer.next_seq) == (2, "p", 2)
