"""YAML as it is read here: plain data that knows its lines, and nothing else.

The parser's events are taken one by one, so that nothing is made of what is refused: anchors and
aliases (a few lines of which unfold into gigabytes), tags (which name something to construct), a
name that is given twice, a second document. A plain scalar is null, true, false, a whole number, a
decimal or text: `on`, `no` and times are text. All that is JSON is read as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from seb_appliance import limits
from seb_appliance.start_errors import ConfigurationError

DEPTH_MAX: Final = 8  # the files that are read here need four
_WORDS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "true": True, "false": False,
}  # fmt: skip
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})\.[0-9]{1,18}")
# The one in C reads megabytes a second; PyYAML comes without it only where it was built so.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Node:
    """`value`: None, a bool, a number, text, nodes by name, or a list of nodes; `text`: a scalar as
    it was written. `path`: the names that lead to it; `line` counts from 1."""

    value: bool | int | float | str | dict[str, Node] | list[Node] | None
    text: str
    source: str
    line: int
    path: tuple[str, ...]

    def wrong(self, what: str) -> ConfigurationError:
        """`what` goes on after the place, and has no full stop."""
        at = " / ".join(self.path)
        return ConfigurationError(
            f"{self.source}, line {self.line}: {f'{at}: ' if at else ''}{what}"
        )

    def members(self, *, known: frozenset[str] | None = None) -> dict[str, Node]:
        """Of a mapping; none of null. Raises ConfigurationError, also for one that is not among
        `known` (None: whatever they are called)."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.wrong("expected names with values (name: value)")
        for name, node in self.value.items():
            if known is not None and name not in known:
                raise node.wrong(f"not known here; known: {', '.join(sorted(known))}")
        return self.value

    def items(self) -> list[Node]:
        """Of a list. Raises ConfigurationError."""
        if not isinstance(self.value, list):
            raise self.wrong("expected a list")
        return self.value

    def words(self) -> str:
        """Of a scalar that is text. Raises ConfigurationError."""
        if not isinstance(self.value, str):
            raise self.wrong("expected text; put it in quotes if that is what it is")
        return self.value

    def switch(self) -> bool:
        """Raises ConfigurationError."""
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
    """The one that begins with `event`; the rest of it is taken from `events`."""
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
