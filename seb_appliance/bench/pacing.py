"""When the next request is to be sent: at fixed times, or when the last one was answered."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final

STEP_S: Final = 0.00025


class Schedule:
    """`per_s` None: a request is due whenever somebody can send it (a closed loop)."""

    def __init__(self, per_s: float | None) -> None:
        self._per_s = per_s
        self._begin_s = 0.0
        self._end_s = 0.0
        self._taken = 0

    @property
    def is_open_loop(self) -> bool:
        return self._per_s is not None

    def begin(self, begin_s: float, end_s: float) -> None:
        """Requests are due from `begin_s` to before `end_s`."""
        self._begin_s, self._end_s = begin_s, end_s

    def end(self, now_s: float) -> None:
        """Nothing is due after now."""
        self._end_s = min(self._end_s, now_s)

    @property
    def next_s(self) -> float:
        """When the next request is due; never again: infinity."""
        due_s = self._begin_s + (self._taken / self._per_s if self._per_s else 0.0)
        return due_s if due_s < self._end_s else float("inf")

    def take(self, now_s: float) -> float | None:
        """The time for which a request that can be sent now was intended; None when none is due.
        However late it is sent, its latency counts from there."""
        if self._per_s is None:
            return now_s if now_s < self._end_s else None
        due_s = self._begin_s + self._taken / self._per_s
        if due_s > now_s or due_s >= self._end_s:
            return None
        self._taken += 1
        return due_s

    def late(self, now_s: float) -> list[float]:
        """Take all that is due and was not sent."""
        found = []
        while self.is_open_loop and (due_s := self.take(now_s)) is not None:
            found.append(due_s)
        return found


class Pacer:
    """Calls `wake` on the event loop each time that a request becomes due while `wanted` says that
    somebody can send one. A thread, because an event loop's timers are whole milliseconds."""

    def __init__(
        self,
        schedule: Schedule,
        wake: Callable[[], None],
        wanted: Callable[[], bool],
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schedule = schedule
        self._wake = wake
        self._wanted = wanted
        self._clock = clock
        self._sleep = sleep
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self._is_waking = False
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            wait_s = self._schedule.next_s - self._clock()
            if wait_s > 0:
                self._sleep(min(wait_s, 0.05))
                continue
            if not self._is_waking and self._wanted():
                self._is_waking = True
                self._loop.call_soon_threadsafe(self._woken)
            self._sleep(STEP_S)

    def _woken(self) -> None:
        self._is_waking = False
        self._wake()
