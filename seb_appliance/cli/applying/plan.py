"""What has to be done so that an appliance is as a file says. Decided here, done elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from seb_appliance.cli.applying.desired import (
    Kind,
    Present,
    Wanted,
    Words,
    api_key_words,
    by_name,
    topic_words,
)

Action = Literal["create", "change", "delete"]


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after`: the words of the file, of a change those that differ. An API key that
    is there has its id."""

    action: Action
    kind: Kind
    name: str
    before: Words
    after: Words
    api_key_id: str | None = None

    def members(self) -> dict[str, Any]:
        """For programs."""
        shown = {"action": self.action, "kind": self.kind, "name": self.name}
        more = {"api_key_id": self.api_key_id, "before": self.before, "after": self.after}
        return {**shown, **more}


@dataclass(frozen=True, slots=True)
class Plan:
    """`changes` in the order in which they are to be made; `extra`: what is there and is not in the
    file."""

    changes: tuple[Change, ...]
    extra: tuple[Change, ...]

    @property
    def deletions(self) -> list[Change]:
        return [change for change in self.changes if change.action == "delete"]

    @property
    def makes_api_keys(self) -> bool:
        return any(c.action == "create" and c.kind == "api_key" for c in self.changes)


def plan(wanted: Wanted, present: Present, *, prune: bool, in_use: str) -> Plan:
    """`prune`: what is not in the file goes, but never the API key `in_use`. Raises CommandError
    when a name of the file is that of two API keys.

    What others stand on comes first, and goes last: a group needs its topics, and somebody must be
    able to administer all the time.
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
        before = None if key is None else api_key_words(key.state)
        api_key_id = None if key is None else key.api_key_id
        found += _change("api_key", name, before, api_key_words(state), api_key_id)
    return sorted(found, key=lambda change: change.action != "create")


def _change(
    kind: Kind, name: str, before: Words | None, after: Words, api_key_id: str | None = None
) -> list[Change]:
    """None, or the one that is needed."""
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
        Change("delete", "api_key", key.name, api_key_words(key.state), {}, key.api_key_id)
        for key in present.api_keys or ()
        if key.name not in (wanted.api_keys or {})
    ]
    return [*groups, *topics, *api_keys]
