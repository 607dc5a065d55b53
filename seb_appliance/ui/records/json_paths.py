"""Paths into JSON values, such as `$.customer.name` or `$.lines[0]['unit price']`, and comparisons
with what is there, such as `$.total > 100`.

A path is a singular query of RFC 9535: each step names one member of an object, or one element of a
list.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seb_appliance.errors import BadRequestError

_NAME: Final = r"""[^\s.,\[\]'"=!<>~]+"""
_STEP: Final = re.compile(
    rf"""\.(?P<name>{_NAME}) | \[(?P<index>-?\d{{1,9}})\]
    | \['(?P<single>[^']*)'\] | \["(?P<double>[^"]*)"\]""",
    re.VERBOSE,
)
NOTHING: Final = object()
"""What is where a path leads nowhere, and in what is no JSON."""
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "~": lambda value, part: str(part) in str(value),
}
_OPERATOR: Final = re.compile(r"\s*(==|!=|<=|>=|=|<|>|~)\s*")


@dataclass(frozen=True, slots=True)
class JsonPath:
    """`name`: as it was written."""

    name: str
    steps: tuple[str | int, ...]

    def find(self, document: object) -> object:
        """What is at the path; `NOTHING` if there is nothing."""
        for step in self.steps:
            if isinstance(document, dict) and isinstance(step, str):
                document = document.get(step, NOTHING)
            elif isinstance(document, list) and isinstance(step, int):
                document = document[step] if -len(document) <= step < len(document) else NOTHING
            else:
                return NOTHING
        return document

    def text(self, document: object) -> str:
        """What is at the path: a string as it is, else JSON; "" for nothing."""
        found = self.find(document)
        if found is NOTHING:
            return ""
        return found if isinstance(found, str) else msgspec.json.encode(found).decode()


@dataclass(frozen=True, slots=True)
class Condition:
    """`comparison`: "" asks only whether there is something at the path. Values are compared if
    both are numbers, or both of one other type; `~` asks whether one text contains the other."""

    path: JsonPath
    comparison: str = ""
    literal: object = None

    def fits(self, document: object) -> bool:
        found = self.path.find(document)
        if found is NOTHING or not self.comparison:
            return found is not NOTHING
        if self.comparison == "~":
            found, literal = self.path.text(document), self.literal
        elif _kind(found) != _kind(self.literal):
            return self.comparison == "!="
        else:
            literal = self.literal
        try:
            return _COMPARED[self.comparison](found, literal)
        except TypeError:  # null, objects and lists have no order
            return False


def _kind(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value)


def _path(text: str) -> tuple[JsonPath, str]:
    """The path that `text` begins with, and the rest. `$.` may be left out."""
    at = 1 if text.startswith("$") else 0
    rest = text if at or text.startswith("[") else f".{text}"
    steps: list[str | int] = []
    while step := _STEP.match(rest, at):
        name = next(found for found in step.groups() if found is not None)
        steps.append(int(name) if step["index"] else name)
        at = step.end()
    if not steps and rest[:1] != "$":
        raise BadRequestError(f"{text[:100]!r} is not a path such as $.customer.name.")
    return JsonPath(rest[:at].removeprefix("$").removeprefix("."), tuple(steps)), rest[at:].strip()


def paths_of(text: str) -> list[JsonPath]:
    """Paths with commas between them. Raises BadRequestError."""
    found = [_path(one.strip()) for one in text.split(",") if one.strip()]
    for path, rest in found:
        if rest:
            raise BadRequestError(f"{rest[:100]!r} follows the path {path.name!r}.")
    return [path for path, _ in found]


def paths_in(document: object, depth: int = 3) -> Iterator[str]:
    """Paths of the members of an object, also of those in it, that `paths_of` reads."""
    for name, value in document.items() if isinstance(document, dict) else ():
        if re.fullmatch(_NAME, name):
            inner = list(paths_in(value, depth - 1)) if depth > 1 else []
            yield from (f"{name}.{path}" for path in inner) if inner else (name,)


def condition_of(text: str) -> Condition:
    """A path, or a path, an operator (= != < <= > >= ~) and a JSON value; what is no JSON is taken
    as text. Raises BadRequestError."""
    path, rest = _path(text.strip())
    if not rest:
        return Condition(path)
    found = _OPERATOR.match(rest)
    if found is None:
        raise BadRequestError(f"After the path {path.name!r}, write one of = != < <= > >= ~.")
    written = rest[found.end() :]
    try:
        literal: object = msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        literal = written
    if found[1] == "~":
        literal = literal if isinstance(literal, str) else written
    return Condition(path, found[1], literal)
