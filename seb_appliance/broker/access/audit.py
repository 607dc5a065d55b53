"""Who did what: a note in the same entry as the events that an operator's action made.

Only what was admitted is noted. Refused and unauthenticated actions go nowhere near the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.append.admission import AdmittedTopic
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.ports import ApiKeyRow
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import AuditNoted
from seb_appliance.formats.topic_settings import TopicSettings

USER: Final = "user:"


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


def note_topic_created(
    window: Window, by: Actor, at_us: int, name: str, topic: AdmittedTopic | None
) -> None:
    """`topic`: as it was just admitted to the window."""
    assert topic is not None, name
    after = of_topic(topic.topic_id, topic.settings)
    note(window, by, at_us, Action("topic_created", "topic", name, after=after))


def note_topic_forked(
    window: Window, by: Actor, at_us: int, name: str, topic: AdmittedTopic | None
) -> None:
    """`topic`: as it was just admitted to the window."""
    assert topic is not None, name
    assert topic.fork is not None, name
    fork_of = {"topic": topic.fork.name, "offset": topic.fork.offset}
    after = of_topic(topic.topic_id, topic.settings) | {"fork_of": fork_of}
    note(window, by, at_us, Action("topic_forked", "topic", name, after=after))


def of_topic(topic_id: int, settings: TopicSettings) -> dict[str, Any]:
    return {"topic_id": topic_id, "settings": settings}


def of_api_key(row: ApiKeyRow) -> dict[str, Any]:
    """What can be seen and changed of it."""
    return {
        "name": row.name,
        "description": row.description,
        "grants": row.grants,
        "expires_us": row.expires_us,
        "disabled": row.disabled,
        "quotas": row.quotas,
    }


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
