"""Options of `format("seb")`: each is checked, none is guessed."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark_seb.errors import BadOptionError
from pyspark_seb.options import read_options, write_options

BASE = {"url": "http://seb:51313/", "tokenFile": "seb.key", "topics": "orders, iot.**"}


def test_names_are_known_in_upper_and_lower_case() -> None:
    options = read_options({**BASE, "STARTINGOFFSETS": "17", "endingoffsets": "latest"})
    assert options.url == "http://seb:51313"
    assert options.topics == ("orders", "iot.**")
    assert options.starting.of("orders") == "17"
    assert options.ending.of("orders") == "latest"


def test_a_group_makes_committed_the_start() -> None:
    assert read_options(BASE).starting.of("orders") == "earliest"
    assert read_options({**BASE, "group": "lake"}).starting.of("orders") == "committed"


def test_offsets_by_topic_must_name_each() -> None:
    given = '{"orders": 5, "iot.kitchen": "@2026-11-21T10:00:00Z"}'
    options = read_options({**BASE, "startingOffsets": given})
    assert options.starting.of("iot.kitchen") == "@2026-11-21T10:00:00Z"
    with pytest.raises(BadOptionError, match="say nothing about topic"):
        options.starting.of("iot.cellar")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("url", "seb:51313", "url is"),
        ("url", "http://user:secret@seb:51313", "url is"),
        ("url", "http://seb:51313/v1", "url is"),
        ("tokenFile", "", "missing"),
        ("topics", "orders,,iot", "neither a topic's name nor a pattern"),
        ("topics", "a/b", "neither a topic's name nor a pattern"),
        ("group", "no group", "no group name"),
        ("startingOffsets", "-5", "none of"),
        ("startingOffsets", "{", "not JSON"),
        ("startingOffsets", '{"orders": true}', "neither text nor number"),
        ("endingOffsets", "earliest", "none of"),
        ("endingOffsets", "committed", "none of"),
        ("maxRecordsPerTrigger", "0", "from 1 on"),
        ("minPartitions", "two", "from 1 on"),
        ("failOnDataLoss", "no", "neither true nor false"),
        ("transport", "s3", "neither api nor direct"),
        ("checkpointLocation", "x", "unknown option"),
        ("apiKey", "seb_x", "An API key is never an option"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(BadOptionError, match=said) as error:
        read_options({**BASE, name: value})
    assert "secret@" not in str(error.value)


def test_a_sink_takes_what_spark_adds_of_its_own() -> None:
    given = {"url": "http://seb", "tokenFile": "k", "topic": "a", "checkpointLocation": "x"}
    assert write_options(given).topic == "a"
    with pytest.raises(BadOptionError, match="unknown option 'topics'"):
        write_options({**given, "topics": "a"})


def test_the_producer_of_a_batch_is_a_name() -> None:
    given = {"url": "http://a:1", "tokenFile": "f", "topic": "t", "checkpointLocation": "/c"}
    options = write_options({**given, "producerid": "copy-17"})
    assert (options.producer_id, options.checkpoint) == ("copy-17", "/c")
    with pytest.raises(BadOptionError, match="producerId"):
        write_options({**given, "producerId": "a copy"})
