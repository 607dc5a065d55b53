"""Make the changes of a plan, one after the other. What is begun anew finds what is left to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from seb_appliance.cli.applying.desired import ApiKeyState, Wanted, grant_members, time_words
from seb_appliance.cli.applying.plan import Change, Plan
from seb_appliance.cli.applying.report import Report, named
from seb_appliance.cli.commands.topics import SETTINGS
from seb_appliance.cli.output import tell
from seb_appliance.cli.remote import REFUSED, UNAVAILABLE, UNKNOWN, CommandError
from seb_appliance.cli.wording import in_our_words
from seb_appliance.client import Admin, ApplianceError
from seb_appliance.errors import OffsetConflictError

Json = dict[str, Any]


class Doing:
    """`made` is told of each API key that was made: the only time that its secret is seen."""

    def __init__(self, admin: Admin, wanted: Wanted, made: Callable[[Json], None]) -> None:
        self._admin = admin
        self._wanted = wanted
        self._made = made

    def do(self, change: Change) -> None:
        """Durable afterwards. Raises ApplianceError."""
        match change.kind:
            case "topic":
                self._topic(change)
            case "group":
                self._group(change)
            case "api_key":
                self._api_key(change)

    def _topic(self, change: Change) -> None:
        if change.action == "delete":
            self._admin.delete_topic(change.name)
            return
        assert self._wanted.topics is not None, change
        settings: Json = msgspec.to_builtins(self._wanted.topics[change.name])
        if change.action == "create":
            self._admin.create_topic(change.name, **settings)
        else:
            members = [SETTINGS[word][0] for word in {**change.before, **change.after}]
            self._admin.change_topic(change.name, **{name: settings[name] for name in members})

    def _group(self, change: Change) -> None:
        if change.action == "delete":
            self._admin.delete_group(change.name)
            return
        for topic, start in change.after.items():
            there = self._admin.topic(topic)
            offset = there["log_start_offset" if start == "earliest" else "log_end_offset"]
            try:
                self._admin.commit(change.name, {topic: offset}, expected={topic: None})
            except ApplianceError as error:
                # It has read there since we looked: where it is now is where it shall be.
                if error.code != OffsetConflictError.code:
                    raise

    def _api_key(self, change: Change) -> None:
        if change.action == "delete":
            assert change.api_key_id is not None, change
            self._admin.revoke_api_key(change.api_key_id)
            return
        assert self._wanted.api_keys is not None, change
        members = _members(self._wanted.api_keys[change.name])
        if change.api_key_id is None:
            grants = members.pop("grants")
            self._made(self._admin.create_api_key(change.name, grants, **members))
        else:
            self._admin.change_api_key(change.api_key_id, **members)


def carry_out(planned: Plan, doing: Doing, report: Report) -> None:
    """Stops at the first change that fails. Raises CommandError that says how far it came."""
    done = 0
    try:
        for change in planned.changes:
            doing.do(change)
            report.applied(change)
            done += 1
    except ApplianceError as error:
        code = UNKNOWN if error.side_effects == "unknown" else _code(error)
        raise CommandError(f"{error} {_how_far(planned, done, code)}", code) from error
    except CommandError as error:
        raise CommandError(f"{error}. {_how_far(planned, done)}", error.exit_code) from error
    except KeyboardInterrupt:
        tell(_how_far(planned, done, UNKNOWN))
        raise
    finally:
        report.end()


def _how_far(planned: Plan, done: int, code: int = REFUSED) -> str:
    """What an operator has to know when it stops at change number `done`, counted from 0."""
    at = planned.changes[done]
    went = "was made or not" if code == UNKNOWN else "was not made"
    text = f"Changes made: {done} of {len(planned.changes)}; {at.action} {named(at)} {went}. "
    if at.kind == "api_key" and at.action == "create" and code == UNKNOWN:
        text += "If it is there, its secret is lost: seb api-keys rotate gives it another. "
    return text + "The same command goes on from here."


@contextlib.contextmanager
def nothing_changed() -> Iterator[None]:
    """An ApplianceError within becomes a CommandError: whatever was asked, nothing was changed."""
    try:
        yield
    except ApplianceError as error:
        raise CommandError(
            f"{in_our_words(str(error))} Nothing was changed.", _code(error)
        ) from error


def _code(error: ApplianceError) -> int:
    return UNAVAILABLE if error.retryable else REFUSED


def _members(state: ApiKeyState) -> Json:
    """As the API has them."""
    return {
        "grants": [grant_members(grant) for grant in state.grants],
        "description": state.description,
        "quotas": msgspec.to_builtins(state.quotas),
        "expires": None if state.expires is None else time_words(state.expires),
        "disabled": state.disabled,
    }
