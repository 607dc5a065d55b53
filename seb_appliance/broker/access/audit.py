"""Operators' changes of topics, API keys, users and groups, and the audit notes of them.

A note lies in the same entry as the events of its change. Refused and unauthenticated actions are
not noted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.append.admission import AdmittedTopic, Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import SebError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import AuditNoted, Event
from seb_appliance.formats.topic_settings import TopicSettings

USER: Final = "user:"

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: an API key's id, `user:NAME`, or "" for the appliance itself; the address that it
    calls from, and what its client calls itself (at most limits.USER_AGENT_CHARACTERS_MAX).
    `owner`: whose share of common resources is taken (shares.py)."""

    name: str
    address: str
    user_agent: str = ""
    owner: str = OPERATOR

    @classmethod
    def of_key(cls, key: ApiKeyView, address: str = "", user_agent: str = "") -> Actor:
        """An admin's key takes the operators' share."""
        owner = OPERATOR if grants_admin(key.grants) else key.api_key_id
        return cls(key.api_key_id, address, user_agent, owner)


THE_APPLIANCE: Final = Actor("", "")
AT_THE_MACHINE: Final = Actor("", "control.sock")


@dataclass(frozen=True, slots=True)
class Action:
    """`name` as the event's, `kind` of subject: topic, api_key, group, user. `before` and `after`
    must hold no secret, nor its hash."""

    name: str
    kind: str
    subject: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


def note(window: Window, by: Actor, at_us: int, action: Action) -> None:
    """Add the note to the window that holds the action's events."""
    event = AuditNoted(
        at_us=at_us,
        actor=by.name,
        address=by.address,
        action=action.name,
        subject_kind=action.kind,
        subject=action.subject,
        before=_small_json(action.before),
        after=_small_json(action.after),
        user_agent=by.user_agent,
    )
    window.add_event(event, encoded_bytes(event))


def topic_created(name: str, topic: AdmittedTopic | None) -> Action:
    """`topic`: as it was just admitted, by itself or as a fork."""
    assert topic is not None, name
    after = of_topic(topic.topic_id, topic.settings)
    if topic.fork is None:
        return Action("topic_created", "topic", name, after=after)
    after["fork_of"] = {"topic": topic.fork.name, "offset": topic.fork.offset}
    return Action("topic_forked", "topic", name, after=after)


class AuditedWrites:
    """Stores operators' changes, each with its audit note in the same entry."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    async def store(
        self,
        admit: Callable[[Window], Action | None],
        by: Actor,
        changed_in: Callable[[], Window | None] = lambda: None,
    ) -> bool:
        """Whether anything changed. `admit` adds the events of a change to the window and returns
        what to note, or None if there is nothing to change; the answer then rests on the window
        that `changed_in` returns, which is waited for."""

        def admit_and_note(window: Window) -> bool:
            if (action := admit(window)) is not None:
                note(window, by, self._writes.clock.wall_us(), action)
            return action is not None

        is_changed = await self._writes.operate(admit_and_note, owner=by.owner)
        if not is_changed:
            await self._writes.once_stored(changed_in())
        return is_changed


class RowsAhead(Generic[Row]):
    """`rows` by name, as they will be once everything admitted is stored."""

    def __init__(self, rows: dict[str, Row], missing: Callable[[str], SebError]) -> None:
        self.rows = rows
        self._missing = missing
        self._changed_in: dict[str, Window] = {}

    def find(self, name: str) -> Row:
        """Raises Refusal with the error that `missing` makes."""
        row = self.rows.get(name)
        if row is None:
            raise Refusal(self._missing(name), self.changed_in(name))
        return row

    def change(self, window: Window, name: str, row: Row | None, event: Event) -> None:
        """Add `event` to the window. `row`: after the event; None: it is removed."""
        if row is None:
            del self.rows[name]
        else:
            self.rows[name] = row
        pending = self._changed_in.items()
        self._changed_in = {n: w for n, w in pending if not w.is_done and n != name}
        self._changed_in[name] = window
        window.add_event(event, encoded_bytes(event))

    def changed_in(self, name: str) -> Window | None:
        """The window with the last change of the row, unless that was long ago."""
        return self._changed_in.get(name)

    def last_pending(self) -> Window | None:
        """The window with the newest change that is not stored yet."""
        pending = [window for window in self._changed_in.values() if not window.is_done]
        return pending[-1] if pending else None


def of_topic(topic_id: int, settings: TopicSettings) -> dict[str, Any]:
    return {"topic_id": topic_id, "settings": settings}


def of_offsets(offsets: Mapping[str, int | None]) -> dict[str, Any]:
    """By topic; None where there was no offset."""
    return {"offsets": offsets}


def _small_json(value: Mapping[str, Any] | None) -> str | None:
    """The value as JSON; one too large is only counted."""
    if value is None:
        return None
    text = msgspec.json.encode(value)
    if len(text) > limits.AUDIT_JSON_LENGTH_MAX:
        text = msgspec.json.encode({"omitted_bytes": len(text)})
    return text.decode()
