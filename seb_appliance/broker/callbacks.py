"""Calls to many waiting callers; one that raises does not stop the others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import ParamSpec

from seb_appliance import limits

P = ParamSpec("P")


def tell(callback: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call it. An exception is a bug, and the event has happened all the same: the event loop's
    handler counts, logs and shows it."""
    try:
        callback(*args, **kwargs)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{callback!r} raised when it was told", "exception": error}
        )


class Turns:
    """Runs `limits.WAKES_PER_TURN` calls in each turn of the loop, so that others run in between.
    Owners take turns: many calls of one owner do not delay those of the others."""

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
