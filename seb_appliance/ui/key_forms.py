"""The form of an API key: its grants, with the topics that each matches now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seb_appliance import limits, quantities
from seb_appliance.broker.names import check_pattern
from seb_appliance.broker.patterns import PatternTrie
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadParameterError, BadRequestError
from seb_appliance.formats.operations import Grant, Quotas
from seb_appliance.ui.fields import time_field, time_us, whole
from seb_appliance.ui.forms import Form
from seb_appliance.ui.units import count

FIELDS: Final = frozenset(
    {"name", "description", "expires", "requests", "bytes_in", "bytes_out"}
    | {"operation", "topics", "groups", "step"}
)
_OPERATIONS: Final = ("produce", "consume", "manage", "admin")
_EMPTY_ROWS: Final = 2
_TOPICS_NAMED: Final = 6


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


def rows_of(form: Form, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    """The grants of a form, and empty rows for more. `topics`: names of all there are, asked for
    only if there is a grant."""
    return _rows(_given(form), topics)


def rows_of_key(key: ApiKeyView, topics: Callable[[], Sequence[str]]) -> list[GrantRow]:
    return _rows([(one.operation, one.topics, one.groups) for one in key.grants], topics)


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
    for known in _OPERATIONS:
        if known == operation:
            return Grant(
                operation=known,
                topics=check_pattern(topics or "**"),
                groups=check_pattern(groups or "**"),
            )
    raise BadRequestError(f"An operation is one of {', '.join(_OPERATIONS)}.")


def _rows(
    grants: Sequence[tuple[str, str, str]], topics: Callable[[], Sequence[str]]
) -> list[GrantRow]:
    trie: PatternTrie[int] = PatternTrie(names_kept=0)
    words: dict[int, str] = {}
    for i, (operation, pattern, _) in enumerate(grants):
        try:
            trie.add(check_pattern(pattern or "**"), i)
        except BadParameterError as error:
            words[i] = error.detail
        if operation == "admin":
            words[i] = "everything, API keys and users included"
    matched: list[list[str]] = [[] for _ in grants]
    names = topics() if grants else ()
    for name in names:  # one walk for all patterns: there may be 10,000 topics and 100 grants
        for i in trie.match(name):
            matched[i].append(name)
    rows = [
        GrantRow(*grant, words.get(i) or _matches(matched[i], len(names)))
        for i, grant in enumerate(grants)
    ]
    return rows + [GrantRow("", "", "", "")] * _EMPTY_ROWS


def _matches(matched: Sequence[str], topics: int) -> str:
    if not matched:
        return "no topic that is there now"
    named = ", ".join(matched[:_TOPICS_NAMED])
    more = f" and {count(len(matched) - _TOPICS_NAMED)} more" if matched[_TOPICS_NAMED:] else ""
    return f"{count(len(matched))} of {count(topics)} topics: {named}{more}"


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
