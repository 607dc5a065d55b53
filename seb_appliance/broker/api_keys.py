"""API keys: their tokens, who holds which, and what a grant allows.

A token is `seb_<id>_<secret>_<checksum>`: 8 characters of base32, 43 of base64url (32 random
bytes), 6 of base62 (CRC-32 of all before it, so that typos and secret scanners need no look-up).
Only the SHA-256 of the secret is kept: 256 random bits need no slow hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance.broker.names import pattern_matches
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import ForbiddenError, UnauthenticatedError
from seb_appliance.formats.operations import ApiKeyCreated

_BASE62: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_AT, _SECRET_AT, _CHECKSUM_AT, _LENGTH = 4, 13, 57, 63
_NO_SUCH_SECRET: Final = b"\0" * 32  # compared for unknown ids, so that they take as long

_REFUSED: Final = "The API key is not valid: unknown, expired, revoked or mistyped."


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A freshly drawn API key. `token` is shown once and stored nowhere."""

    api_key_id: str
    token: str
    secret_sha256: bytes


def draw_secret(random_bytes: Callable[[int], bytes]) -> NewSecret:
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


class ApiKeys:
    """The keys that are in force. Changed only by applying journal entries."""

    def __init__(self) -> None:
        self._by_id: dict[str, ApiKeyCreated] = {}
        self._views: dict[str, ApiKeyView] = {}

    def add(self, event: ApiKeyCreated) -> None:
        self._by_id[event.api_key_id] = event
        self._views[event.api_key_id] = ApiKeyView(
            event.api_key_id, event.name, event.grants, event.created_us, event.expires_us
        )

    def remove(self, api_key_id: str) -> None:
        self._by_id.pop(api_key_id, None)
        self._views.pop(api_key_id, None)

    def get(self, api_key_id: str) -> ApiKeyView | None:
        return self._views.get(api_key_id)

    def all(self) -> list[ApiKeyView]:
        return sorted(self._views.values(), key=lambda key: (key.created_us, key.api_key_id))

    def events(self) -> list[ApiKeyCreated]:
        return list(self._by_id.values())

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
                "The API key is mistyped or cut: it looks like seb_…_…_… and has 63 characters."
            )
        api_key_id = token[_ID_AT : _SECRET_AT - 1]
        found = self._by_id.get(api_key_id)
        expected = found.secret_sha256 if found else _NO_SUCH_SECRET
        given = _sha256(token[_SECRET_AT : _CHECKSUM_AT - 1])
        if not hmac.compare_digest(given, expected) or found is None:
            raise UnauthenticatedError(_REFUSED)
        if found.expires_us is not None and found.expires_us <= now_us:
            raise UnauthenticatedError(_REFUSED)
        return self._views[api_key_id]


def may(
    key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
) -> bool:
    """Whether one grant of `key` covers `operation` on `topic` and for `group` (None: on none in
    particular)."""
    return any(
        grant.operation == "admin"
        or (
            grant.operation == operation
            and (topic is None or pattern_matches(grant.topics, topic))
            and (group is None or pattern_matches(grant.groups, group))
        )
        for grant in key.grants
    )


def authorize(
    key: ApiKeyView, operation: str, topic: str | None = None, group: str | None = None
) -> None:
    """Raises ForbiddenError that names the missing grant."""
    if not may(key, operation, topic, group):
        missing = {"operation": operation}
        where = ""
        if topic is not None:
            missing["topics"] = topic
            where += f" on topic {topic!r}"
        if group is not None:
            missing["groups"] = group
            where += f" for group {group!r}"
        raise ForbiddenError(
            f"The API key {key.api_key_id} has no grant for {operation!r}{where}.",
            missing_grant=missing,
        )


def is_admin(event: ApiKeyCreated, now_us: int) -> bool:
    """Whether this key can administer now."""
    alive = event.expires_us is None or event.expires_us > now_us
    return alive and any(grant.operation == "admin" for grant in event.grants)
