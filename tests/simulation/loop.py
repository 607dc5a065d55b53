"""One event loop for everything: virtual time, no threads, no I/O, an order drawn from a seed.

Every callback belongs to a process, told by a context variable, or to the world (clients, the
bucket, who looks on). So a process can be killed between any two of its callbacks (none of them
ever runs again) or stopped for a while (they wait), with no word to the code that runs in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from functools import partial
from random import Random
from typing import Any

from tests.simulation.hosts import Host

THREAD_S = 0.0005  # what is handed to an executor takes up to so long


class DeadlockError(Exception):
    """Nothing can ever run again, and the simulation is not over."""


class Owner:
    """A process as the loop sees it. `callbacks_left`: how many of them run before it is killed;
    None: nobody has decided that."""

    def __init__(self, name: str, host: Host | None = None) -> None:
        self.name = name
        self.host = host or Host()
        self.dead = False
        self.stopped = False
        self.callbacks_left: int | None = None
        self.waiting: list[asyncio.Handle] = []  # until it goes on
        self.never_run: list[asyncio.Handle] = []  # kept: freeing them would run code
        self.on_killed: Callable[[], None] = lambda: None
        context = copy_context()
        context.run(_OWNER.set, self)
        self.context: Context = context

    def kill(self) -> None:
        """As SIGKILL: no callback of it runs any more, no clause `finally`, nothing."""
        if not self.dead:
            self.dead = True
            self.never_run += self.waiting
            self.waiting = []
            self.on_killed()


_OWNER: ContextVar[Owner | None] = ContextVar("owner", default=None)


def current_owner() -> Owner | None:
    """The process whose callback runs now; None for the world."""
    return _OWNER.get()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Callbacks that are ready at once run in an order that `draws` decides, unless they were
    `in_order`; when none is ready, time jumps to the next timer. `slow_threads`: what is handed to
    a thread takes as long as its machine's disks do, and a single thread does one after another."""

    def __init__(self, draws: Random, *, in_order: bool, slow_threads: bool = False) -> None:
        super().__init__()
        self.callbacks_run = 0
        self.failures: list[str] = []  # of callbacks, which nobody else would see
        self._draws = draws
        self._in_order = in_order
        self._slow_threads = slow_threads
        self._queues: dict[object, deque[Callable[[], object]]] = {}  # of single threads
        self._now_s = 0.0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self._world = copy_context()
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self._now_s

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is left out when its time comes."""

    def later(self, seconds: float, callback: Callable[..., object], *args: Any) -> None:
        """Call something of the world, whoever asks for it now."""
        self.call_later(seconds, callback, *args, context=self._world)

    def task_of(self, owner: Owner | None, work: Any) -> asyncio.Task[Any]:
        """A task of a process, or of the world."""
        context = self._world.copy() if owner is None else owner.context.copy()
        return self.create_task(work, context=context)

    def go_on(self, owner: Owner) -> None:
        """As SIGCONT."""
        owner.stopped = False
        self._ready.extend(owner.waiting)
        owner.waiting = []

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """No thread: `func` is called a little later, between other callbacks."""
        future: asyncio.Future[Any] = self.create_future()
        if self._slow_threads:
            self._work_slowly(executor, future, partial(func, *args))
            return future

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except BaseException as error:  # also a kill, at a failpoint in a thread
                future.set_exception(error)

        self.call_later(self._draws.random() * THREAD_S, work)
        return future

    def _work_slowly(
        self, executor: object, future: asyncio.Future[Any], func: Callable[[], Any]
    ) -> None:
        """`func` takes effect at one instant of the time that it takes. Its caller may be gone by
        then: that ends no thread."""
        owner = current_owner()
        most_s = max(THREAD_S, owner.host.disk_s if owner is not None else 0.0)
        takes_s, part = most_s * self._draws.random() ** 2, self._draws.random()
        single = isinstance(executor, ThreadPoolExecutor) and executor._max_workers == 1
        queue = self._queues.setdefault(executor, deque()) if single else deque()

        def work() -> None:
            found, error = None, None
            try:
                found = func()
            except BaseException as raised:  # also a kill, at a failpoint in a thread
                error = raised
            self.call_later(takes_s * (1 - part), end, found, error)

        def end(found: Any, error: BaseException | None) -> None:
            queue.popleft()
            if queue:
                queue[0]()
            if not future.done():
                future.set_result(found) if error is None else future.set_exception(error)

        queue.append(lambda: self.call_later(takes_s * part, work))
        if len(queue) == 1:
            queue[0]()

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise DeadlockError
            self._now_s = max(self._now_s, timers[0][0])
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        batch = list(ready)
        ready.clear()
        if not self._in_order and len(batch) > 1:
            self._draws.shuffle(batch)
        for handle in batch:
            self._run(handle)

    def _run(self, handle: asyncio.Handle) -> None:
        if handle._cancelled:
            return
        owner = handle._context.get(_OWNER)
        if owner is not None:
            if owner.dead:
                owner.never_run.append(handle)
                return
            if owner.stopped:
                owner.waiting.append(handle)
                return
            if owner.callbacks_left is not None:
                owner.callbacks_left -= 1
                if owner.callbacks_left < 0:
                    owner.kill()
                    owner.never_run.append(handle)
                    return
        self.callbacks_run += 1
        handle._run()

    def _note_failure(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "handle" in context:  # others are found when garbage is collected, whenever that is
            self.failures.append(f"{context['message']}: {context.get('exception')!r}")

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError("there is no I/O")

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def end(self, owners: list[Owner]) -> None:
        """Let every task end by its cancellation, of dead processes as well, and close."""
        for owner in owners:
            owner.dead = owner.stopped = False
            owner.callbacks_left = None
            self._ready.extend([*owner.never_run, *owner.waiting])
            owner.never_run, owner.waiting = [], []
        with running(self):
            for _ in range(200):
                left = asyncio.all_tasks(self)
                if not left:
                    break
                for task in left:
                    task.cancel()
                with contextlib.suppress(DeadlockError):
                    for _ in range(20):
                        self._run_once()
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.close()


@contextlib.contextmanager
def running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)
