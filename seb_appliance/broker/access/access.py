"""Authentication and authorization of tokens, and changes of API keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.access.api_keys import (
    FOR_EVER_US,
    ApiKeyEvent,
    ApiKeys,
    LastUsed,
    NewSecret,
    administers,
    after,
    changeable_members,
    draw_secret,
    no_such_api_key,
)
from seb_appliance.broker.access.audit import (
    THE_APPLIANCE,
    Action,
    Actor,
    AuditedWrites,
    RowsAhead,
)
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
from seb_appliance.errors import BadRequestError, LastAdminKeyError
from seb_appliance.formats.api_key_members import Grant, Quotas
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
)

_ANYBODY: Final = ApiKeyView(
    "anybody",
    "anybody",
    (Grant(operation="produce"), Grant(operation="consume"), Grant(operation="manage")),
    created_us=0,
)


class Access:
    """`may`, `authorize` and `no_grant` are those of `Authorizer`."""

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
        self.tickets = Tickets(self.still_holds, clock, random_bytes, shares)
        self.may, self.authorize = authorizer.may, authorizer.authorize
        self.no_grant = authorizer.no_grant
        self.all = api_keys.all
        self._api_keys = api_keys
        self._ahead = RowsAhead({row.api_key_id: row for row in api_keys.rows()}, no_such_api_key)
        self._writes = AuditedWrites(writes)
        self._clock = clock
        self._random_bytes = random_bytes

    # --- callers ---

    def let_in_anybody(self) -> ApiKeyView:
        """Access to all topics without an API key, for endpoints that the operator has opened."""
        return _ANYBODY

    def authenticate(self, token: str) -> ApiKeyView:
        """The API key of a token. Raises UnauthenticatedError."""
        key = self._api_keys.authenticate(token, self._clock.wall_us())
        self.last_used.note(key.api_key_id)
        return key

    def vouched_for(self, api_key_id: str) -> ApiKeyView:
        """The API key of a caller whom somebody else has authenticated, such as a trusted proxy by
        a client certificate. Raises UnauthenticatedError."""
        key = self._api_keys.in_force(api_key_id, self._clock.wall_us())
        self.last_used.note(key.api_key_id)
        return key

    def holds_until_us(self, key: ApiKeyView) -> int:
        """Until when (µs since the epoch) an authentication that gave `key` just now can be reused
        for a request with the same token, after `still_holds`."""
        if key is _ANYBODY:
            return FOR_EVER_US
        return self._api_keys.holds_until_us(key, self._clock.wall_us())

    def still_holds(self, key: ApiKeyView, until_us: int) -> bool:
        """Whether an earlier authentication is still good: the API key has not changed in any way
        since, grants and quotas included, and `until_us` is not reached."""
        if key is _ANYBODY:
            return True
        if self._api_keys.get(key.api_key_id) is not key:
            return False
        return until_us == FOR_EVER_US or self._clock.wall_us() < until_us

    # --- operators ---

    def get(self, api_key_id: str) -> ApiKeyView:
        """Raises ApiKeyNotFoundError."""
        found = self._api_keys.get(api_key_id)
        if found is None:
            raise no_such_api_key(api_key_id)
        return found

    def name_of(self, api_key_id: str) -> str:
        """The name of an API key; "" if there is none with this id (any more)."""
        found = self._api_keys.get(api_key_id)
        return "" if found is None else found.name

    def draw_secret(self) -> NewSecret:
        """A new API key's secret. It has no effect until `create` has stored its hash."""
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
        unique_name: bool = False,
        by: Actor = THE_APPLIANCE,
    ) -> tuple[ApiKeyView, str]:
        """The API key and its token, which is shown once and stored nowhere. Raises
        BadRequestError, with `unique_name` also when another API key has this name."""
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

        def admit(window: Window) -> Action:
            if len(self._ahead.rows) >= limits.API_KEYS_MAX:
                full = BadRequestError(
                    f"There are already {limits.API_KEYS_MAX} API keys; revoke one first."
                )
                raise Refusal(full, None)
            for other in self._ahead.rows.values() if unique_name else ():
                if other.name == name:
                    taken = BadRequestError(f"The API key {other.api_key_id} has this name.")
                    raise Refusal(taken, self._ahead.changed_in(other.api_key_id))
            assert event.api_key_id not in self._ahead.rows, event.api_key_id
            made = changeable_members(self._admit(window, event))
            return Action("api_key_created", "api_key", drawn.api_key_id, None, made)

        await self._writes.store(admit, by)
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

        def admit(window: Window) -> Action | None:
            before = self._ahead.find(api_key_id)
            members = changeable_members(before) | changes
            members["quotas"] = msgspec.structs.replace(before.quotas, **changes.get("quotas", {}))
            event = ApiKeyChanged(api_key_id=api_key_id, **members)
            if after(before, event) == before:
                return None
            self._check_admin_stays(event, now_us)
            rows = map(changeable_members, (before, self._admit(window, event)))
            return Action("api_key_changed", "api_key", api_key_id, *rows)

        await self._writes.store(admit, by, lambda: self._ahead.changed_in(api_key_id))
        return self.get(api_key_id)

    async def rotate(
        self, api_key_id: str, overlap_ms: int, by: Actor = THE_APPLIANCE
    ) -> tuple[ApiKeyView, str]:
        """The API key and its new token, shown once. The previous one works for `overlap_ms` more.
        Raises ApiKeyNotFoundError."""
        now_us = self._clock.wall_us()
        drawn = draw_secret(self._random_bytes, api_key_id)
        event = ApiKeyRotated(
            api_key_id=api_key_id,
            secret_sha256=drawn.secret_sha256,
            rotated_us=now_us,
            overlap_until_us=now_us + overlap_ms * 1000,
        )

        def admit(window: Window) -> Action:
            self._ahead.find(api_key_id)
            self._admit(window, event)
            until = {"overlap_until_us": event.overlap_until_us}
            return Action("api_key_rotated", "api_key", api_key_id, None, until)

        await self._writes.store(admit, by)
        return self.get(api_key_id), drawn.token

    async def revoke(self, api_key_id: str, by: Actor = THE_APPLIANCE) -> None:
        """Durable before it returns. Raises ApiKeyNotFoundError, LastAdminKeyError."""
        now_us = self._clock.wall_us()

        def admit(window: Window) -> Action:
            before = self._ahead.find(api_key_id)
            event = ApiKeyRevoked(api_key_id=api_key_id, revoked_us=now_us)
            self._check_admin_stays(event, now_us)
            self._ahead.change(window, api_key_id, None, event)
            return Action("api_key_revoked", "api_key", api_key_id, changeable_members(before))

        await self._writes.store(admit, by)

    def _admit(self, window: Window, event: ApiKeyEvent) -> ApiKeyRow:
        row = after(self._ahead.rows.get(event.api_key_id), event)
        assert row is not None, event
        self._ahead.change(window, event.api_key_id, row, event)
        return row

    def _check_admin_stays(self, event: ApiKeyEvent, now_us: int) -> None:
        """An API key that can administer now, and one that can without an expiry, are left if
        there are any. Raises Refusal."""
        rows = self._ahead.rows
        row = after(rows[event.api_key_id], event)
        left = [other for other in rows.values() if other.api_key_id != event.api_key_id]
        left += [] if row is None else [row]
        for holds, which in (
            (_administers_for_ever, "that does not expire"),
            (administers, "that has not expired"),
        ):
            held = any(holds(other, now_us) for other in rows.values())
            if held and not any(holds(other, now_us) for other in left):
                raise Refusal(
                    LastAdminKeyError(
                        f"This is the last API key with the grant admin {which}; create another "
                        "one first."
                    ),
                    self._ahead.last_pending(),
                )


def _administers_for_ever(row: ApiKeyRow, now_us: int) -> bool:
    return row.expires_us is None and administers(row, now_us)


def check_grants(grants: tuple[Grant, ...]) -> None:
    """Raises BadRequestError for too few or too many, BadParameterError for a pattern."""
    if not 1 <= len(grants) <= limits.GRANTS_PER_API_KEY_MAX:
        raise BadRequestError(
            f"An API key must have 1 to {limits.GRANTS_PER_API_KEY_MAX} grants, not {len(grants)}."
        )
    for grant in grants:
        check_pattern(grant.topics)
        check_pattern(grant.groups)


def _check_expiry(expires_us: int | None, now_us: int) -> None:
    if expires_us is not None and expires_us <= now_us:
        raise BadRequestError(
            "The API key would have expired already; disable or revoke it instead."
        )
