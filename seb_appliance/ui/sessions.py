"""Who is logged in: sessions in memory, so a restart logs everybody out.

A session ends when nobody used it for `limits.SESSION_IDLE_S`, at the latest after
`limits.SESSION_S_MAX`, when its user logs out, and when the user gets another password or role or
is removed. The cookie holds 32 random bytes; memory holds their SHA-256.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.ports import UserRow
from seb_appliance.clock import Clock
from seb_appliance.ui.once import SentForms

COOKIE: Final = "seb_session"
_TOKEN_CHARACTERS: Final = 43


@dataclass(slots=True)
class Session:
    """`user` as at log-in. `notice`: a sentence for the next page, shown once."""

    user: UserRow
    begun_s: float
    used_s: float
    forms: SentForms
    notice: str = ""


class Sessions:
    """`user_of` finds the user of a name as it is now."""

    def __init__(
        self,
        user_of: Callable[[str], UserRow | None],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._user_of = user_of
        self._clock = clock
        self._random_bytes = random_bytes
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, user: UserRow) -> str:
        """A new session; what the cookie holds. The one that was idle longest makes room."""
        self._drop_ended()
        if len(self._sessions) >= limits.SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used_s)]
        token = base64.urlsafe_b64encode(self._random_bytes(32)).decode().rstrip("=")
        now_s = self._clock.monotonic_s()
        self._sessions[_key(token)] = Session(user, now_s, now_s, SentForms(self._clock))
        return token

    def find(self, token: str, *, used: bool = True) -> Session | None:
        """The session, if it has not ended. `used` False does not make it last longer: a page that
        looks for news by itself does not keep its user logged in."""
        if len(token) != _TOKEN_CHARACTERS:
            return None
        session = self._sessions.get(_key(token))
        if session is None or not self._lives(session):
            self._sessions.pop(_key(token), None)
            return None
        session.forms.forget()
        if used:
            session.used_s = self._clock.monotonic_s()
        return session

    def end(self, token: str) -> None:
        self._sessions.pop(_key(token), None)

    def end_all(self, user_name: str) -> None:
        for key in [k for k, held in self._sessions.items() if held.user.name == user_name]:
            del self._sessions[key]

    def _lives(self, session: Session) -> bool:
        now_s = self._clock.monotonic_s()
        return (
            now_s - session.used_s < limits.SESSION_IDLE_S
            and now_s - session.begun_s < limits.SESSION_S_MAX
            and self._user_of(session.user.name) is session.user
        )

    def _drop_ended(self) -> None:
        for key in [k for k, session in self._sessions.items() if not self._lives(session)]:
            del self._sessions[key]


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def cookie_header(token: str, *, secure: bool) -> tuple[bytes, bytes]:
    """Sets the cookie; an empty token takes it away."""
    value = f"{COOKIE}={token}; Path=/ui; HttpOnly; SameSite=Strict"
    value += "" if token else "; Max-Age=0"
    value += "; Secure" if secure else ""
    return b"set-cookie", value.encode()


def token_in(cookie: bytes | None) -> str:
    """What a Cookie header holds for us; "" for nothing."""
    for part in (cookie or b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
