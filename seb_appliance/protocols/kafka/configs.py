"""Settings of a topic under Kafka's names. Settings that Kafka does not have are `seb.` and our
name, such as `seb.linger_ms`, with values as on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.wire.codec import Message

_STRING, _LONG, _DOUBLE, _LIST = 2, 5, 6, 7  # types of Kafka's configs
_OF_TOPIC, _DEFAULT = 1, 5  # sources
_PREFIX: Final = "seb."
_UNLIMITED: Final = "-1"

# Kafka's name, ours, and the type.
NAMES: Final = {
    "cleanup.policy": ("cleanup", _LIST),
    "compression.type": ("compression", _STRING),
    "delete.retention.ms": ("tombstone_retention_ms", _LONG),
    "max.message.bytes": ("max_record_bytes", _LONG),
    "min.cleanable.dirty.ratio": ("dirty_ratio", _DOUBLE),
    "min.compaction.lag.ms": ("min_compaction_lag_ms", _LONG),
    "retention.bytes": ("retention_bytes", _LONG),
    "retention.ms": ("retention_ms", _LONG),
}
# What Kafka's topics have besides, and has no effect here.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
        "file.delete.delay.ms", "flush.messages", "flush.ms",
        "follower.replication.throttled.replicas", "index.interval.bytes",
        "internal.segment.bytes", "leader.replication.throttled.replicas",
        "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms",
        "message.downconversion.enable", "message.format.version",
        "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms", "message.timestamp.type", "min.insync.replicas",
        "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable",
        "remote.storage.enable", "segment.bytes", "segment.index.bytes", "segment.jitter.ms",
        "segment.ms", "unclean.leader.election.enable",
    }
)  # fmt: skip
_KAFKA_NAMES: Final = {ours: name for name, (ours, _) in NAMES.items()}
_CLEANUPS: Final = {
    frozenset({"delete"}): "delete",
    frozenset({"compact"}): "compact",
    frozenset({"compact", "delete"}): "compact,delete",
    frozenset[str](): "none",
}
# How producers compressed is not kept, so what asks for their codec gets ours.
_COMPRESSIONS: Final = {"uncompressed": "none", "zstd": "zstd"}
_OTHER_COMPRESSIONS: Final = frozenset({"producer", "gzip", "snappy", "lz4"})


class BadConfigError(KafkaError):
    """A config that there is not, or a value that it cannot have."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, text)


class Config(NamedTuple):
    """`value` None: without limit. `is_set`: for this topic."""

    name: str
    value: Any
    is_set: bool
    text: str
    kind: int
    help: str


def changes_of(given: Mapping[str, str | None]) -> dict[str, Any]:
    """As `Topics.change` takes them, of configs by Kafka's name; None restores the default. Those
    that have no effect here are ignored, since clients set many. Raises BadConfigError."""
    changes = dict[str, Any]()
    for name, text in given.items():
        known = NAMES.get(name)
        field = known[0] if known is not None else name.removeprefix(_PREFIX)
        if name in _WITHOUT_EFFECT:
            continue
        if known is None and not (name.startswith(_PREFIX) and field in SETTINGS):
            raise BadConfigError(f"{name[:200]!r} is no config of a topic")
        try:
            changes[field] = None if text is None else _value(field, text, ours=known is None)
        except ValueError as error:
            raise BadConfigError(f"{name}: {error}") from error
    return changes


def listed(name: str, effective: TopicSettings, given: str, *, appended: bool) -> str:
    """The value of a list config once `given` is appended to it, or taken away. Raises
    BadConfigError if that is no list."""
    if NAMES.get(name, ("", _STRING))[1] != _LIST:
        raise BadConfigError(f"{name[:200]!r} is no list that can be appended to")
    words = _words(_text(NAMES[name][0], getattr(effective, NAMES[name][0])))
    return ",".join(sorted(words | _words(given) if appended else words - _words(given)))


def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip() for word in text.split(",")) - {""}


def _value(field: str, text: str, *, ours: bool) -> Any:
    """Raises ValueError."""
    if ours:
        declared = SETTINGS[field]
        # As it is described, so that clients may set all that they have read.
        return None if text == declared.text_or_unlimited(None) else declared.parse(text)
    if field == "cleanup":
        words = _words(text)
        if words not in _CLEANUPS:
            raise ValueError(f"{text!r} is no clean-up policy")
        return _CLEANUPS[words]
    if field == "compression":
        if text in _OTHER_COMPRESSIONS:
            return None
        if text not in _COMPRESSIONS:
            raise ValueError(f"{text!r} is no compression type")
        return _COMPRESSIONS[text]
    if field == "dirty_ratio":
        return float(text)
    return None if text == _UNLIMITED else int(text)


def configs_of(settings: TopicSettings, effective: TopicSettings) -> Iterator[Config]:
    """Of a topic: as set, and as they are with the defaults."""
    for field, declared in SETTINGS.items():
        name = _KAFKA_NAMES.get(field)
        value, is_set = getattr(effective, field), getattr(settings, field) is not None
        if name is None:
            text = declared.text_or_unlimited(value)
            yield Config(_PREFIX + field, value, is_set, text, _STRING, declared.help)
        else:
            yield Config(name, value, is_set, _text(field, value), NAMES[name][1], declared.help)


def _text(field: str, value: Any) -> str:
    if field == "compression":
        return "uncompressed" if value == "none" else str(value)
    if field == "cleanup":
        return "" if value == "none" else str(value)
    return _UNLIMITED if value is None else str(value)


def described(config: Config) -> Message:
    """As DescribeConfigs and CreateTopics answer."""
    source = _OF_TOPIC if config.is_set else _DEFAULT
    return {
        "name": config.name,
        "value": config.text,
        "config_source": source,
        "config_type": config.kind,
        "documentation": config.help,
        "synonyms": [{"name": config.name, "value": config.text, "source": source}],
    }
