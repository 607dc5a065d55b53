"""How often somebody may try to log in: for each address, and for each account.

`limits.LOGINS_AT_ONCE` tries are there at first, and one more each `limits.LOGIN_EVERY_S` seconds.
A try that succeeds is given back. Accounts that do not exist are counted like others.
"""

from __future__ import annotations

from collections.abc import Iterable

from seb_appliance import limits
from seb_appliance.clock import Clock


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When all tries are there again, in seconds; only of those who lack one.
        self._full_s: dict[str, float] = {}

    def take(self, names: Iterable[str]) -> bool:
        """One try of each of `names`; False, and none is taken, when one of them has none left."""
        now_s = self._clock.monotonic_s()
        full_s = {name: max(now_s, self._full_s.get(name, now_s)) for name in names}
        most_s = now_s + (limits.LOGINS_AT_ONCE - 1) * limits.LOGIN_EVERY_S
        if any(until_s > most_s for until_s in full_s.values()):
            return False
        for name, until_s in full_s.items():
            self._full_s.pop(name, None)  # to the end: the newest
            self._full_s[name] = until_s + limits.LOGIN_EVERY_S
        self._forget()
        return True

    def give_back(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._full_s:
                self._full_s[name] -= limits.LOGIN_EVERY_S

    def _forget(self) -> None:
        """Those tried longest ago go first, when there are too many to watch."""
        while len(self._full_s) > limits.LOGINS_WATCHED_MAX:
            del self._full_s[next(iter(self._full_s))]
