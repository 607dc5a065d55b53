"""Who may do what: who a token is, what it may do, and what operators do to API keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.api_keys import (
    FOR_EVER_US,
    ApiKeyEvent,
    ApiKeys,
    LastUsed,
    NewSecret,
    administers,
    after,
    draw_secret,
    no_such_api_key,
)
from seb_appliance.broker.access.audit import THE_APPLIANCE, Action, Actor
from seb_appliance.broker.access.grants import Authorizer
from seb_appliance.broker.access.tickets import Tickets
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.quotas import Meters
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.ports import ApiKeyRow
from seb_appliance.broker.shares import AllShares
from seb_appliance.broker.topics.names import check_pattern
from seb_appliance.broker.values import NO_QUOTAS, ApiKeyView
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError, ForbiddenError, LastAdminKeyError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
    Grant,
    Quotas,
)

# Admission of what is done to API keys; see admission.py for the view ahead and the rules.


_CHANGEABLE: Final = ("name", "description", "grants", "expires_us", "disabled", "quotas")


class ApiKeyAdmission:
    """Each `admit_…` adds to the window and changes the view, or raises Refusal and changes
    nothing. They answer with the API key as it was and as it will be."""

    def __init__(self, rows: list[ApiKeyRow]) -> None:
        self._rows = {row.api_key_id: row for row in rows}
        self._changed_in: dict[str, Window] = {}

    def changed_in(self, api_key_id: str) -> Window | None:
        """The window that makes or last changes the key; None when that was long ago."""
        return self._changed_in.get(api_key_id)

    def find(self, api_key_id: str) -> ApiKeyRow:
        """The key as it will be. Raises Refusal."""
        row = self._rows.get(api_key_id)
        if row is None:
            raise Refusal(no_such_api_key(api_key_id), self.changed_in(api_key_id))
        return row

    def admit_created(self, window: Window, event: ApiKeyCreated) -> ApiKeyRow:
        if len(self._rows) >= limits.API_KEYS_MAX:
            raise Refusal(
                BadRequestError(f"There are {limits.API_KEYS_MAX} API keys already."), None
            )
        assert event.api_key_id not in self._rows, event.api_key_id
        return self._admit(window, event)

    def admit_changed(
        self, window: Window, api_key_id: str, changes: dict[str, Any], now_us: int
    ) -> tuple[ApiKeyRow, ApiKeyRow] | None:
        """`changes`: members of ApiKeyChanged, and of its quotas those that change. None when all
        of it is so already."""
        before = self.find(api_key_id)
        members = {name: getattr(before, name) for name in _CHANGEABLE} | changes
        members["quotas"] = msgspec.structs.replace(before.quotas, **changes.get("quotas", {}))
        event = ApiKeyChanged(api_key_id=api_key_id, **members)
        if after(before, event) == before:
            return None
        self._check_admin_stays(event, now_us)
        return before, self._admit(window, event)

    def admit_rotated(self, window: Window, event: ApiKeyRotated) -> ApiKeyRow:
        self.find(event.api_key_id)
        return self._admit(window, event)

    def admit_revoked(self, window: Window, api_key_id: str, now_us: int) -> ApiKeyRow:
        """The key as it was."""
        before = self.find(api_key_id)
        event = ApiKeyRevoked(api_key_id=api_key_id, revoked_us=now_us)
        self._check_admin_stays(event, now_us)
        del self._rows[api_key_id]
        self._add(window, event)
        return before

    def _admit(self, window: Window, event: ApiKeyEvent) -> ApiKeyRow:
        row = after(self._rows.get(event.api_key_id), event)
        assert row is not None, event
        self._rows[event.api_key_id] = row
        self._add(window, event)
        return row

    def _add(self, window: Window, event: ApiKeyEvent) -> None:
        self._changed_in = {
            changed: within
            for changed, within in self._changed_in.items()
            if not within.is_done and changed != event.api_key_id
        }
        self._changed_in[event.api_key_id] = window
        window.add_event(event, encoded_bytes(event))

    def _check_admin_stays(self, event: ApiKeyEvent, now_us: int) -> None:
        """Somebody can administer, now and for ever, if somebody could. Raises Refusal."""
        row = after(self._rows[event.api_key_id], event)
        others = [other for other in self._rows.values() if other.api_key_id != event.api_key_id]
        left = others if row is None else [*others, row]
        for holds, which in (
            (_administers_for_ever, "that does not expire"),
            (administers, "that has not expired"),
        ):
            held = any(holds(other, now_us) for other in self._rows.values())
            if held and not any(holds(other, now_us) for other in left):
                waiting = [w for w in self._changed_in.values() if not w.is_done]
                raise Refusal(
                    LastAdminKeyError(
                        f"This is the last API key with the grant admin {which}; make another one "
                        "first."
                    ),
                    waiting[-1] if waiting else None,
                )


def _administers_for_ever(row: ApiKeyRow, now_us: int) -> bool:
    return row.expires_us is None and administers(row, now_us)


_ANYBODY: Final = ApiKeyView(
    "anybody",
    "anybody",
    (Grant(operation="produce"), Grant(operation="consume"), Grant(operation="manage")),
    created_us=0,
)


class Access:
    def __init__(
        self,
        api_keys: ApiKeys,
        writes: Writes,
        last_used: LastUsed,
        authorizer: Authorizer,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        shares: AllShares,
    ) -> None:
        self.last_used = last_used
        self.meters = Meters(clock)
        self._api_keys = api_keys
        self._admission = ApiKeyAdmission(api_keys.rows())
        self._authorizer = authorizer
        self._writes = writes
        self._clock = clock
        self._random_bytes = random_bytes
        self.tickets = Tickets(self.still_holds, clock, random_bytes, shares)

    # --- callers ---

    def let_in_anybody(self) -> ApiKeyView:
        """Who may do everything with topics and records, without an API key. For doors that stand
        open, if the operator says so."""
        return _ANYBODY

    def authenticate(self, token: str) -> ApiKeyView:
        """The API key of a token. Raises UnauthenticatedError."""
        key = self._api_keys.authenticate(token, self._clock.wall_us())
        self.last_used.note(key.api_key_id)
        return key

    def holds_until_us(self, key: ApiKeyView) -> int:
        """Until when (µs since the epoch) an authentication that gave `key` just now can be taken
        for another request with the same token, as `still_holds` does."""
        if key is _ANYBODY:
            return FOR_EVER_US
        return self._api_keys.holds_until_us(key, self._clock.wall_us())

    def still_holds(self, key: ApiKeyView, until_us: int) -> bool:
        """Whether an earlier authentication of the same token is good now: the API key has not
        changed in any way since, grants and quotas included, and `until_us` is not reached."""
        if key is _ANYBODY:
            return True
        if self._api_keys.get(key.api_key_id) is not key:
            return False
        return until_us == FOR_EVER_US or self._clock.wall_us() < until_us

    def authorize(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> None:
        """Raises ForbiddenError that names the missing grant. `admin` grants everything."""
        self._authorizer.authorize(key, operation, topic, group)

    def may(
        self, key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
    ) -> bool:
        return self._authorizer.may(key, operation, topic, group)

    def no_grant(
        self, key: ApiKeyView, operation: str, topic: str | None, group: str | None
    ) -> ForbiddenError:
        """The refusal of `authorize`."""
        return self._authorizer.no_grant(key, operation, topic, group)

    # --- operators ---

    def all(self) -> list[ApiKeyView]:
        """Oldest first, also those that are expired or disabled; revoked ones are gone."""
        return self._api_keys.all()

    def get(self, api_key_id: str) -> ApiKeyView:
        """Raises ApiKeyNotFoundError."""
        found = self._api_keys.get(api_key_id)
        if found is None:
            raise no_such_api_key(api_key_id)
        return found

    def draw_secret(self) -> NewSecret:
        """A new API key's secret. It is worth nothing until `create` has stored its hash."""
        return draw_secret(self._random_bytes)

    async def create(
        self,
        name: str,
        grants: tuple[Grant, ...],
        expires_us: int | None = None,
        *,
        description: str = "",
        disabled: bool = False,
        quotas: Quotas = NO_QUOTAS,
        secret: NewSecret | None = None,
        by: Actor = THE_APPLIANCE,
    ) -> tuple[ApiKeyView, str]:
        """The API key and its token, which is shown once and stored nowhere."""
        now_us = self._clock.wall_us()
        check_grants(grants)
        _check_expiry(expires_us, now_us)
        drawn = secret or self.draw_secret()
        event = ApiKeyCreated(
            api_key_id=drawn.api_key_id,
            name=name,
            secret_sha256=drawn.secret_sha256,
            grants=grants,
            created_us=now_us,
            expires_us=expires_us,
            description=description,
            disabled=disabled,
            quotas=quotas,
        )

        def admit(window: Window) -> None:
            made = audit.of_api_key(self._admission.admit_created(window, event))
            self._note(window, by, "api_key_created", drawn.api_key_id, None, made)

        await self._writes.operate(admit, owner=by.owner)
        return self.get(drawn.api_key_id), drawn.token

    async def change(
        self, api_key_id: str, changes: dict[str, Any], by: Actor = THE_APPLIANCE
    ) -> ApiKeyView:
        """Change the members that `changes` names: name, description, grants, expires_us,
        disabled, quotas (a dict of those that change). Raises ApiKeyNotFoundError,
        LastAdminKeyError, BadRequestError, BadParameterError."""
        now_us = self._clock.wall_us()
        if "grants" in changes:
            check_grants(changes["grants"])
        _check_expiry(changes.get("expires_us"), now_us)

        def admit(window: Window) -> bool:
            changed = self._admission.admit_changed(window, api_key_id, changes, now_us)
            if changed is None:
                return False
            before, after = map(audit.of_api_key, changed)
            self._note(window, by, "api_key_changed", api_key_id, before, after)
            return True

        if not await self._writes.operate(admit, owner=by.owner):
            await self._writes.once_stored(self._admission.changed_in(api_key_id))
        return self.get(api_key_id)

    async def rotate(
        self, api_key_id: str, overlap_ms: int, by: Actor = THE_APPLIANCE
    ) -> tuple[ApiKeyView, str]:
        """The API key and its new token, shown once. The one before works for `overlap_ms` more.
        Raises ApiKeyNotFoundError."""
        now_us = self._clock.wall_us()
        drawn = draw_secret(self._random_bytes, api_key_id)
        event = ApiKeyRotated(
            api_key_id=api_key_id,
            secret_sha256=drawn.secret_sha256,
            rotated_us=now_us,
            overlap_until_us=now_us + overlap_ms * 1000,
        )

        def admit(window: Window) -> None:
            self._admission.admit_rotated(window, event)
            until = {"overlap_until_us": event.overlap_until_us}
            self._note(window, by, "api_key_rotated", api_key_id, None, until)

        await self._writes.operate(admit, owner=by.owner)
        return self.get(api_key_id), drawn.token

    async def revoke(self, api_key_id: str, by: Actor = THE_APPLIANCE) -> None:
        """Durable before it returns. Raises ApiKeyNotFoundError, LastAdminKeyError."""
        now_us = self._clock.wall_us()

        def admit(window: Window) -> None:
            gone = self._admission.admit_revoked(window, api_key_id, now_us)
            self._note(window, by, "api_key_revoked", api_key_id, audit.of_api_key(gone), None)

        await self._writes.operate(admit, owner=by.owner)

    def _note(
        self,
        window: Window,
        by: Actor,
        name: str,
        api_key_id: str,
        before: dict[str, Any] | None,
        after: dict[str, Any] | None,
    ) -> None:
        action = Action(name, "api_key", api_key_id, before, after)
        audit.note(window, by, self._clock.wall_us(), action)


def check_grants(grants: tuple[Grant, ...]) -> None:
    """Raises BadRequestError for too few or too many, BadParameterError for a pattern."""
    if not 1 <= len(grants) <= limits.GRANTS_PER_API_KEY_MAX:
        raise BadRequestError(
            f"An API key has 1 to {limits.GRANTS_PER_API_KEY_MAX} grants, not {len(grants)}."
        )
    for grant in grants:
        check_pattern(grant.topics)
        check_pattern(grant.groups)


def _check_expiry(expires_us: int | None, now_us: int) -> None:
    if expires_us is not None and expires_us <= now_us:
        raise BadRequestError(
            "The API key would have expired already; disable or revoke it instead."
        )
