"""What `seb apply` works with: the state that a file asks for, the state of an appliance, and the
changes that lead from one to the other.

A state maps each part (topics, groups, api_keys) to its members by name. States are compared in the
words of the file: they are equal if their words are. A default value has no word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from seb_appliance.cli.errors import CommandError
from seb_appliance.client import Admin
from seb_appliance.formats.api_key_members import QUOTAS, Grant
from seb_appliance.formats.declared import Declared
from seb_appliance.formats.topic_settings import SETTINGS

Json = dict[str, Any]
Words = dict[str, Any]
State = dict[str, dict[str, Json]]


def _words(values: Json, declared: Mapping[str, Declared]) -> Words:
    """`{"linger": "20ms", "early_flush": True}`: the values that are set."""
    given = {one: values.get(name) for name, one in declared.items()}
    return {
        one.word: value if one.kind in ("switch", "ratio", "number") else one.text(value)
        for one, value in given.items()
        if value is not None
    }


def _api_key_words(key: Json) -> Words:
    words: Words = {"description": key["description"]} if key["description"] else {}
    # Neither the order of grants nor their repetition means anything.
    words["grants"] = sorted(
        {grant.text() for grant in msgspec.convert(key["grants"], list[Grant])}
    )
    words |= _words(key["quotas"], QUOTAS)
    if key["expires"] is not None:  # to the microsecond, in UTC: 2027-01-01T00:00:00Z
        time = datetime.fromisoformat(key["expires"]).astimezone(UTC)
        words["expires"] = f"{time.replace(tzinfo=None).isoformat()}Z"
    if key["disabled"]:
        words["disabled"] = True
    return words


# Each part, and how the API's members of one name become words. A group has its topics, each with
# where reading begins. Topics come first and go last, because a group needs its topics.
PARTS: Final[dict[str, Callable[[Json], Words]]] = {
    "topics": lambda settings: _words(settings, SETTINGS),
    "groups": dict,
    "api_keys": _api_key_words,
}
_DELETED: Final = ("groups", "topics", "api_keys")


class Found(NamedTuple):
    """What exists under a name. Only API keys have an id; two of them may share a name."""

    name: str
    words: Words
    api_key_id: str | None = None


def look(admin: Admin, wanted: State | None) -> dict[str, list[Found]]:
    """The parts that `wanted` names (None: all). A group that it does not name has no topics here.
    Raises ApplianceError."""
    found: dict[str, list[Found]] = {}
    for part in PARTS if wanted is None else wanted:
        words = PARTS[part]
        if part == "topics":
            found[part] = [
                Found(topic["topic"], words(topic["settings"])) for topic in admin.topics()
            ]
        elif part == "groups":
            for name in (group["group"] for group in admin.groups()):
                asked = wanted is None or name in wanted[part]
                topics = [topic["topic"] for topic in admin.group(name)["topics"]] if asked else []
                starts = dict.fromkeys(sorted(topics), "earliest")
                found.setdefault(part, []).append(Found(name, starts))
        else:
            found[part] = [
                Found(key["name"], words(key), key["api_key_id"]) for key in admin.api_keys()
            ]
    return found


def export(admin: Admin) -> dict[str, dict[str, Words]]:
    """The whole state in the words of the file. Raises ApplianceError; CommandError when API keys
    share a name."""
    present = look(admin, None)
    named = {part: _by_name(present.get(part, ())) for part in PARTS}
    return {part: {n: there[n].words for n in sorted(there)} for part, there in named.items()}


def _by_name(there: Iterable[Found]) -> dict[str, Found]:
    """Raises CommandError when two API keys have the same name."""
    found: dict[str, Found] = {}
    for one in there:
        if one.name in found:
            ids = f"{found[one.name].api_key_id} and {one.api_key_id}"
            raise CommandError(
                f"the API keys {ids} are both called {one.name!r}, and a file identifies API keys "
                "by name: rename or revoke one of them (seb api-keys)"
            )
        found[one.name] = one
    return found


class Change(NamedTuple):
    """`before` and `after`: words of the file; of a change, those that differ. `api_key_id`: of an
    API key that exists."""

    action: Literal["create", "change", "delete"]
    kind: str
    name: str
    api_key_id: str | None
    before: Words
    after: Words


class Plan(NamedTuple):
    """`changes` in the order to make them; `extra`: what exists and is not in the file."""

    changes: list[Change]
    extra: list[Change]


def plan(wanted: State, present: Mapping[str, list[Found]], *, prune: bool, in_use: str) -> Plan:
    """`prune`: delete what is not in the file, but never the API key `in_use`. Raises CommandError
    when a name of the file is that of two API keys.

    What is created comes first in its part, because an admin key must exist at any time.
    """
    changes: list[Change] = []
    for part in (part for part in PARTS if part in wanted):
        named = wanted[part]
        there = _by_name(one for one in present.get(part, ()) if one.name in named)
        found = [_change(part, n, there.get(n), PARTS[part](named[n])) for n in named]
        changes += sorted(filter(None, found), key=lambda change: change.action != "create")
    extra = [
        Change("delete", part[:-1], one.name, one.api_key_id, one.words, {})
        for part in _DELETED
        for one in present.get(part, ())
        if one.name not in wanted[part]
    ]
    kept = [change for change in extra if not prune or change.api_key_id == in_use]
    return Plan(changes + [change for change in extra if change not in kept], kept)


def _change(part: str, name: str, there: Found | None, after: Words) -> Change | None:
    before = {} if there is None else there.words
    if part == "groups":  # its offsets stay where they are
        before = {topic: start for topic, start in after.items() if topic in before}
    differ = [word for word in {**before, **after} if before.get(word) != after.get(word)]
    if not differ and (there is not None or part == "groups"):
        return None
    was = {word: before[word] for word in differ if word in before}
    will = {word: after[word] for word in differ if word in after}
    if there is None:
        return Change("create", part[:-1], name, None, {}, after)
    return Change("change", part[:-1], name, there.api_key_id, was, will)
