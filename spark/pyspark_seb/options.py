"""The options of `format("seb")`, and the topics and offsets that they name.

All options are checked here, because Spark itself ignores unknown ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pyspark_seb.client import Appliance
from pyspark_seb.errors import (
    ApplianceError,
    BadOptionError,
    RecordsGoneError,
    TopicChangedError,
)

READ_OPTIONS: Final = (
    "url",
    "tokenFile",
    "topics",
    "group",
    "startingOffsets",
    "endingOffsets",
    "maxRecordsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "includeHeaders",
    "transport",
)
WRITE_OPTIONS: Final = ("url", "tokenFile", "topic", "producerId")
# What Spark itself puts among the options of a stream's sink.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path"})
_SECRET: Final = re.compile(r"token|key|secret|password|authorization", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PATTERN: Final = re.compile(r"([A-Za-z0-9_-]+|\*\*?)(\.([A-Za-z0-9_-]+|\*\*?))*")
_WORDS: Final = {"starting": ("committed", "earliest", "latest"), "ending": ("latest",)}
_TIME: Final = re.compile(r"@?(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d))")

Transport = Literal["api", "direct"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading begins or ends, as the user said: one place for all topics, or by topic.
    Texts are `committed`, `earliest`, `latest`, a number, or `@` and a time."""

    everywhere: str | None = None
    by_topic: Mapping[str, str] | None = None

    def of(self, topic: str) -> str:
        """Raises BadOptionError for a topic that was left out."""
        if self.everywhere is not None:
            return self.everywhere
        assert self.by_topic is not None
        if topic not in self.by_topic:
            raise BadOptionError(f"the offsets by topic say nothing about topic {topic!r}")
        return self.by_topic[topic]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    url: str
    token_file: str
    topics: tuple[str, ...]
    group: str | None
    starting: Place
    ending: Place
    max_records_per_trigger: int | None
    min_partitions: int
    fail_on_data_loss: bool
    include_headers: bool
    transport: Transport


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`topic`: where records go whose row names no topic. `producer_id`: of a batch that may be run
    again. `checkpoint`: of a stream, as Spark tells it."""

    url: str
    token_file: str
    topic: str | None
    producer_id: str | None = None
    checkpoint: str | None = None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Raises BadOptionError."""
    options = _known(given, READ_OPTIONS)
    group = options.get("group")
    if group is not None and not _NAME.fullmatch(group):
        raise BadOptionError(f"group={group!r} is no group name")
    starting = _place(options.get("startingOffsets"), "starting")
    if starting is None:
        starting = Place("committed" if group else "earliest")
    wanted = [starting.everywhere, *(starting.by_topic or {}).values()]
    if "committed" in wanted and group is None:
        raise BadOptionError("startingOffsets=committed needs the option group")
    return ReadOptions(
        url=_url(options),
        token_file=_needed(options, "tokenFile"),
        topics=_topics(_needed(options, "topics")),
        group=group,
        starting=starting,
        ending=_place(options.get("endingOffsets"), "ending") or Place("latest"),
        max_records_per_trigger=_number(options, "maxRecordsPerTrigger"),
        min_partitions=_number(options, "minPartitions") or 1,
        fail_on_data_loss=_flag(options, "failOnDataLoss", default=True),
        include_headers=_flag(options, "includeHeaders", default=True),
        transport=_transport(options.get("transport", "api")),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Raises BadOptionError."""
    options = _known(given, WRITE_OPTIONS, also=_OF_SPARK)
    topic = options.get("topic")
    if topic is not None and not _NAME.fullmatch(topic):
        raise BadOptionError(f"topic={topic!r} is no topic name")
    producer_id = options.get("producerId")
    if producer_id is not None and not _NAME.fullmatch(producer_id):
        raise BadOptionError(f"producerId={producer_id!r}: letters, digits and . _ - are taken")
    checkpoint = {name.lower(): value for name, value in given.items()}.get("checkpointlocation")
    token_file = _needed(options, "tokenFile")
    return WriteOptions(_url(options), token_file, topic, producer_id, checkpoint)


def _known(
    given: Mapping[str, str], names: tuple[str, ...], also: frozenset[str] = frozenset()
) -> dict[str, str]:
    """By the names as they are written here. Spark does not keep upper and lower case."""
    known = {name.lower(): name for name in names}
    found = {}
    for name, value in given.items():
        if name.lower() in known:
            found[known[name.lower()]] = value.strip()
        elif name.lower() not in also:
            hint = ""
            if _SECRET.search(name):
                hint = " An API key is never an option, where plans show it: put it into a file."
            raise BadOptionError(f"unknown option {name!r}; known here: {', '.join(names)}.{hint}")
    return found


def _needed(options: dict[str, str], name: str) -> str:
    if not options.get(name):
        raise BadOptionError(f"the option {name} is missing")
    return options[name]


def _url(options: dict[str, str]) -> str:
    url = _needed(options, "url").rstrip("/")
    parts = urlsplit(url)
    plain = parts.scheme in {"http", "https"} and parts.hostname and not parts.path
    if not plain or parts.query or "@" in parts.netloc:
        raise BadOptionError("url is http(s)://host[:port] of the appliance, and nothing more")
    return url


def _topics(text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in named:
        if not _PATTERN.fullmatch(name):
            raise BadOptionError(f"topics: {name!r} is neither a topic's name nor a pattern")
    return named


def _place(text: str | None, which: str) -> Place | None:
    if text is None:
        return None
    if not text.startswith("{"):
        return Place(everywhere=_position(text, which))
    try:
        by_topic = json.loads(text)
    except ValueError as error:
        raise BadOptionError(f"{which}Offsets begins with {{ and is not JSON: {error}") from error
    for topic, value in by_topic.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise BadOptionError(f"{which}Offsets of topic {topic!r} is neither text nor number")
    return Place(
        by_topic={topic: _position(str(value), which) for topic, value in by_topic.items()}
    )


def _position(text: str, which: str) -> str:
    if text in _WORDS[which] or re.fullmatch(r"\d{1,16}", text):
        return text
    if found := _TIME.fullmatch(text):
        return f"@{found[1]}"
    raise BadOptionError(
        f"{which}Offsets={text!r} is none of {', '.join(_WORDS[which])}, a number, a time as "
        '2026-11-21T10:00:00Z, and JSON by topic as {"orders": 17}'
    )


def _number(options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < 1:
        raise BadOptionError(f"{name}={text!r} is not a number from 1 on")
    return int(text)


def _flag(options: dict[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in {"true", "false"}:
        raise BadOptionError(f"{name}={text!r} is neither true nor false")
    return text == "true"


def _transport(text: str) -> Transport:
    if text == "api":
        return "api"
    if text == "direct":
        return "direct"
    raise BadOptionError(f"transport={text!r} is neither api nor direct")


@dataclass(frozen=True, slots=True)
class TopicLog:
    """A topic as it is now. A topic that is created again under its name has another `topic_id`."""

    topic: str
    topic_id: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets start ≤ o < end of one topic."""

    topic: str
    topic_id: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    topic_id: int
    offset: int


def find_topics(appliance: Appliance, wanted: Iterable[str]) -> dict[str, TopicLog]:
    """The topics of names and patterns, by name. Raises ApplianceError for a name that is not."""
    found: dict[str, TopicLog] = {}
    for name in wanted:
        if "*" in name:
            listed = appliance.get("/v1/topics", pattern=name).json()["topics"]
        else:
            listed = [appliance.get(f"/v1/topics/{name}").json()]
        for item in listed:
            found[item["topic"]] = TopicLog(
                item["topic"], item["topic_id"], item["log_start_offset"], item["log_end_offset"]
            )
    return dict(sorted(found.items()))


def group_topics(appliance: Appliance, group: str) -> dict[str, dict[str, Any]]:
    """What the API tells of each topic of a group; nothing for a group that is not there."""
    try:
        topics = appliance.get(f"/v1/groups/{group}").json()["topics"]
    except ApplianceError as error:
        if error.code == "group_not_found":
            return {}
        raise
    return {item["topic"]: item for item in topics}


def committed_offsets(appliance: Appliance, group: str) -> dict[str, CommittedOffset]:
    """Where the group stands, by topic."""
    return {
        topic: CommittedOffset(item["topic_id"], item["committed_offset"])
        for topic, item in group_topics(appliance, group).items()
    }


def commit(
    appliance: Appliance, group: str, offsets: dict[str, CommittedOffset], **members: object
) -> None:
    """Commit all of them, or none. `members`: of the request, as `expected`. Raises
    ApplianceError."""
    content = {
        "offsets": {topic: at.offset for topic, at in offsets.items()},
        "topic_ids": {topic: at.topic_id for topic, at in offsets.items()},
        **members,
    }
    appliance.send("PUT", f"/v1/groups/{group}/offsets", content)


def resolve_ranges(appliance: Appliance, options: ReadOptions) -> list[TopicRange]:
    """What a batch reads. Raises SebSparkError."""
    topics = find_topics(appliance, options.topics)
    committed = committed_offsets(appliance, options.group) if options.group else {}
    ranges = []
    for log in topics.values():
        start = start_of(appliance, log, options, committed.get(log.topic))
        end = end_of(appliance, log, options)
        ranges.append(TopicRange(log.topic, log.topic_id, start, max(start, end)))
    return ranges


def start_of(
    appliance: Appliance, log: TopicLog, options: ReadOptions, committed: CommittedOffset | None
) -> int:
    """Raises BadOptionError, RecordsGoneError, TopicChangedError."""
    wanted = options.starting.of(log.topic)
    if wanted == "committed":
        if committed is None:
            return log.log_start_offset
        if committed.topic_id != log.topic_id:
            raise TopicChangedError(
                f"topic {log.topic!r} was created again since the group read it"
            )
        offset = committed.offset
    else:
        offset = _offset_of(appliance, log, wanted)
    return checked_start(log, offset, fail_on_data_loss=options.fail_on_data_loss)


def end_of(appliance: Appliance, log: TopicLog, options: ReadOptions) -> int:
    """Raises BadOptionError for an end beyond the log."""
    end = _offset_of(appliance, log, options.ending.of(log.topic))
    if end > log.log_end_offset:
        raise BadOptionError(
            f"endingOffsets: {end} is beyond the log end {log.log_end_offset} of {log.topic!r}"
        )
    return end


def checked_start(log: TopicLog, offset: int, *, fail_on_data_loss: bool) -> int:
    """`offset`, or the log start when the records between are gone and need not be there.
    Raises RecordsGoneError, TopicChangedError."""
    if offset > log.log_end_offset:
        raise TopicChangedError(
            f"offset {offset} is beyond the log end {log.log_end_offset} of topic {log.topic!r}"
        )
    if offset >= log.log_start_offset:
        return offset
    if fail_on_data_loss:
        raise RecordsGoneError(log.topic, offset, log.log_start_offset)
    return log.log_start_offset


def _offset_of(appliance: Appliance, log: TopicLog, text: str) -> int:
    if text == "earliest":
        return log.log_start_offset
    if text == "latest":
        return log.log_end_offset
    if not text.startswith("@"):
        return int(text)
    path = f"/v1/topics/{log.topic}/records"
    found = appliance.get(path, offset=text, until=log.log_end_offset, max_records=1, format="json")
    records = found.json()["records"]
    return int(records[0]["offset"]) if records else log.log_end_offset


# A task reads about so many: long enough to be worth starting, short enough to be done again.
RECORDS_PER_TASK: Final = 500_000


def split(ranges: Sequence[TopicRange], min_partitions: int) -> list[TopicRange]:
    """The same offsets in parts of at most RECORDS_PER_TASK, and at least `min_partitions` of them
    where there are records enough. Empty ranges go."""
    total = sum(map(len, ranges))
    if not total:
        return []
    most = min(RECORDS_PER_TASK, max(1, total // min_partitions))
    parts = []
    for whole in ranges:
        count = -(-len(whole) // most)
        for i in range(count):
            start = whole.start + len(whole) * i // count
            end = whole.start + len(whole) * (i + 1) // count
            parts.append(TopicRange(whole.topic, whole.topic_id, start, end))
    return parts


def share(backlogs: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many records of each topic a trigger takes: in proportion to what waits, `limit` in all,
    at least one of each topic where something waits (so that none starves)."""
    total = sum(backlogs.values())
    if total <= limit:
        return dict(backlogs)
    return {
        topic: min(backlog, max(1, backlog * limit // total)) for topic, backlog in backlogs.items()
    }
