"""Cutting a read into tasks, and sharing a trigger's limit: pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows
from pyspark_seb.errors import ApplianceError, TopicChangedError
from pyspark_seb.options import (
    RECORDS_PER_TASK,
    TopicLog,
    TopicRange,
    read_options,
    share,
    split,
)
from pyspark_seb.reading import stream as stream_reader
from pyspark_seb.reading.ranges import RangePartition, partitions_of
from pyspark_seb.reading.stream import SebStreamReader, next_end

COUNTS = st.integers(0, 3 * RECORDS_PER_TASK)


@given(st.lists(st.tuples(st.integers(0, 10**9), COUNTS), max_size=4), st.integers(1, 20))
def test_parts_are_the_ranges_again(ranges, min_partitions) -> None:
    whole = [TopicRange(f"t{i}", i, at, at + n) for i, (at, n) in enumerate(ranges)]
    parts = split(whole, min_partitions)
    for found in whole:
        own = [part for part in parts if part.topic == found.topic]
        edges = [found.start, *(part.end for part in own)]
        assert [part.start for part in own] == edges[:-1]
        assert edges[-1] == found.end
    assert all(0 < len(part) <= RECORDS_PER_TASK for part in parts)
    assert len(parts) >= min(min_partitions, sum(map(len, whole)))


def test_nothing_to_read_is_one_task_that_reads_nothing() -> None:
    """Of an empty list Spark would make a partition that no reader understands."""
    assert partitions_of(split([TopicRange("a", 1, 5, 5)], 3)) == [RangePartition(None)]


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 10**6)), st.integers(1, 10**6))
def test_a_limit_is_shared_and_no_topic_starves(backlogs, limit) -> None:
    shares = share(backlogs, limit)
    for topic, backlog in backlogs.items():
        assert 0 <= shares[topic] <= backlog
        assert shares[topic] > 0 or backlog == 0
    assert sum(shares.values()) <= max(limit, 0) + len(backlogs)


def at(offset: int, topic_id: int = 1) -> dict[str, int]:
    return {"topic_id": topic_id, "offset": offset}


def test_a_batch_ends_at_the_limit_at_the_target_and_at_the_log_end() -> None:
    topics = {"a": TopicLog("a", 1, 0, 100)}
    start = {"a": at(10)}
    assert next_end(start, topics, None, None) == {"a": at(100)}
    assert next_end(start, topics, None, 30) == {"a": at(40)}
    assert next_end(start, topics, {"a": at(50)}, 60) == {"a": at(50)}
    assert next_end({"a": at(60)}, topics, {"a": at(50)}, None) == {"a": at(60)}


def test_records_that_are_gone_do_not_count_for_the_limit() -> None:
    """A stream that retention had overtaken read batches without a record, up to the log start."""
    topics = {"a": TopicLog("a", 1, 10_000_000, 10_000_100), "b": TopicLog("b", 2, 0, 40)}
    start = {"a": at(0), "b": at(0, 2)}
    found = next_end(start, topics, None, 14, skips_lost=True)
    assert found == {"a": at(10_000_010), "b": at(4, 2)}
    assert next_end(start, topics, None, None, skips_lost=True) == {
        "a": at(10_000_100),
        "b": at(40, 2),
    }
    target = {"a": at(50), "b": at(40, 2)}  # of a run that began before retention went on
    assert next_end(start, topics, target, 14, skips_lost=True)["a"] == at(50)
    assert next_end(start, topics, None, 14)["a"] == at(13)


def test_an_offset_has_the_entry_of_when_it_moved_last() -> None:
    """Spark would plan batches without a record for ever, if that of an idle topic changed."""
    topics = {
        "a": TopicLog("a", 1, 0, 100, last_entry="9-aa"),
        "b": TopicLog("b", 2, 0, 5, last_entry="8-aa"),
    }
    idle = {**at(5, 2), "last_entry": "4-aa"}
    for older in ({}, {"last_entry": "3-aa"}):
        found = next_end({"a": {**at(10), **older}, "b": idle}, topics, None, None)
        assert found == {"a": {**at(100), "last_entry": "9-aa"}, "b": idle}


def test_a_new_topic_is_noted_before_it_is_read() -> None:
    topics = {"a": TopicLog("a", 1, 0, 5), "b": TopicLog("b", 2, 3, 9)}
    noted = next_end({"a": at(5)}, topics, None, None)
    assert noted == {"a": at(5), "b": at(3, 2)}
    assert next_end(noted, topics, None, None) == {"a": at(5), "b": at(9, 2)}


@pytest.mark.parametrize("topics", [{}, {"a": TopicLog("a", 7, 0, 5)}])
def test_a_topic_that_went_away_ends_a_stream(topics) -> None:
    with pytest.raises(TopicChangedError, match="deleted"):
        next_end({"a": at(5)}, topics, None, None)


def test_a_log_that_ends_before_the_checkpoint_ends_a_stream() -> None:
    """After a restore to an earlier time. Once the log is long enough again, what was appended up
    to there would never be read."""
    topics = {"a": TopicLog("a", 1, 0, 100)}
    for target in (None, {"a": at(100)}):
        with pytest.raises(TopicChangedError, match="beyond the log end 100"):
            next_end({"a": at(101)}, topics, target, None)


class Reader(SebStreamReader):
    """Of one topic, without an appliance. Pitfall 18: Spark may ask for an end without a start."""

    def __init__(self, log: TopicLog, **more: str) -> None:
        given = {"url": "http://seb", "tokenFile": "k", "topics": "a", "group": "g", **more}
        super().__init__(given, None)
        self._made = read_options(given), None
        self.log = log
        self.published: list[object] = []
        self._initial = {"a": at(2)}

    def _topics(self) -> dict[str, TopicLog]:
        return {"a": self.log}

    def _publish(self, done) -> None:
        self.published.append(done)


def test_an_end_can_be_asked_for_without_a_start() -> None:
    reader = Reader(TopicLog("a", 1, 0, 9))
    assert reader.latestOffset() == {"a": at(9)}
    assert reader.published == [{"a": at(2)}]


def test_a_batch_waits_for_its_least_records_and_not_for_ever(monkeypatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(stream_reader.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(stream_reader, "HELD_S", 0.0)
    reader = Reader(TopicLog("a", 1, 0, 9), minOffsetsPerTrigger="5", maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    assert reader.latestOffset({"a": at(7)}, limit) == {"a": at(9)}  # it was started just now
    assert reader.latestOffset({"a": at(5)}, limit) == {"a": at(5)}
    assert reader.latestOffset({"a": at(4)}, limit) == {"a": at(9)}
    now_s[0] += 29
    assert reader.latestOffset({"a": at(8)}, limit) == {"a": at(8)}
    assert reader.latestOffset({"a": at(8)}, ReadAllAvailable()) == {"a": at(9)}
    now_s[0] += 31
    assert reader.latestOffset({"a": at(8)}, limit) == {"a": at(9)}
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset({"a": at(8)}, limit) == {"a": at(9)}


@pytest.mark.parametrize("code", ["unreachable", "entry_not_found"])
def test_a_group_that_cannot_be_moved_ends_no_stream_and_a_lost_entry_does(code, capsys) -> None:
    """The group is only a copy of the checkpoint, and the next batch moves it."""

    class Failing:
        def get(self, path: str) -> None:
            raise ApplianceError(path, 0, code, "no answer", {})

    reader = Reader(TopicLog("a", 1, 0, 9))
    reader._made = reader._options, Failing()
    done = {"a": {**at(9), "last_entry": "4-aa"}}
    if code == "entry_not_found":
        with pytest.raises(TopicChangedError, match="restored as of an earlier time"):
            SebStreamReader._publish(reader, done)
    else:
        SebStreamReader._publish(reader, done)
        assert "group g was not moved: /v1/entries/4-aa: no answer" in capsys.readouterr().err


def test_a_start_behind_the_end_is_an_error_and_not_an_empty_batch() -> None:
    """Pitfall 6: so 500 records were lost without a word."""
    reader = Reader(TopicLog("a", 1, 0, 2000))
    with pytest.raises(TopicChangedError, match="behind the end"):
        reader._range("a", at(2000), at(1000), reader.log)
