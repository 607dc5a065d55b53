"""How often somebody may try to log in: from each address, and into each account.

An address that has logged in to an account before has an allowance of its own for it, which
nobody else uses up. All other addresses have one allowance each, whatever the account, and share
one for each account: a single stranger uses up no account's.

An allowance is `limits.LOGINS_AT_ONCE` tries, and one more each `limits.LOGIN_EVERY_S` seconds;
what strangers share is `limits.LOGIN_STRANGERS` times as much. A try that succeeds is given back.
Accounts that do not exist are counted like others. A restart forgets all of it.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from seb_appliance import limits
from seb_appliance.clock import Clock

_NAME_CHARACTERS: Final = 100
_IPV6_PREFIX: Final = 64  # one customer's, who can take any address of it

Key = tuple[str, str]
"""Address and account; "" for any."""


class Throttle:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When all tries are there again, in seconds; only of those who lack one.
        self._full_s: OrderedDict[Key, float] = OrderedDict()
        self._known: OrderedDict[Key, None] = OrderedDict()  # pairs that logged in before

    def take(self, address: str, account: str) -> bool:
        """One try; False, and none is taken, when none is left."""
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
        """The try that was taken is given back, and the address is known for the account."""
        for key, cost_s in self._costs(address, account).items():
            if key in self._full_s:
                self._full_s[key] -= cost_s
        key = _key(address, account)
        self._known[key] = None
        self._known.move_to_end(key)
        _forget_oldest(self._known)

    def _costs(self, address: str, account: str) -> dict[Key, float]:
        """Whose allowances a try is taken of, and how many seconds it takes until it is back."""
        key = _key(address, account)
        if key in self._known:
            return {key: limits.LOGIN_EVERY_S}
        shared_s = limits.LOGIN_EVERY_S / limits.LOGIN_STRANGERS
        return {(key[0], ""): limits.LOGIN_EVERY_S, ("", key[1]): shared_s}


def _key(address: str, account: str) -> Key:
    return _network(address), account[:_NAME_CHARACTERS]


def _network(address: str) -> str:
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # none: a Unix socket
        return address
    if ip.version == 4:
        return address
    return str(ipaddress.ip_network((int(ip), _IPV6_PREFIX), strict=False))


def _forget_oldest(watched: OrderedDict[Key, float] | OrderedDict[Key, None]) -> None:
    """Those tried longest ago go first, when there are too many to watch."""
    while len(watched) > limits.LOGINS_WATCHED_MAX:
        watched.popitem(last=False)
