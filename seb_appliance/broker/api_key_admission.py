"""Admission of what is done to API keys; see admission.py for the view ahead and the rules."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.admission import Refusal
from seb_appliance.broker.api_keys import ApiKeyEvent, administers, after, no_such_api_key
from seb_appliance.broker.ports import ApiKeyRow
from seb_appliance.broker.window import Window
from seb_appliance.errors import BadRequestError, LastAdminKeyError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
)

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
