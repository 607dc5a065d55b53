"""What is on an appliance, in the same values as what is wished for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from seb_appliance.cli.applying.state import ApiKeyState, Start, Wanted
from seb_appliance.cli.failures import CommandError
from seb_appliance.client import Admin
from seb_appliance.formats.operations import Grant, Quotas, TopicSettings

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
