"""What can be wished for: topics, groups and API keys, as values and in the words of the file.

The words are canonical: two states are the same when their words are. What is at its default has
no word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from seb_appliance.cli.api_key_members import QUOTAS, grant_words
from seb_appliance.cli.topics import SETTINGS
from seb_appliance.formats.operations import Grant, Quotas, TopicSettings

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
