"""What `seb apply` works with: the state that a file asks for, the state of an appliance, and the
changes that lead from one to the other.

States are compared in the words of the file: two states are the same when their words are. A value
that is the default has no word.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from seb_appliance.cli.errors import CommandError
from seb_appliance.client import Admin
from seb_appliance.formats.api_key_members import QUOTAS, Grant, Quotas
from seb_appliance.formats.topic_settings import SETTINGS, TopicSettings

Action = Literal["create", "change", "delete"]
Kind = Literal["topic", "group", "api_key"]
Start = Literal["earliest", "latest"]
Word = str | bool | int | float | list[str]
Words = dict[str, Word]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiKeyState:
    """An API key without its name, id and secret. `expires` None: never."""

    grants: tuple[Grant, ...]
    description: str = ""
    quotas: Quotas = field(default_factory=Quotas)
    expires: datetime | None = None
    disabled: bool = False

    @classmethod
    def of(cls, key: Json) -> ApiKeyState:
        """Of the API's JSON."""
        return cls(
            msgspec.convert(key["grants"], tuple[Grant, ...]),
            key["description"],
            msgspec.convert(key["quotas"], Quotas),
            None if key["expires"] is None else datetime.fromisoformat(key["expires"]),
            key["disabled"],
        )

    def members(self) -> Json:
        """As the API has them."""
        return {
            "grants": msgspec.to_builtins(self.grants),
            "description": self.description,
            "quotas": msgspec.to_builtins(self.quotas),
            "expires": None if self.expires is None else _time_words(self.expires),
            "disabled": self.disabled,
        }

    def words(self) -> Words:
        """`{"grants": ["produce:orders.*"], "bytes_in_per_second": "1MiB"}`."""
        words: Words = {"description": self.description} if self.description else {}
        # Neither the order of grants nor their repetition means anything.
        words["grants"] = sorted({grant.text() for grant in self.grants})
        for name, one in QUOTAS.items():
            value = getattr(self.quotas, name)
            if value is not None:
                words[name] = value if one.kind == "number" else one.text(value)
        if self.expires is not None:
            words["expires"] = _time_words(self.expires)
        if self.disabled:
            words["disabled"] = True
        return words


def topic_words(settings: TopicSettings) -> Words:
    """`{"linger": "20ms", "early_flush": True}`: what the topic sets itself."""
    values = {one: getattr(settings, one.name) for one in SETTINGS.values()}
    return {
        one.word: value if isinstance(value, bool | float) else one.text(value)
        for one, value in values.items()
        if value is not None
    }


def _time_words(time: datetime) -> str:
    """To the microsecond where it has any, in UTC: `2027-01-01T00:00:00Z`."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file says, by name. A part that it does not name is None, and is left alone.

    A group: where it begins on each topic on which it has no offset yet."""

    topics: dict[str, TopicSettings] | None
    groups: dict[str, dict[str, Start]] | None
    api_keys: dict[str, ApiKeyState] | None


@dataclass(frozen=True, slots=True)
class ApiKeyThere:
    """API keys may share a name, but not an id."""

    api_key_id: str
    name: str
    state: ApiKeyState


@dataclass(frozen=True, slots=True)
class Present:
    """The state of an appliance; of a group, the topics on which it has an offset. A part that was
    not asked for is None."""

    topics: dict[str, TopicSettings] | None
    groups: dict[str, frozenset[str]] | None
    api_keys: tuple[ApiKeyThere, ...] | None


def look(admin: Admin, wanted: Wanted) -> Present:
    """The parts that `wanted` names; groups that it does not name are without topics. Raises
    ApplianceError."""
    return Present(
        None if wanted.topics is None else _topics_there(admin),
        None if wanted.groups is None else _groups_there(admin, wanted.groups),
        None if wanted.api_keys is None else _api_keys_there(admin),
    )


def export(admin: Admin) -> Wanted:
    """The whole state, as a wish that changes nothing. Raises ApplianceError; CommandError when API
    keys share a name."""
    groups: dict[str, dict[str, Start]] = {
        group: dict.fromkeys(sorted(topics), "earliest")
        for group, topics in _groups_there(admin, None).items()
    }
    keys = by_name(_api_keys_there(admin))
    return Wanted(_topics_there(admin), groups, {name: key.state for name, key in keys.items()})


def by_name(there: Collection[ApiKeyThere]) -> dict[str, ApiKeyThere]:
    """Raises CommandError when two have the same name."""
    found: dict[str, ApiKeyThere] = {}
    for key in there:
        if key.name in found:
            ids = f"{found[key.name].api_key_id} and {key.api_key_id}"
            raise CommandError(
                f"the API keys {ids} are both called {key.name!r}, and a file tells them apart by "
                "name: rename or revoke one of them (seb api-keys)"
            )
        found[key.name] = key
    return found


def _topics_there(admin: Admin) -> dict[str, TopicSettings]:
    return {
        topic["topic"]: msgspec.convert(topic["settings"], TopicSettings)
        for topic in admin.topics()
    }


def _groups_there(admin: Admin, named: Collection[str] | None) -> dict[str, frozenset[str]]:
    """`named`: the groups whose topics are asked for; None: all."""
    found = dict.fromkeys((group["group"] for group in admin.groups()), frozenset[str]())
    for name in found:
        if named is None or name in named:
            found[name] = frozenset(topic["topic"] for topic in admin.group(name)["topics"])
    return found


def _api_keys_there(admin: Admin) -> tuple[ApiKeyThere, ...]:
    return tuple(
        ApiKeyThere(key["api_key_id"], key["name"], ApiKeyState.of(key)) for key in admin.api_keys()
    )


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after`: words of the file; of a change, those that differ. `api_key_id`: of an
    API key that exists."""

    action: Action
    kind: Kind
    name: str
    before: Words
    after: Words
    api_key_id: str | None = None

    def members(self) -> dict[str, Any]:
        """For programs."""
        names = ("action", "kind", "name", "api_key_id", "before", "after")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Plan:
    """`changes` in the order to make them; `extra`: what exists and is not in the file."""

    changes: tuple[Change, ...]
    extra: tuple[Change, ...]

    @property
    def deletions(self) -> list[Change]:
        return [change for change in self.changes if change.action == "delete"]

    @property
    def makes_api_keys(self) -> bool:
        return any(c.action == "create" and c.kind == "api_key" for c in self.changes)


def plan(wanted: Wanted, present: Present, *, prune: bool, in_use: str) -> Plan:
    """`prune`: delete what is not in the file, but never the API key `in_use`. Raises CommandError
    when a name of the file is that of two API keys.

    A group needs its topics, so topics come first and go last; an admin key must exist at any time.
    """
    changes = [*_topics(wanted, present), *_groups(wanted, present), *_api_keys(wanted, present)]
    extra = _extra(wanted, present)
    if prune:
        going = [change for change in extra if change.api_key_id != in_use]
        return Plan((*changes, *going), tuple(change for change in extra if change not in going))
    return Plan(tuple(changes), tuple(extra))


def _topics(wanted: Wanted, present: Present) -> list[Change]:
    there = present.topics or {}
    found = []
    for name, settings in (wanted.topics or {}).items():
        before = topic_words(there[name]) if name in there else None
        found += _change("topic", name, before, topic_words(settings))
    return found


def _groups(wanted: Wanted, present: Present) -> list[Change]:
    there = present.groups or {}
    found = []
    for name, starts in (wanted.groups or {}).items():
        known = there.get(name, frozenset())
        after: Words = {topic: start for topic, start in starts.items() if topic not in known}
        if after:
            found.append(Change("change" if name in there else "create", "group", name, {}, after))
    return found


def _api_keys(wanted: Wanted, present: Present) -> list[Change]:
    named = wanted.api_keys or {}
    there = by_name([key for key in present.api_keys or () if key.name in named])
    found = []
    for name, state in named.items():
        key = there.get(name)
        before = None if key is None else key.state.words()
        api_key_id = None if key is None else key.api_key_id
        found += _change("api_key", name, before, state.words(), api_key_id)
    return sorted(found, key=lambda change: change.action != "create")


def _change(
    kind: Kind, name: str, before: Words | None, after: Words, api_key_id: str | None = None
) -> list[Change]:
    if before is None:
        return [Change("create", kind, name, {}, after)]
    differ = [word for word in {**before, **after} if before.get(word) != after.get(word)]
    if not differ:
        return []
    was = {word: before[word] for word in differ if word in before}
    will = {word: after[word] for word in differ if word in after}
    return [Change("change", kind, name, was, will, api_key_id)]


def _extra(wanted: Wanted, present: Present) -> list[Change]:
    """The deletions that would leave only what the file names, groups first."""
    groups = [
        Change("delete", "group", name, {}, {})
        for name in present.groups or {}
        if name not in (wanted.groups or {})
    ]
    topics = [
        Change("delete", "topic", name, topic_words(settings), {})
        for name, settings in (present.topics or {}).items()
        if name not in (wanted.topics or {})
    ]
    api_keys = [
        Change("delete", "api_key", key.name, key.state.words(), {}, key.api_key_id)
        for key in present.api_keys or ()
        if key.name not in (wanted.api_keys or {})
    ]
    return [*groups, *topics, *api_keys]
