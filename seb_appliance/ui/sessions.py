"""Who is logged in, which forms they submitted, and how often a log-in may be tried.

Sessions are in memory, so a restart logs everybody out. A session ends after
`limits.SESSION_IDLE_S` without use, at the latest after `limits.SESSION_S_MAX`, when its user logs
out, gets another password or role, or is removed. The cookie holds 32 random bytes; memory holds
their SHA-256.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.addresses import network_of
from seb_appliance.broker.ports import UserRow
from seb_appliance.clock import Clock
from seb_appliance.errors import RefusedError, SebError
from seb_appliance.ui.answers import Sent

COOKIE: Final = "seb_session"
_TOKEN_CHARACTERS: Final = 43
_NAME_CHARACTERS: Final = 100

Key = tuple[str, str]
"""Address and account; "" for any."""


class SentBeforeError(RefusedError):
    """The form was submitted before, and its answer is no longer kept."""

    code = "conflict"
    status = 409
    title = "Already submitted"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a form, and the sentence that the next page shows."""

    sent: ASGIApp
    notice: str


@dataclass(slots=True)
class _Sending:
    task: asyncio.Task[Answer] | None  # None: its answer is forgotten
    until_s: float


class SentForms:
    """The newest `limits.FORM_ANSWERS_KEPT` submitted forms of one session.

    Each form has an id. A second submission of the same form and content gets the first answer,
    also while that is still being made; after `limits.FORM_ANSWER_S`, only SentBeforeError.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forms: dict[bytes, _Sending] = {}  # by what was sent, oldest first

    async def once(self, key: bytes, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """The answer of `work`, which is called once for each `key`; again only if it changed
        nothing (it showed the form again, or was refused). Raises SentBeforeError."""
        self.forget()
        known = self._forms.get(key)
        if known is None:
            known = _Sending(None, self._clock.monotonic_s() + limits.FORM_ANSWER_S)
            # A task, because a second click cancels the first request.
            known.task = asyncio.create_task(self._done(key, work), name="form")
            while len(self._forms) >= limits.FORM_ANSWERS_KEPT:
                del self._forms[next(iter(self._forms))]
            self._forms[key] = known
        if known.task is None:
            raise SentBeforeError(
                "This form was already submitted and its change was made. Reload the form to "
                "submit it again."
            )
        return await asyncio.shield(known.task)

    async def _done(self, key: bytes, work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        changed = True
        try:
            answer = await work()
            changed = isinstance(answer.sent, Sent) and answer.sent.status in (201, 303)
        except SebError as error:
            changed = error.side_effects != "none"
            raise
        finally:
            if not changed:
                self._forms.pop(key, None)
        return answer

    def forget(self) -> None:
        """Drop answers that are older than `limits.FORM_ANSWER_S`."""
        now_s = self._clock.monotonic_s()
        for known in self._forms.values():
            if known.until_s <= now_s and known.task is not None and known.task.done():
                known.task = None


@dataclass(slots=True)
class Session:
    """`user` as at log-in. `notice`: a sentence for the next page, shown once. `columns`: the
    chosen ones, by list."""

    user: UserRow
    begun_s: float
    used_s: float
    forms: SentForms
    notice: str = ""
    columns: dict[str, list[str]] = field(default_factory=dict)


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
        """Begin a session; returns the value of the cookie. If there are too many, the longest idle
        session ends."""
        for key in [k for k, session in self._sessions.items() if not self._lives(session)]:
            del self._sessions[key]
        if len(self._sessions) >= limits.SESSIONS_MAX:
            del self._sessions[min(self._sessions, key=lambda key: self._sessions[key].used_s)]
        token = base64.urlsafe_b64encode(self._random_bytes(32)).decode().rstrip("=")
        now_s = self._clock.monotonic_s()
        self._sessions[_key(token)] = Session(user, now_s, now_s, SentForms(self._clock))
        return token

    def find(self, token: str, *, used: bool = True) -> Session | None:
        """The session, if it has not ended. `used` False does not extend it, so a page that
        refreshes itself does not keep its user logged in."""
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


def _key(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def cookie_header(token: str, *, secure: bool) -> tuple[bytes, bytes]:
    """Sets the cookie; an empty token takes it away."""
    value = f"{COOKIE}={token}; Path=/ui; HttpOnly; SameSite=Strict"
    value += "" if token else "; Max-Age=0"
    value += "; Secure" if secure else ""
    return b"set-cookie", value.encode()


def token_in(cookie: bytes | None) -> str:
    """The session token in a Cookie header; "" if there is none."""
    for part in (cookie or b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


class Throttle:
    """How often a log-in may be tried, from each address and into each account.

    An address that has logged in to an account before has an allowance of its own for it. All other
    addresses have one allowance each, whatever the account, and share one for each account, so a
    single stranger cannot use up an account's. An allowance is `limits.LOGINS_AT_ONCE` tries, and
    one more each `limits.LOGIN_EVERY_S` seconds; the shared one is `limits.LOGIN_STRANGERS` times
    as large. A successful try is given back. Accounts that do not exist are counted like others. A
    restart forgets all of it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When all tries are there again, in seconds; only of those who lack one.
        self._full_s: OrderedDict[Key, float] = OrderedDict()
        self._known: OrderedDict[Key, None] = OrderedDict()  # pairs that logged in before

    def take(self, address: str, account: str) -> bool:
        """Take one try. False if none is left."""
        now_s = self._clock.monotonic_s()
        costs = self._costs(address, account)
        full_s = {key: max(now_s, self._full_s.get(key, now_s)) for key in costs}
        most_s = now_s + limits.LOGINS_AT_ONCE * limits.LOGIN_EVERY_S
        if any(full_s[key] + cost_s > most_s for key, cost_s in costs.items()):
            return False
        for key, cost_s in costs.items():
            self._full_s[key] = full_s[key] + cost_s
            self._full_s.move_to_end(key)
        _forget_oldest(self._full_s)
        return True

    def succeeded(self, address: str, account: str) -> None:
        """Give the try back, and remember that the address has logged in to the account."""
        for key, cost_s in self._costs(address, account).items():
            if key in self._full_s:
                self._full_s[key] -= cost_s
        key = _throttle_key(address, account)
        self._known[key] = None
        self._known.move_to_end(key)
        _forget_oldest(self._known)

    def _costs(self, address: str, account: str) -> dict[Key, float]:
        """The allowances that a try is taken from, and after how many seconds each gets a try
        back."""
        key = _throttle_key(address, account)
        if key in self._known:
            return {key: limits.LOGIN_EVERY_S}
        shared_s = limits.LOGIN_EVERY_S / limits.LOGIN_STRANGERS
        return {(key[0], ""): limits.LOGIN_EVERY_S, ("", key[1]): shared_s}


def _throttle_key(address: str, account: str) -> Key:
    return network_of(address), account[:_NAME_CHARACTERS]


def _forget_oldest(watched: OrderedDict[Key, float] | OrderedDict[Key, None]) -> None:
    """If there are too many allowances, the least recently used ones are dropped."""
    while len(watched) > limits.LOGINS_WATCHED_MAX:
        watched.popitem(last=False)
