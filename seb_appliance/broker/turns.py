"""Many who are woken by one event: a few in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable

from seb_appliance import limits
from seb_appliance.broker.telling import tell


class Turns:
    """Calls what it is given, `limits.WAKES_PER_TURN` in each turn of the loop, so that others run
    in between. Owners take turns: many calls of one do not delay those of the others."""

    def __init__(self) -> None:
        self._due: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()
        self._is_scheduled = False

    def add(self, owner: str, call: Callable[[], None]) -> None:
        calls = self._due.get(owner)
        if calls is None:
            calls = self._due[owner] = deque()
        calls.append(call)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        for _ in range(limits.WAKES_PER_TURN):
            if not self._due:
                break
            owner, calls = self._due.popitem(last=False)
            call = calls.popleft()
            if calls:
                self._due[owner] = calls  # behind the others
            tell(call)
        self._schedule()
