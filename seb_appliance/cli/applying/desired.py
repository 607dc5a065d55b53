"""What can be wished for: topics, groups and API keys, as values and in the words of the file.

The words are canonical: two states are the same when their words are. What is at its default has
no word.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from seb_appliance.cli.commands.api_keys import QUOTAS, grant_words
from seb_appliance.cli.commands.topics import SETTINGS
from seb_appliance.cli.remote import CommandError
from seb_appliance.client import Admin
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.topic_settings import TopicSettings

Start = Literal["earliest", "latest"]
Kind = Literal["topic", "group", "api_key"]
Word = str | bool | int | float | list[str]
Words = dict[str, Word]


@dataclass(frozen=True, slots=True)
class ApiKeyState:
    """An API key without its name, id and secret. `expires` None: never."""

    grants: tuple[Grant, ...]
    description: str = ""
    quotas: Quotas = field(default_factory=Quotas)
    expires: datetime | None = None
    disabled: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a file says, by name. A part that it does not name is None, and is left alone.

    A group: where it begins on each topic on which it has no offset yet."""

    topics: dict[str, TopicSettings] | None
    groups: dict[str, dict[str, Start]] | None
    api_keys: dict[str, ApiKeyState] | None


def topic_words(settings: TopicSettings) -> Words:
    """`{"linger": "20ms", "early_flush": True}`: what the topic sets itself."""
    words: Words = {}
    for name, (member, _, shown) in SETTINGS.items():
        value = getattr(settings, member)
        if value is not None:
            words[name] = value if isinstance(value, bool | float) else shown(value)
    return words


def api_key_words(state: ApiKeyState) -> Words:
    """`{"grants": ["produce:orders.*"], "bytes_in_per_second": "1MiB"}`."""
    words: Words = {}
    if state.description:
        words["description"] = state.description
    # Their order means nothing, nor does saying one twice.
    words["grants"] = sorted({grant_words(grant_members(grant)) for grant in state.grants})
    for name, (_, shown) in QUOTAS.items():
        value = getattr(state.quotas, name)
        if value is not None:
            words[name] = value if name.startswith("requests") else shown(value)
    if state.expires is not None:
        words["expires"] = time_words(state.expires)
    if state.disabled:
        words["disabled"] = True
    return words


def grant_members(grant: Grant) -> dict[str, str]:
    """As the API has it."""
    return {"operation": grant.operation, "topics": grant.topics, "groups": grant.groups}


def time_words(time: datetime) -> str:
    """To the microsecond where it has any, in UTC: `2027-01-01T00:00:00Z`."""
    return f"{time.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


PARTS: Final = frozenset({"topics", "groups", "api_keys"})


# What is on an appliance, in the same values as what is wished for.


Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ApiKeyThere:
    """API keys may share a name, but not an id."""

    api_key_id: str
    name: str
    state: ApiKeyState


@dataclass(frozen=True, slots=True)
class Present:
    """`groups`: the topics on which each has an offset. None: was not asked for."""

    topics: dict[str, TopicSettings] | None
    groups: dict[str, frozenset[str]] | None
    api_keys: tuple[ApiKeyThere, ...] | None


def look(admin: Admin, wanted: Wanted) -> Present:
    """What is there of the parts that `wanted` names; of groups that it does not name, not the
    topics. Raises ApplianceError."""
    return Present(
        None if wanted.topics is None else _topics(admin),
        None if wanted.groups is None else _groups(admin, wanted.groups),
        None if wanted.api_keys is None else _api_keys(admin),
    )


def export(admin: Admin) -> Wanted:
    """All of it, as a wish that changes nothing. Raises ApplianceError; CommandError when API keys
    share a name."""
    groups: dict[str, dict[str, Start]] = {
        group: dict.fromkeys(sorted(topics), "earliest")
        for group, topics in _groups(admin, None).items()
    }
    there = _api_keys(admin)
    return Wanted(_topics(admin), groups, {name: of.state for name, of in by_name(there).items()})


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


def _topics(admin: Admin) -> dict[str, TopicSettings]:
    return {
        topic["topic"]: msgspec.convert(topic["settings"], TopicSettings)
        for topic in admin.topics()
    }


def _groups(admin: Admin, named: Collection[str] | None) -> dict[str, frozenset[str]]:
    """`named`: of which the topics are asked for; None: of all."""
    return {
        group["group"]: _topics_of(admin, group["group"])
        if named is None or group["group"] in named
        else frozenset()
        for group in admin.groups()
    }


def _topics_of(admin: Admin, group: str) -> frozenset[str]:
    return frozenset(topic["topic"] for topic in admin.group(group)["topics"])


def _api_keys(admin: Admin) -> tuple[ApiKeyThere, ...]:
    return tuple(
        ApiKeyThere(key["api_key_id"], key["name"], _state(key)) for key in admin.api_keys()
    )


def _state(key: Json) -> ApiKeyState:
    return ApiKeyState(
        msgspec.convert(key["grants"], tuple[Grant, ...]),
        key["description"],
        msgspec.convert(key["quotas"], Quotas),
        None if key["expires"] is None else datetime.fromisoformat(key["expires"]),
        key["disabled"],
    )
