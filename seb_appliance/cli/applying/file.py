"""The file of `seb apply`: read with every doubt refused by its line, and written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
import msgspec
import yaml

from seb_appliance import limits
from seb_appliance.cli.api_key_members import QUOTAS, parse_grant
from seb_appliance.cli.applying.nodes import Node, read_nodes
from seb_appliance.cli.applying.state import (
    PARTS,
    ApiKeyState,
    Start,
    Wanted,
    api_key_words,
    topic_words,
)
from seb_appliance.cli.failures import CommandError
from seb_appliance.cli.topics import DEFAULT, SETTINGS
from seb_appliance.formats.operations import Grant, Quotas, TopicSettings

T = TypeVar("T")

NEVER: Final = "never"
# A topic's settings by both of their names: `linger: 20ms` and, as the API has it, `linger_ms: 20`.
_MEMBERS: Final = {member: name for name, (member, _, _) in SETTINGS.items() if member != name}
_TOPIC: Final = frozenset({*SETTINGS, *_MEMBERS})
_API_KEY: Final = frozenset({"description", "grants", "expires", "disabled", *QUOTAS})


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # PyYAML comes without types
    """Escapes what is not printed as it is: some characters would be read as ends of lines."""


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
    parts = {
        "topics": _words(wanted.topics, topic_words),
        "groups": _words(wanted.groups, dict),
        "api_keys": _words(wanted.api_keys, api_key_words),
    }
    return {name: part for name, part in parts.items() if part is not None}


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


def _words(part: dict[str, T] | None, words: Callable[[T], Any]) -> dict[str, Any] | None:
    return None if part is None else {name: words(part[name]) for name in sorted(part)}


def _topic(node: Node) -> TopicSettings:
    settings: dict[str, Any] = {}
    for name, given in node.members(known=_TOPIC).items():
        member = name if name in _MEMBERS else SETTINGS[name][0]
        if member in settings:
            raise given.wrong(f"given twice, as {_MEMBERS[member]} and as {member}")
        whole = name in _MEMBERS
        settings[member] = _whole(given) if whole else _setting(given, SETTINGS[name][1])
    return TopicSettings(**settings)


def _setting(node: Node, parse: Callable[[str], Any]) -> Any:
    """None: the appliance's default."""
    if node.value is None or node.value == DEFAULT:
        return None
    if isinstance(node.value, bool):
        return _read(node, "on" if node.value else "off", parse)
    return _read(node, _text(node), parse)


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
        if given.value == "earliest":
            starts[topic] = "earliest"
        elif given.value == "latest":
            starts[topic] = "latest"
        else:
            raise given.wrong(f"{given.text[:100]!r} is neither earliest nor latest")
    return starts


def _api_key(node: Node) -> ApiKeyState:
    given = node.members(known=_API_KEY)
    if "grants" not in given:
        raise node.wrong("grants are missing")
    quotas = {
        name: _read(given[name], _text(given[name]), parse)
        for name, (parse, _) in QUOTAS.items()
        if name in given and given[name].value is not None
    }
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
        members = parse_grant(node.words())
    except click.UsageError as error:
        raise node.wrong(error.message) from error
    return _converted(node, members, Grant)


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


def _text(node: Node) -> str:
    if isinstance(node.value, dict | list):
        raise node.wrong("expected one value")
    return node.text


def _read(node: Node, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _converted(node: Node, members: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        raise node.wrong(str(error)) from error
