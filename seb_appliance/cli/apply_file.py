"""The file of `seb apply`: read with every doubt refused by its line, and written."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
import yaml

from seb_appliance import limits
from seb_appliance.cli.apply_plan import ApiKeyState, Start, Wanted, topic_words
from seb_appliance.cli.errors import CommandError
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.api_key_members import QUOTAS, Grant, Quotas
from seb_appliance.formats.declared import Declared
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings

# YAML as plain data with line numbers.
#
# The parser's events are read one by one. Refused: anchors and aliases (a few lines can unfold into
# gigabytes), tags (they construct objects), duplicate names, a second document. `yaml.compose` has
# line numbers too, but hides tags and anchors, and its C version crashes on deep nesting. A plain
# scalar is null, true, false, a whole number, a decimal or text: `on`, `no` and times are text. A
# JSON document keeps its meaning.


DEPTH_MAX: Final = 8  # the files that are read here need four
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "true": True, "false": False,
}  # fmt: skip
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})\.[0-9]{1,18}")
# The parser in C reads megabytes a second. A PyYAML built from source may lack it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Node:
    """`text`: a scalar as written; `path`: the names that lead to it; `line` counts from 1."""

    value: bool | int | float | str | dict[str, Node] | list[Node] | None
    text: str
    source: str
    line: int
    path: tuple[str, ...]

    def wrong(self, what: str) -> ConfigurationError:
        at = " / ".join(self.path)
        return ConfigurationError(
            f"{self.source}, line {self.line}: {f'{at}: ' if at else ''}{what}"
        )

    def members(self, *, known: frozenset[str] | None = None) -> dict[str, Node]:
        """Of a mapping; {} of null. Raises ConfigurationError, also for a name that is not `known`
        (None: any)."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.wrong("expected names with values (name: value)")
        for name, node in self.value.items():
            if known is not None and name not in known:
                raise node.wrong(f"not known here; known: {', '.join(sorted(known))}")
        return self.value

    def items(self) -> list[Node]:
        if not isinstance(self.value, list):
            raise self.wrong("expected a list")
        return self.value

    def words(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong("expected text; put it in quotes if that is what it is")
        return self.value

    def switch(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong("expected true or false")
        return self.value


def read_nodes(data: bytes, source: str) -> Node:
    """The one document in `data`, which is UTF-8. Raises ConfigurationError that names the line."""
    if len(data) > limits.APPLY_FILE_BYTES_MAX:
        raise ConfigurationError(f"{source} has more than {limits.APPLY_FILE_BYTES_MAX} bytes")
    try:
        text = data.decode("utf-8-sig")
        events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        return _document(events, source)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source} is not UTF-8 (at byte {error.start})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigurationError(f"{source}, line {line}: not YAML ({error.problem})") from error
    except yaml.YAMLError as error:
        why = getattr(error, "reason", None) or str(error)
        raise ConfigurationError(f"{source} is not YAML ({why})") from error


def _document(events: Iterator[Any], source: str) -> Node:
    found: Node | None = None
    for event in events:
        if isinstance(event, yaml.StreamStartEvent | yaml.DocumentEndEvent | yaml.StreamEndEvent):
            continue
        line = event.start_mark.line + 1
        if found is not None:
            raise ConfigurationError(f"{source}, line {line}: a second document; write one")
        assert isinstance(event, yaml.DocumentStartEvent), event
        found = _node(next(events), events, source, ())
    if found is None or found.value is None:
        raise ConfigurationError(f"{source} holds nothing")
    return found


def _node(event: Any, events: Iterator[Any], source: str, path: tuple[str, ...]) -> Node:
    """The node that begins with `event`; `events` has the rest of it."""
    here = Node(None, "", source, event.start_mark.line + 1, path)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise here.wrong("anchors and aliases (& and *) are not taken; write it out")
    if event.tag is not None:
        raise here.wrong(f"tags are not taken ({event.tag[:100]})")
    if len(path) > DEPTH_MAX:
        raise here.wrong(f"nested deeper than {DEPTH_MAX}")
    if isinstance(event, yaml.ScalarEvent):
        value: Any = event.value if not event.implicit[0] else _plain(event.value)
        return Node(value, event.value, source, here.line, path)
    if isinstance(event, yaml.SequenceStartEvent):
        return Node(_list(events, source, path), "", source, here.line, path)
    assert isinstance(event, yaml.MappingStartEvent), event
    return Node(_mapping(events, source, path), "", source, here.line, path)


def _list(events: Iterator[Any], source: str, path: tuple[str, ...]) -> list[Node]:
    found: list[Node] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        found.append(_node(event, events, source, (*path, str(len(found) + 1))))
    return found


def _mapping(events: Iterator[Any], source: str, path: tuple[str, ...]) -> dict[str, Node]:
    found: dict[str, Node] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        here = Node(None, "", source, event.start_mark.line + 1, path)
        if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            raise here.wrong("a name is a word, not a list or a mapping")
        name = _node(event, events, source, path)
        if not name.text:
            raise here.wrong("a name is missing")
        if name.text in found:
            first = found[name.text].line
            raise name.wrong(f"{name.text!r} is given twice (first in line {first})")
        found[name.text] = _node(next(events), events, source, (*path, name.text))
    return found


def _plain(text: str) -> bool | int | float | str | None:
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text


T = TypeVar("T")

NEVER: Final = "never"
DEFAULT: Final = "default"
PARTS: Final = frozenset({"topics", "groups", "api_keys"})
# A duration has two names: `linger: 20ms` and, as in the API, `linger_ms: 20`.
_BY_NAME: Final = {name: one for one in SETTINGS.values() for name in (one.word, one.name)}
_API_KEY: Final = frozenset({"description", "grants", "expires", "disabled", *QUOTAS})


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML comes without types
    """Escapes unprintable characters: some would be read as ends of lines."""


def _text_node(dumper: _Dumper, text: str) -> Any:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text_node)


def read_wanted(data: bytes, source: str) -> Wanted:
    """Raises ConfigurationError that names the line and what is wrong there."""
    parts = read_nodes(data, source).members(known=PARTS)
    for node in parts.values():
        if node.value is None:
            raise node.wrong("nothing is under it: take it out, or write {} if there shall be none")
    return Wanted(
        _each(parts.get("topics"), _topic),
        _each(parts.get("groups"), _group),
        _each(parts.get("api_keys"), _api_key),
    )


def as_words(wanted: Wanted) -> dict[str, dict[str, Any]]:
    """As it stands in the file."""
    words: dict[str, Callable[[Any], Any]]
    words = {"topics": topic_words, "groups": dict, "api_keys": ApiKeyState.words}
    parts = {name: getattr(wanted, name) for name in words}
    return {
        name: {key: words[name](part[key]) for key in sorted(part)}
        for name, part in parts.items()
        if part is not None
    }


def write_wanted(wanted: Wanted) -> str:
    """The file that says this. Raises CommandError when it is larger than may be read."""
    text: str = yaml.dump(
        as_words(wanted), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    if len(text.encode()) > limits.APPLY_FILE_BYTES_MAX:
        raise CommandError(f"the file has more than {limits.APPLY_FILE_BYTES_MAX} bytes")
    return text


def _each(part: Node | None, read: Callable[[Node], T]) -> dict[str, T] | None:
    if part is None:
        return None
    return {name: read(node) for name, node in part.members().items()}


def _topic(node: Node) -> TopicSettings:
    settings: dict[str, Any] = {}
    for name, given in node.members(known=frozenset(_BY_NAME)).items():
        one = _BY_NAME[name]
        if one.name in settings:
            raise given.wrong(f"given twice, as {one.word} and as {one.name}")
        settings[one.name] = _whole(given) if name != one.word else _value(given, one)
    return TopicSettings(**settings)


def _value(node: Node, one: Declared) -> Any:
    """None: the appliance's default."""
    if node.value is None or node.value == DEFAULT:
        return None
    if isinstance(node.value, dict | list):
        raise node.wrong("expected one value")
    is_switch = isinstance(node.value, bool)
    text = ("on" if node.value else "off") if is_switch else node.text
    try:
        return one.parse(text)
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _whole(node: Node) -> int | None:
    """A number of milliseconds."""
    if node.value is None:
        return None
    if type(node.value) is not int or not 0 <= node.value <= limits.OFFSET_MAX:
        raise node.wrong(f"{node.text[:100]!r} is not a number from 0 to {limits.OFFSET_MAX}")
    return node.value


def _group(node: Node) -> dict[str, Start]:
    starts: dict[str, Start] = {}
    for topic, given in node.members().items():
        if given.value not in ("earliest", "latest"):
            raise given.wrong(f"{given.text[:100]!r} is neither earliest nor latest")
        starts[topic] = "earliest" if given.value == "earliest" else "latest"
    return starts


def _api_key(node: Node) -> ApiKeyState:
    given = node.members(known=_API_KEY)
    if "grants" not in given:
        raise node.wrong("grants are missing")
    quotas = {name: _value(given[name], one) for name, one in QUOTAS.items() if name in given}
    return ApiKeyState(
        grants=_grants(given["grants"]),
        description=given["description"].words() if "description" in given else "",
        quotas=_converted(node, quotas, Quotas),
        expires=_expires(given["expires"]) if "expires" in given else None,
        disabled=given["disabled"].switch() if "disabled" in given else False,
    )


def _grants(node: Node) -> tuple[Grant, ...]:
    if not node.items():
        raise node.wrong("an API key has at least one")
    return tuple(_grant(item) for item in node.items())


def _grant(node: Node) -> Grant:
    try:
        return Grant.parse(node.words())
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _expires(node: Node) -> datetime | None:
    if node.value is None or node.value == NEVER:
        return None
    wrong = node.wrong(
        f"{node.text[:100]!r} is neither a time with its zone, such as 2027-01-01T00:00:00Z, "
        f"nor {NEVER}"
    )
    try:
        time = datetime.fromisoformat(node.words())
        if time.tzinfo is None:
            raise wrong
        return time.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # there is no year 10000, which it is in UTC
        raise wrong from error


def _converted(node: Node, members: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        raise node.wrong(str(error)) from error
