"""YAML as plain data.

The parser's events are read one by one. Refused: anchors and aliases (a few lines can expand to
gigabytes), tags (they construct objects), duplicate names, a second document. `yaml.compose` has
line numbers too, but hides tags and anchors, and its C version crashes on deep nesting. A plain
scalar is null, true, false, a whole number, a decimal or text: `on`, `no` and times are text. A
JSON document keeps its meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml

from seb_appliance import limits
from seb_appliance.errors import ConfigurationError

DEPTH_MAX: Final = 8  # the files that are read here need four
_CONSTANTS: Final[dict[str, bool | None]] = {
    "": None, "~": None, "null": None, "true": True, "false": False,
}  # fmt: skip
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,18})\.[0-9]{1,18}")
# The parser in C reads megabytes a second. A PyYAML built from source may lack it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EXPECTED: Final[dict[type, str]] = {
    dict: "names with values (name: value)",
    list: "a list",
    str: "text; quote it if it is text",
    bool: "true or false",
}
T = TypeVar("T")


@dataclass(slots=True)
class Node:
    """`text`: a scalar as written; `path`: the names that lead to it; `line` counts from 1."""

    source: str
    line: int
    path: tuple[str, ...]
    value: Any = None  # a mapping or a list holds nodes
    text: str = ""

    def wrong(self, what: str) -> ConfigurationError:
        at = f" {' / '.join(self.path)}:" if self.path else ""
        return ConfigurationError(f"{self.source}, line {self.line}:{at} {what}")

    def expect(self, kind: type[T]) -> T:
        """The value. Raises ConfigurationError if it is not of this kind."""
        if not isinstance(self.value, kind):
            raise self.wrong(f"expected {_EXPECTED[kind]}")
        return self.value

    def members(self, known: Iterable[str] = ()) -> dict[str, Node]:
        """Of a mapping; {} of null. Raises ConfigurationError, also for a name that is not `known`
        (if any is)."""
        known = frozenset(known)
        found: dict[str, Node] = {} if self.value is None else self.expect(dict)
        for name, node in found.items():
            if known and name not in known:
                raise node.wrong(f"unknown name; expected one of {', '.join(sorted(known))}")
        return found


def read_nodes(data: bytes, source: str) -> Node:
    """The one document in `data`, which is UTF-8. Raises ConfigurationError that names the line."""
    if len(data) > limits.APPLY_FILE_BYTES_MAX:
        raise ConfigurationError(f"{source} has more than {limits.APPLY_FILE_BYTES_MAX} bytes")
    try:
        return _document(yaml.parse(data.decode("utf-8-sig"), Loader=_LOADER), source)
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
        if found is not None:
            raise Node(source, event.start_mark.line + 1, ()).wrong("a second document; write one")
        found = _node(next(events), events, source, ())
    if found is None or found.value is None:
        raise ConfigurationError(f"{source} is empty")
    return found


def _node(event: Any, events: Iterator[Any], source: str, path: tuple[str, ...]) -> Node:
    """The node that begins with `event`; `events` has the rest of it."""
    found = Node(source, event.start_mark.line + 1, path)
    if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
        raise found.wrong("anchors and aliases (& and *) are not supported")
    if event.tag is not None:
        raise found.wrong(f"tags are not supported ({event.tag[:100]})")
    if len(path) > DEPTH_MAX:
        raise found.wrong(f"nested deeper than {DEPTH_MAX}")
    if isinstance(event, yaml.ScalarEvent):
        found.text = event.value
        found.value = _plain(event.value) if event.implicit[0] else event.value
    elif isinstance(event, yaml.SequenceStartEvent):
        found.value = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            here = (*path, str(len(found.value) + 1))
            found.value.append(_node(event, events, source, here))
    else:
        found.value = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            name = _name(event, events, source, path)
            if name.text in found.value:
                first = found.value[name.text].line
                raise name.wrong(f"{name.text!r} is given twice (first in line {first})")
            found.value[name.text] = _node(next(events), events, source, (*path, name.text))
    return found


def _name(event: Any, events: Iterator[Any], source: str, path: tuple[str, ...]) -> Node:
    here = Node(source, event.start_mark.line + 1, path)
    if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
        raise here.wrong("a name must be a scalar, not a list or a mapping")
    name = _node(event, events, source, path)
    if not name.text:
        raise here.wrong("a name is missing")
    return name


def _plain(text: str) -> bool | int | float | str | None:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text
