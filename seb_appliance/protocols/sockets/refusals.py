"""What the log says of connections that are refused: a stranger may make thousands in a second."""

from __future__ import annotations

import logging
from typing import Final

from seb_appliance.clock import Clock
from seb_appliance.protocols.sockets import limits as socket_limits

_log: Final = logging.getLogger(__name__)
_NAME_CHARACTERS: Final = 100  # that a client may have in a line


class Refusals:
    """Of one port. `count`: since the start."""

    def __init__(self, clock: Clock, protocol: str, level: int = logging.INFO) -> None:
        self.count = 0
        self._clock = clock
        self._protocol = protocol
        self._level = level
        self._minute_s = float("-inf")  # when it began
        self._logged = self._left_out = 0  # in it

    def note(self, client: str, address: str, why: str) -> None:
        self.count += 1
        now_s = self._clock.monotonic_s()
        if now_s >= self._minute_s + 60:
            if self._left_out:
                _log.log(
                    self._level,
                    "%d further %s clients were refused a while ago",
                    self._left_out,
                    self._protocol,
                )
            self._minute_s, self._logged, self._left_out = now_s, 0, 0
        if self._logged >= socket_limits.REFUSALS_LOGGED_MAX:
            self._left_out += 1
            return
        self._logged += 1
        name = client[:_NAME_CHARACTERS]
        _log.log(self._level, "%s client %r at %s: %s", self._protocol, name, address, why)
