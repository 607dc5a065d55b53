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
        ("url", "http://seb:99999", "url is"),
        ("url", "http://[seb", "url is"),
        ("tokenFile", "", "missing"),
        ("topics", "orders,,iot", "neither a topic's name nor a pattern"),
        ("topics", "a/b", "neither a topic's name nor a pattern"),
        ("group", "no group", "is no name"),
        ("startingOffsets", "-5", "none of"),
        ("startingOffsets", '{"orders": {"1": 5}}', "one partition, 0"),
        ("startingOffsets", '{"orders": {"0": 5, "1": 6}}', "one partition, 0"),
        ("startingOffsets", '{"orders": -3}', "none of"),
        ("endingOffsets", '{"orders": -2}', "none of"),
        ("startingTimestamp", "yesterday", "not a time"),
        ("startingTimestamp", "9" * 5_000, "not a time"),
        ("startingTimestamp", "\N{SUPERSCRIPT TWO}", "not a time"),
        ("startingOffsets", '{"orders":' + "[" * 100_000, "is not JSON"),
        ("recordKeys", "[" * 100_000, "is not a JSON list"),
        ("subscribe", "orders", "topics and subscribe mean the same"),
        ("maxTriggerDelay", "soon", "15m"),
        ("headersAs", "list", "map, array"),
        ("columns", "offset,partition", "columns, each once, are"),
        ("columns", "offset,offset", "columns, each once, are"),
        ("groupIdPrefix", "x", "use group"),
        ("kafka.bootstrap.servers", "broker:9092", "use url"),
        ("kafka.security.protocol", "SSL", "url and tokenFile are enough"),
        ("fetchOffset.numRetries", "3", "leave it out"),
        ("startingOffset", "3", "Is it startingOffsets"),
        ("startingOffsets", "{", "not JSON"),
        ("startingOffsets", '{"orders": true}', "of topic 'orders'=True is none of"),
        ("endingOffsets", "earliest", "none of"),
        ("endingOffsets", "committed", "none of"),
        ("maxRecordsPerTrigger", "0", "from 1 on"),
        ("minPartitions", "two", "from 1 on"),
        ("failOnDataLoss", "no", "neither true nor false"),
        ("transport", "s3", "none of api, direct"),
        ("checkpointLocation", "x", "unknown option"),
        ("apiKey", "seb_x", "An API key is never an option"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str, said: str) -> None:
    with pytest.raises(BadOptionError, match=said) as error:
        read_options({**BASE, name: value})
    assert "secret@" not in str(error.value)


@pytest.mark.parametrize(
    ("alias", "value", "name", "same"),
    [
        ("subscribe", "a,b", "topics", "a,b"),
        ("assign", '{"a": [0], "b": [0]}', "topics", "a,b"),
        ("kafka.group.id", "lake", "group", "lake"),
        ("maxOffsetsPerTrigger", "7", "maxRecordsPerTrigger", "7"),
        ("minOffsetsPerTrigger", "7", "minRecordsPerTrigger", "7"),
        ("startingTimestamp", "1790000000123", "startingOffsets", "2026-09-21T14:13:20.123Z"),
        (
            "endingOffsetsByTimestamp",
            '{"a": {"0": 1790000000000}}',
            "endingOffsets",
            '{"a": "2026-09-21T14:13:20.000Z"}',
        ),
        ("startingOffsets", '{"a": {"0": 17}}', "startingOffsets", '{"a": 17}'),
        (
            "startingOffsets",
            '{"a": -2, "b": -1}',
            "startingOffsets",
            '{"a": "earliest", "b": "latest"}',
        ),
    ],
)
def test_names_and_forms_of_the_kafka_source_mean_ours(alias, value, name, same) -> None:
    base = {name: text for name, text in BASE.items() if name != "topics"}
    topics = {} if name == "topics" else {"topics": "a,b"}
    theirs = read_options({**base, **topics, alias: value})
    assert theirs == read_options({**base, **topics, name: same})
    assert theirs != read_options({**base, "topics": "other"})


def test_an_option_without_effect_is_named(capsys) -> None:
    read_options({**BASE, "maxOffsetsPerTrigger": "5"}, "batch")
    assert "maxOffsetsPerTrigger has no effect in a batch" in capsys.readouterr().err
    read_options({**BASE, "group": "lake", "startingOffsets": "earliest"}, "batch")
    assert "group has no effect: startingOffsets is given" in capsys.readouterr().err
    read_options({**BASE, "group": "lake", "maxOffsetsPerTrigger": "5"}, "stream")
    assert capsys.readouterr().err == ""
    with pytest.raises(BadOptionError, match="endingTimestamp is of batches"):
        read_options({**BASE, "endingTimestamp": "5"}, "stream")


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
