"""The options of `format("seb")`, each of them checked: Spark itself is silent about typos."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from pyspark_seb.errors import BadOptionError

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
