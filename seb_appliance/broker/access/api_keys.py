"""API keys: their tokens, and which are in force. What they may do is in grants.py.

A token is `seb_<id>_<secret>_<checksum>`: 8 characters of base32, 43 of base64url (32 random
bytes), 6 of base62 (CRC-32 of all before it, so that typos and secret scanners need no look-up).
Only the SHA-256 of the secret is kept: 256 random bits need no slow hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, assert_type

from seb_appliance.broker.access.grants import grants_admin
from seb_appliance.broker.ports import ApiKeyRow
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.clock import Clock
from seb_appliance.errors import ApiKeyNotFoundError, UnauthenticatedError
from seb_appliance.formats.operations import (
    ApiKeyChanged,
    ApiKeyCreated,
    ApiKeyRevoked,
    ApiKeyRotated,
)

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_AT, _SECRET_AT, _CHECKSUM_AT, _LENGTH = 4, 13, 57, 63
_NO_SUCH_SECRET: Final = b"\0" * 32  # compared for unknown ids, so that they take as long

FOR_EVER_US: Final = 2**63

_REFUSED: Final = "The API key is not valid: unknown, expired, disabled, revoked or mistyped."


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A freshly drawn API key. `token` is shown once and stored nowhere."""

    api_key_id: str
    token: str
    secret_sha256: bytes


def draw_secret(random_bytes: Callable[[int], bytes], api_key_id: str | None = None) -> NewSecret:
    """A new secret for that API key, or for a new one."""
    if api_key_id is None:
        api_key_id = base64.b32encode(random_bytes(5)).decode().lower()
    secret = base64.urlsafe_b64encode(random_bytes(32)).decode().rstrip("=")
    body = f"seb_{api_key_id}_{secret}"
    return NewSecret(api_key_id, f"{body}_{_checksum(body)}", _sha256(secret))


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits


def _sha256(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


ApiKeyEvent = ApiKeyCreated | ApiKeyChanged | ApiKeyRotated | ApiKeyRevoked

_CHANGEABLE: Final = ("name", "description", "grants", "expires_us", "disabled", "quotas")
_VIEWED: Final = tuple(field.name for field in fields(ApiKeyView))


def changeable_members(of: ApiKeyRow | ApiKeyCreated | ApiKeyChanged) -> dict[str, Any]:
    """The members that an operator sees and changes, by name."""
    return {name: getattr(of, name) for name in _CHANGEABLE}


def after(row: ApiKeyRow | None, event: ApiKeyEvent) -> ApiKeyRow | None:
    """An API key once `event` is in force; None when there is no such key."""
    if isinstance(event, ApiKeyCreated):
        return ApiKeyRow(
            api_key_id=event.api_key_id,
            secret_sha256=event.secret_sha256,
            created_us=event.created_us,
            **changeable_members(event),
        )
    assert row is not None, event
    if isinstance(event, ApiKeyChanged):
        return replace(row, **changeable_members(event))
    if isinstance(event, ApiKeyRotated):
        return replace(
            row,
            secret_sha256=event.secret_sha256,
            previous_sha256=row.secret_sha256,
            overlap_until_us=event.overlap_until_us,
        )
    assert_type(event, ApiKeyRevoked)
    return None


def administers(row: ApiKeyRow, now_us: int) -> bool:
    """Whether this API key can administer now."""
    alive = row.expires_us is None or row.expires_us > now_us
    return alive and not row.disabled and grants_admin(row.grants)


def no_such_api_key(api_key_id: str) -> ApiKeyNotFoundError:
    return ApiKeyNotFoundError(f"There is no API key with the id {api_key_id[:100]!r}.")


class ApiKeys:
    """The keys that are in force. Changed only by applying journal entries."""

    def __init__(self, rows: Iterable[ApiKeyRow]) -> None:
        self._rows: dict[str, ApiKeyRow] = {}
        self._views: dict[str, ApiKeyView] = {}
        for row in rows:
            self._put(row)

    def apply(self, event: ApiKeyEvent) -> None:
        row = after(self._rows.get(event.api_key_id), event)
        if row is not None:
            self._put(row)
        else:
            del self._rows[event.api_key_id], self._views[event.api_key_id]

    def get(self, api_key_id: str) -> ApiKeyView | None:
        return self._views.get(api_key_id)

    def all(self) -> list[ApiKeyView]:
        return sorted(self._views.values(), key=lambda key: (key.created_us, key.api_key_id))

    def rows(self) -> list[ApiKeyRow]:
        return list(self._rows.values())

    def authenticate(self, token: str, now_us: int) -> ApiKeyView:
        """The key of a token. Raises UnauthenticatedError; unknown ids do the same work."""
        if (
            len(token) != _LENGTH
            or not token.isascii()
            or token[:_ID_AT] != "seb_"
            or token[_SECRET_AT - 1] != "_"
            or token[_CHECKSUM_AT - 1] != "_"
            or token[_CHECKSUM_AT:] != _checksum(token[: _CHECKSUM_AT - 1])
        ):
            raise UnauthenticatedError(
                "The API key is mistyped or incomplete. An API key looks like seb_…_…_… and has "
                "63 characters."
            )
        api_key_id = token[_ID_AT : _SECRET_AT - 1]
        found = self._rows.get(api_key_id)
        given = _sha256(token[_SECRET_AT : _CHECKSUM_AT - 1])
        newest, previous = _secrets(found, now_us)
        is_newest = hmac.compare_digest(given, newest)
        is_previous = hmac.compare_digest(given, previous)
        if not (is_newest or is_previous):
            raise UnauthenticatedError(_REFUSED)
        return self.in_force(api_key_id, now_us)

    def in_force(self, api_key_id: str, now_us: int) -> ApiKeyView:
        """Neither disabled nor expired. Raises UnauthenticatedError."""
        found = self._rows.get(api_key_id)
        if (
            found is None
            or found.disabled
            or (found.expires_us is not None and found.expires_us <= now_us)
        ):
            raise UnauthenticatedError(_REFUSED)
        return self._views[api_key_id]

    def holds_until_us(self, key: ApiKeyView, now_us: int) -> int:
        """Until when an authentication that gave `key` just now is good, unless the API key is
        changed: then `get` gives another view. The end of an overlap counts for both secrets."""
        ends_us = (key.expires_us, key.overlap_until_us)
        return min((us for us in ends_us if us is not None and us > now_us), default=FOR_EVER_US)

    def _put(self, row: ApiKeyRow) -> None:
        self._rows[row.api_key_id] = row
        self._views[row.api_key_id] = ApiKeyView(*(getattr(row, name) for name in _VIEWED))


def _secrets(row: ApiKeyRow | None, now_us: int) -> tuple[bytes, bytes]:
    """The hashes of the newest secret and of the one before, where they work."""
    if row is None:
        return _NO_SUCH_SECRET, _NO_SUCH_SECRET
    overlaps = row.overlap_until_us is not None and now_us < row.overlap_until_us
    previous = row.previous_sha256 if overlaps else None
    return row.secret_sha256, previous or _NO_SUCH_SECRET


class LastUsed:
    """When API keys were last used. Not in the journal: it would cost a PUT to remember a read.
    `on_changed` is called when the first change since the last write is noted."""

    def __init__(
        self, known_us: Mapping[str, int], clock: Clock, on_changed: Callable[[], None]
    ) -> None:
        self._used_us = dict(known_us)
        self._changed: set[str] = set()
        self._clock = clock
        self._on_changed = on_changed

    def note(self, api_key_id: str, now_us: int | None = None) -> None:
        self._used_us[api_key_id] = self._clock.wall_us() if now_us is None else now_us
        if api_key_id in self._changed:
            return
        self._changed.add(api_key_id)
        if len(self._changed) == 1:
            self._on_changed()

    def get(self, api_key_id: str) -> int | None:
        """µs since the epoch; None when this machine knows of no use."""
        return self._used_us.get(api_key_id)

    def take_changed(self) -> dict[str, int]:
        """What was used since this was last called."""
        changed = {api_key_id: self._used_us[api_key_id] for api_key_id in self._changed}
        self._changed.clear()
        return changed

    def not_written(self, taken: Mapping[str, int]) -> None:
        """Let `take_changed` return these again."""
        was_empty = not self._changed
        self._changed |= taken.keys()
        if was_empty and taken:
            self._on_changed()
