"""The form of an API key: its grants, with the topics that each matches now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from seb_appliance import limits, quantities
from seb_appliance.broker.names import check_pattern
from seb_appliance.broker.patterns import Patterns
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadParameterError, BadRequestError
from seb_appliance.formats.operations import GRANT_OPERATIONS, Grant, Quotas
from seb_appliance.ui.fields import time_field, time_us, whole
from seb_appliance.ui.forms import Form
from seb_appliance.ui.units import count

FIELDS: Final = frozenset(
    {"name", "description", "expires", "requests", "bytes_in", "bytes_out"}
    | {"operation", "topics", "groups", "step"}
)
_EMPTY_ROWS: Final = 2
_TOPICS_NAMED: Final = 6
_AT_ONCE: Final = 100  # names matched without a break: at worst a millisecond


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One row of the form, as it was given. `matches`: which topics it is for, in words."""

    operation: str
    topics: str
    groups: str
    matches: str


def values_of(form: Form) -> dict[str, str]:
    """The fields that are there once, to show them again."""
    names = ("name", "description", "expires", "requests", "bytes_in", "bytes_out")
    return {name: form.text(name) for name in names}


def values_of_key(key: ApiKeyView) -> dict[str, str]:
    """An API key as the form holds it."""
    quotas = key.quotas
    return {
        "name": key.name,
        "description": key.description,
        "expires": time_field(key.expires_us),
        "requests": str(quotas.requests_per_second or ""),
        "bytes_in": _size_field(quotas.bytes_in_per_second),
        "bytes_out": _size_field(quotas.bytes_out_per_second),
    }


async def rows_of(form: Form, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    """The grants of a form, and empty rows for more. `topics`: names of all there are, asked for
    only if there is a grant."""
    return await _rows(_given(form), topics)


async def rows_of_key(key: ApiKeyView, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    return await _rows([(one.operation, one.topics, one.groups) for one in key.grants], topics)


def members_of(form: Form) -> dict[str, Any]:
    """What the form asks for, as `Access.change` takes it. Raises BadRequestError,
    BadParameterError."""
    name, description = form.text("name"), form.text("description")
    if not 1 <= len(name) <= limits.API_KEY_NAME_LENGTH_MAX:
        raise BadRequestError(f"A name has 1 to {limits.API_KEY_NAME_LENGTH_MAX} characters.")
    if len(description) > limits.API_KEY_DESCRIPTION_LENGTH_MAX:
        raise BadRequestError(
            f"A description has at most {limits.API_KEY_DESCRIPTION_LENGTH_MAX} characters."
        )
    grants = tuple(_grant(*row) for row in _given(form))
    if not grants:
        raise BadRequestError("Choose an operation: an API key without a grant can do nothing.")
    requests = form.text("requests")
    return {
        "name": name,
        "description": description,
        "grants": grants,
        "expires_us": time_us(form.text("expires"), "The expiry"),
        "quotas": {
            "requests_per_second": whole(requests, "Requests", smallest=1) if requests else None,
            "bytes_in_per_second": _size(form.text("bytes_in"), "Bytes in"),
            "bytes_out_per_second": _size(form.text("bytes_out"), "Bytes out"),
        },
    }


def quotas_of(members: dict[str, Any]) -> Quotas:
    return Quotas(**members["quotas"])


def _given(form: Form) -> list[tuple[str, str, str]]:
    """Operation, topics and groups of each row that has an operation. Raises BadRequestError."""
    columns = [form.all(name) for name in ("operation", "topics", "groups")]
    if len({len(column) for column in columns}) != 1:
        raise BadRequestError("Each grant has an operation, topics and groups.")
    rows = [(row[0], row[1].strip(), row[2].strip()) for row in zip(*columns, strict=True)]
    return [row for row in rows if row[0]]


def _grant(operation: str, topics: str, groups: str) -> Grant:
    for known in GRANT_OPERATIONS:
        if known == operation:
            return Grant(
                operation=known,
                topics=check_pattern(topics or "**"),
                groups=check_pattern(groups or "**"),
            )
    raise BadRequestError(f"An operation is one of {', '.join(GRANT_OPERATIONS)}.")


async def _rows(
    grants: Sequence[tuple[str, str, str]], topics: Callable[[], Sequence[str]]
) -> list[GrantRow]:
    matched: dict[str, _Matched] = {}
    wrong: dict[str, str] = {}
    for pattern in {pattern or "**" for _, pattern, _ in grants}:
        try:
            matched[check_pattern(pattern)] = _Matched()
        except BadParameterError as error:
            wrong[pattern] = error.detail
    patterns = Patterns(matched)
    names = topics() if matched else ()
    # One walk for all patterns, some at a time: there may be 10,000 topics and 100 grants.
    for begin in range(0, len(names), _AT_ONCE):
        for name in names[begin : begin + _AT_ONCE]:
            for number in patterns.match(name):
                matched[patterns.patterns[number]].add(name)
        await asyncio.sleep(0)
    rows = []
    for operation, pattern, groups in grants:
        words = wrong.get(pattern) or matched[pattern or "**"].words(len(names))
        if operation == "admin":
            words = "everything, API keys and users included"
        rows.append(GrantRow(operation, pattern, groups, words))
    return rows + [GrantRow("", "", "", "")] * _EMPTY_ROWS


@dataclass(slots=True)
class _Matched:
    """Topics that a pattern matches: how many, and the first few."""

    topics: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.topics += 1
        if self.topics <= _TOPICS_NAMED:
            self.first.append(name)

    def words(self, of: int) -> str:
        if not self.topics:
            return "no topic that is there now"
        left_out = self.topics - len(self.first)
        more = f" and {count(left_out)} more" if left_out else ""
        return f"{count(self.topics)} of {count(of)} topics: {', '.join(self.first)}{more}"


def _size(text: str, name: str) -> int | None:
    if not text:
        return None
    try:
        size_bytes = quantities.size_bytes(text[:100])
    except ValueError as error:
        raise BadRequestError(f"{name}: {error}.") from error
    if not 1 <= size_bytes <= limits.OFFSET_MAX:
        raise BadRequestError(f"{name} is at least one byte a second, or empty for no bound.")
    return size_bytes


def _size_field(size_bytes: int | None) -> str:
    return "" if size_bytes is None else quantities.format_size(size_bytes)
