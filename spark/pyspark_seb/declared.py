"""Each option of `format("seb")`, declared once: names, type, default and meaning. The checks, the
texts of errors and the tables in docs/spark.md are made of this.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from pyspark_seb.errors import BadOptionError

T = TypeVar("T")
Use = Literal["batch", "stream", "write"]
READ: Final[tuple[Use, ...]] = ("batch", "stream")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PATTERN: Final = re.compile(r"([A-Za-z0-9_-]+|\*\*?)(\.([A-Za-z0-9_-]+|\*\*?))*")
_TIME: Final = re.compile(r"@?(\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d))")
_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What the Kafka source calls the ends of a log in JSON.
_NEGATIVE: Final = {-1: "latest", -2: "earliest"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading begins or ends, as the user said: one place for all topics, or by topic.
    Texts are `committed`, `earliest`, `latest`, `latest-N`, a number, or `@` and a time."""

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


# --- readers of values: each takes the option's name, for its error, and the text ---


def _text(name: str, text: str) -> str:  # noqa: ARG001 - of the shape of a reader
    return text


def _url(_: str, text: str) -> str:
    url = text.rstrip("/")
    try:
        parts = urlsplit(url)
        plain = parts.scheme in {"http", "https"} and parts.hostname and not parts.path
        plain = plain and parts.port != 0
    except ValueError:  # of brackets, and of a port
        plain = False
    if not plain or parts.query or "@" in parts.netloc:
        raise BadOptionError("url is http(s)://host[:port] of the appliance, and nothing more")
    return url


def _named(name: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise BadOptionError(
            f"{name}={text!r} is no name: letters, digits and . _ - may be in it, as in orders.eu"
        )
    return text


def _topics(name: str, text: str) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for one in named:
        if not _PATTERN.fullmatch(one):
            raise BadOptionError(f"{name}: {one!r} is neither a topic's name nor a pattern")
    return named


def _regular(name: str, text: str) -> tuple[str, ...]:
    try:
        re.compile(text)
    except re.error as error:
        raise BadOptionError(f"{name}={text!r} is no regular expression: {error}") from error
    return (f"/{text}/",)


def _assigned(name: str, text: str) -> tuple[str, ...]:
    given = _object(name, text)
    for topic, partitions in given.items():
        if partitions != [0]:
            raise BadOptionError(f'{name}: a topic has the partition 0 alone: {{"{topic}": [0]}}')
    return _topics(name, ",".join(given))


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,15}", text) or int(text) < 1:
        raise BadOptionError(f"{name}={text!r} is not a number from 1 on")
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise BadOptionError(f"{name}={text!r} is neither true nor false")
    return text.lower() == "true"


def _seconds(name: str, text: str) -> float:
    found = re.fullmatch(r"(\d{1,9})\s*(ms|s|m|min|h|d)", text)
    if not found:
        raise BadOptionError(f"{name}={text!r} is not a time as 500ms, 30s, 15m, 2h, 1d")
    return int(found[1]) * _UNITS_S[found[2]]


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise BadOptionError(f"{name}={text!r} is none of {', '.join(words)}")
        return text

    return read


def _columns(name: str, text: str) -> tuple[str, ...]:
    named = tuple(part.strip() for part in text.split(","))
    unknown = [one for one in named if one not in COLUMNS]
    if unknown or len(set(named)) != len(named):
        raise BadOptionError(f"{name}={text!r}: columns, each once, are {', '.join(COLUMNS)}")
    return named


def _keys(name: str, text: str) -> tuple[bytes, ...]:
    try:
        return tuple(
            base64.b64decode(one["base64"], validate=True)
            if isinstance(one, dict)
            else one.encode()
            for one in json.loads(text)
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadOptionError(
            f'{name} is not a JSON list of record keys as ["customer-7", {{"base64": "AAE="}}]'
        ) from error


COLUMNS: Final = ("key", "value", "headers", "topic", "offset", "timestamp")


def _place(*words: str) -> Callable[[str, str], Place]:
    """Of places that are these words, offsets and times."""

    def one(name: str, value: Any) -> str:
        text = _NEGATIVE.get(value, str(value)) if type(value) is int else value
        if isinstance(text, str):
            if text in words or re.fullmatch(r"\d{1,16}|latest-\d{1,16}", text):
                return text
            if found := _TIME.fullmatch(text):
                return f"@{found[1]}"
        raise BadOptionError(
            f"{name}={value!r} is none of {', '.join(words)}, latest-1000, a number, a time as "
            '2026-11-21T10:00:00Z, and JSON by topic as {"orders": 17}'
        )

    def read(name: str, text: str) -> Place:
        if not text.startswith("{"):
            return Place(one(name, text))
        return Place(by_topic=_by_topic(name, text, one))

    return read


def _time(name: str, text: str) -> Place:
    """Milliseconds since 1970, or as text."""
    return Place(_instant(name, int(text) if re.fullmatch(r"[0-9]{1,14}", text) else text))


def _times(name: str, text: str) -> Place:
    return Place(by_topic=_by_topic(name, text, _instant))


def _instant(name: str, value: Any) -> str:
    if type(value) is int and 0 <= value < 10**14:
        at = _EPOCH + timedelta(milliseconds=value)
        return f"@{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
    if isinstance(value, str) and (found := _TIME.fullmatch(value)):
        return f"@{found[1]}"
    raise BadOptionError(f"{name}: {value!r} is not a time in milliseconds since 1970")


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOptionError(f"{name} is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadOptionError(f"{name} is not a JSON object by topic")
    return given


def _by_topic(name: str, text: str, one: Callable[[str, Any], str]) -> dict[str, str]:
    """Of `{"orders": 17}`, and of `{"orders": {"0": 17}}` as the Kafka source has it."""
    found = {}
    for topic, value in _object(name, text).items():
        at = value
        if isinstance(value, dict):
            if value.keys() != {"0"}:
                raise BadOptionError(
                    f"{name}: topic {topic!r} has one partition, 0, and one order: "
                    f'{{"{topic}": 17}} or {{"{topic}": {{"0": 17}}}}'
                )
            at = value["0"]
        found[topic] = one(f"{name} of topic {topic!r}", at)
    return found


# --- declarations ---


@dataclass(frozen=True, slots=True)
class Option(Generic[T]):
    """`read`: makes the value of a text, or raises BadOptionError. `kind`, `default` and `meaning`:
    words for the table. `aliases`: other names, of the Kafka source, each with how it is read."""

    name: str
    read: Callable[[str, str], T]
    kind: str
    default: str
    meaning: str
    uses: tuple[Use, ...] = READ
    aliases: Mapping[str, Callable[[str, str], T]] = field(default_factory=dict)

    def row(self) -> str:
        also = ", ".join(f"`{alias}`" for alias in self.aliases)
        only = {"batch": " Batches only.", "stream": " Streams only."}
        where = only[self.uses[0]] if len(self.uses) == 1 and self.uses[0] in only else ""
        return f"| `{self.name}` | {also} | {self.kind} | {self.meaning}{where} | {self.default} |"


_STARTING: Final = _place("committed", "earliest", "latest")
_ENDING: Final = _place("latest")
_FORMS: Final = 'an offset, a time (`2026-11-21T10:00:00Z`), or JSON by topic (`{"orders": 17}`)'

URL: Final = Option(
    "url", _url, "`http(s)://host[:port]`", "required", "of the appliance", (*READ, "write")
)
TOKEN_FILE: Final = Option(
    "tokenFile", _text, "path", "required", "a file with the API key, on every host",
    (*READ, "write"),
)  # fmt: skip
TOPICS: Final = Option(
    "topics", _topics, "names, patterns", "required",
    "separated by commas: `orders.*,iot.**`; `subscribePattern` is a regular expression (of "
    'Python) for whole names, `assign` is `{"orders": [0]}`',
    aliases={"subscribe": _topics, "subscribePattern": _regular, "assign": _assigned},
)  # fmt: skip
GROUP: Final = Option(
    "group", _named, "name", "none; a stream requires it", "the consumer group",
    aliases={"kafka.group.id": _named},
)  # fmt: skip
STARTING: Final = Option(
    "startingOffsets", _STARTING, "place", "`committed` with a group, otherwise `earliest`",
    f"`committed`, `earliest`, `latest`, `latest-1000` (the last 1,000 offsets), {_FORMS}",
    aliases={"startingTimestamp": _time, "startingOffsetsByTimestamp": _times},
)  # fmt: skip
ENDING: Final = Option(
    "endingOffsets", _ENDING, "place", "`latest`",
    "the same without `committed` and `earliest`; exclusive.", ("batch",),
    aliases={"endingTimestamp": _time, "endingOffsetsByTimestamp": _times},
)  # fmt: skip
MOST: Final = Option(
    "maxRecordsPerTrigger", _number, "number", "no limit",
    "of a micro-batch, divided among the topics in proportion to their waiting records.",
    ("stream",), aliases={"maxOffsetsPerTrigger": _number},
)  # fmt: skip
LEAST: Final = Option(
    "minRecordsPerTrigger", _number, "number", "1",
    "a micro-batch waits until so many records wait, at most `maxTriggerDelay`; not with "
    "`availableNow` and `once`.",
    ("stream",), aliases={"minOffsetsPerTrigger": _number},
)  # fmt: skip
DELAY: Final = Option(
    "maxTriggerDelay", _seconds, "time: `30s`, `15m`", "`15m`",
    "the longest wait for `minRecordsPerTrigger`.", ("stream",),
)  # fmt: skip
MIN_PARTITIONS: Final = Option(
    "minPartitions", _number, "number", "1", "minimum number of tasks, if there are records enough"
)
TASK_RECORDS: Final = Option(
    "maxRecordsPerPartition",
    _number,
    "number",
    "500,000",
    "maximum number of offsets of a task; more if a batch had over 100,000 tasks",
)
FAIL_ON_LOSS: Final = Option(
    "failOnDataLoss", _flag, "`true`, `false`",
    "`true`: an error that names both offsets and the number of records",
    "`false`: continue at the log start if retention has removed records that were to be read",
)  # fmt: skip
WITH_HEADERS: Final = Option(
    "includeHeaders", _flag, "`true`, `false`", "`true`", "`false`: no column `headers`"
)
HEADERS_AS: Final = Option(
    "headersAs", _one_of("map", "array"), "`map`, `array`", "`map`",
    "`array`: of `struct<key: string, value: binary>`, as the Kafka source has them; with names "
    "that occur twice and null values, where a Kafka client sent such",
)  # fmt: skip
SHOWN: Final = Option(
    "columns", _columns, "names", "all", "only these columns, in this order: `offset,value`"
)
RECORD_KEYS: Final = Option(
    "recordKeys", _keys, "JSON list", "all records",
    'only records with these record keys: `["customer-7", {"base64": "AAE="}]`. All others are '
    "read, and not given to Spark",
)  # fmt: skip
ON_COMPACTION: Final = Option(
    "failOnCompaction", _flag, "`true`, `false`",
    "`true`: an error if the topic was compacted after the DataFrame was loaded",
    "`false`: continue without records that newer ones of their record key have replaced since.",
    ("batch",),
)  # fmt: skip
TRANSPORT: Final = Option(
    "transport", _one_of("api", "direct"), "`api`, `direct`", "`api`",
    "`direct`: see [below](#reading-the-bucket-itself-transportdirect)",
)  # fmt: skip
TOPIC: Final = Option(
    "topic", _named, "name", "none", "topic of rows without a column `topic`", ("write",)
)
PRODUCER_ID: Final = Option(
    "producerId", _named, "name", "none",
    "of a batch: a unique name for this batch, so that it can be run again, see "
    "[Writing](#writing)", ("write",),
)  # fmt: skip

OPTIONS: Final[tuple[Option[Any], ...]] = (
    URL, TOKEN_FILE, TOPICS, GROUP, STARTING, ENDING, MOST, LEAST, DELAY, MIN_PARTITIONS,
    TASK_RECORDS, FAIL_ON_LOSS, ON_COMPACTION, WITH_HEADERS, HEADERS_AS,
    SHOWN, RECORD_KEYS, TRANSPORT, TOPIC, PRODUCER_ID,
)  # fmt: skip

# What Spark itself puts among the options of a stream's sink.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path"})

# Options of the Kafka source and sink that have no equivalent: a beginning, and what to do.
_REFUSED: Final = {
    "groupidprefix": "a group has a name here, which keeps its offsets: use group",
    "kafka.bootstrap.servers": "use url (and tokenFile with an API key)",
    "kafka.": "settings of a Kafka client have no meaning here: url and tokenFile are enough",
    "kafkaconsumer.": "requests are retried for two minutes: leave it out",
    "fetchoffset.": "requests are retried for two minutes: leave it out",
    "startingoffsetsbytimestampstrategy": "a time after the last record is the log end: leave it "
    "out",
}
_SECRET: Final = re.compile(r"token|key|secret|password|authorization", re.IGNORECASE)


class Given:
    """Options as they were given, by the names that are declared here."""

    def __init__(self, found: Mapping[str, tuple[str, str]]) -> None:
        self._found = found  # by the declared name: the name that was used, and the text

    def get(self, option: Option[T]) -> T | None:
        """None if it was not given. Raises BadOptionError."""
        if option.name not in self._found:
            return None
        name, text = self._found[option.name]
        alias = option.aliases.get(name)
        return (alias or option.read)(name, text)

    def used(self, option: Option[Any]) -> str:
        """The name by which it was given."""
        return self._found[option.name][0]

    def needed(self, option: Option[T]) -> T:
        """Raises BadOptionError."""
        if not self._found.get(option.name, ("", ""))[1]:
            also = "".join(f" or {alias}" for alias in option.aliases)
            raise BadOptionError(f"the option {option.name}{also} is missing")
        value = self.get(option)
        assert value is not None
        return value

    def useless(self, use: Use) -> list[str]:
        """The names, as they were given, of options that have no effect there."""
        uses = {option.name: option.uses for option in OPTIONS}
        return [used for name, (used, _) in self._found.items() if use not in uses[name]]


def recognized(given: Mapping[str, str], uses: tuple[Use, ...]) -> Given:
    """Spark does not keep upper and lower case, and is silent about unknown options. Raises
    BadOptionError for those, and for an option that is given by two of its names."""
    options = [option for option in OPTIONS if set(uses) & set(option.uses)]
    names = {
        name.lower(): (name, option.name)
        for option in options
        for name in (option.name, *option.aliases)
    }
    found: dict[str, tuple[str, str]] = {}
    for asked, value in given.items():
        if asked.lower() in names:
            used, name = names[asked.lower()]
            if name in found:
                raise BadOptionError(f"{found[name][0]} and {used} mean the same: give one of them")
            found[name] = used, value.strip()
        elif "write" not in uses or asked.lower() not in _OF_SPARK:
            raise BadOptionError(_unknown(asked, names, options))
    return Given(found)


def _unknown(
    asked: str, names: Mapping[str, tuple[str, str]], options: Iterable[Option[Any]]
) -> str:
    for beginning, what in _REFUSED.items():
        if asked.lower().startswith(beginning):
            return f"the option {asked} is of the Kafka source: {what}"
    hint = ""
    if _SECRET.search(asked):
        hint = " An API key is never an option, where plans show it: put it into a file."
    elif near := difflib.get_close_matches(asked.lower(), names, 1, 0.8):
        hint = f" Is it {names[near[0]][0]}?"
    known = ", ".join(option.name for option in options)
    return f"unknown option {asked!r}; known here: {known}.{hint}"


def connection(given: Mapping[str, str]) -> tuple[str, str]:
    """Of any options, the appliance's url and the tokenFile. Raises BadOptionError."""
    options = recognized(given, (*READ, "write"))
    return options.needed(URL), options.needed(TOKEN_FILE)


def without(given: Mapping[str, str], *options: Option[Any]) -> dict[str, str]:
    """Options as they were given, except these by any of their names."""
    names = {name.lower() for option in options for name in (option.name, *option.aliases)}
    return {name: value for name, value in given.items() if name.lower() not in names}


def table(*uses: Use) -> str:
    """The options of these uses as docs/spark.md has them."""
    rows = [option.row() for option in OPTIONS if set(uses) & set(option.uses)]
    head = "| option | or | type | meaning | default |\n|---|---|---|---|---|\n"
    return head + "".join(f"{row}\n" for row in rows)
