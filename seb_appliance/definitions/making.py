"""Makes one change of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seb_appliance.client import Admin, ApplianceError
from seb_appliance.definitions.state import Change, Json
from seb_appliance.errors import OffsetConflictError
from seb_appliance.formats.topic_settings import SETTINGS


def make(admin: Admin, change: Change, members: Json, keep_secret: Callable[[Json], None]) -> None:
    """`members`: of the file, as in the API. `keep_secret` gets a new API key, and a new inlet or
    subscription whose secret is a random one. Durable afterwards. Raises ApplianceError."""
    name, api_key_id = change.name, change.api_key_id or ""
    match change.kind, change.action:
        case "topic", "create":
            admin.create_topic(name, **members)
        case "topic", "change":
            words = {**change.before, **change.after}
            changed = {
                one.name: members[one.name] for one in SETTINGS.values() if one.word in words
            }
            admin.change_topic(name, **changed)
        case "topic", "delete":
            admin.delete_topic(name)
        case "group", "delete":
            admin.delete_group(name)
        case "group", _:
            for topic, start in change.after.items():
                bounds = admin.topic(topic)
                offset = bounds["log_start_offset" if start == "earliest" else "log_end_offset"]
                try:
                    admin.commit(name, {topic: offset}, expected={topic: None})
                except ApplianceError as error:
                    # The group has committed since we looked: its own offset stays.
                    if error.code != OffsetConflictError.code:
                        raise
        case "queue", "delete":
            admin.delete_queue(name)
        case "queue", _:
            admin.set_queue(name, **members)
        case "inlet", "delete":
            admin.delete_inlet(name)
        case "inlet", _:
            made = admin.set_inlet(name, **members)
            if "secret" in made:
                keep_secret({"name": name, **made})
        case "subscription", "delete":
            admin.delete_subscription(name)
        case "subscription", _:
            settings = members.pop("settings")
            made = admin.set_subscription(name, **settings, **members)
            if "secret" in made:
                keep_secret({"name": name, **made})
        case "api_key", "create":
            more = {member: members[member] for member in members if member != "grants"}
            keep_secret(admin.create_api_key(name, members["grants"], **more, unique_name=True))
        case "api_key", "change":
            admin.change_api_key(api_key_id, **members)
        case "api_key", "delete":
            admin.revoke_api_key(api_key_id)


def word(value: Any) -> str:
    """A value of the file, for people."""
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " and ".join(value) if isinstance(value, list) else str(value)
