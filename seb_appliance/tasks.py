"""Background tasks: begun again after a bug, counted, and shown. None ends without a word."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from seb_appliance import limits
from seb_appliance.clock import Clock
from seb_appliance.errors import RequestTimeoutError

_ReadPipe: TypeAlias = tuple[asyncio.ReadTransport, asyncio.StreamReader]
_PIPE_BYTES: Final = 1 << 20  # read ahead
S = TypeVar("S")
T = TypeVar("T")
CALLBACKS: Final = "callbacks"  # of timers and tasks that nobody waits for


class Background:
    """One task, made by `Supervisor.keep`. `failures`: how often it has raised since the start;
    `failure`: what it raised last, "" for nothing."""

    def __init__(self, name: str, clock: Clock, *, is_essential: bool) -> None:
        self.name = name
        self.is_essential = is_essential
        self.failures = 0
        self.failure = ""
        self._clock = clock
        self._failed_s = 0.0
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_failing(self) -> bool:
        """Whether it has raised a short while ago, and may do so again."""
        age_s = self._clock.monotonic_s() - self._failed_s
        return self.failures > 0 and age_s < limits.BACKGROUND_FAILING_S

    def begin(self, run: Callable[[], Awaitable[None]]) -> None:
        self._task = asyncio.create_task(self._keep(run), name=self.name)

    async def close(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def note(self, error: BaseException | None, message: str) -> None:
        self.failures += 1
        self._failed_s = self._clock.monotonic_s()
        self.failure = f"{type(error).__name__}: {error}" if error else message

    async def _keep(self, run: Callable[[], Awaitable[None]]) -> None:
        pause_s = limits.BACKGROUND_PAUSE_S_MIN
        while True:
            began_s = self._clock.monotonic_s()
            try:
                return await run()  # it has come to its end
            except Exception as error:
                message = f"the background task {self.name} has stopped"
                self.note(error, message)
                asyncio.get_running_loop().call_exception_handler(
                    {"message": message, "exception": error, "background": self.name}
                )
            if self._closing:  # it raised instead of being cancelled, and is not cancelled again
                return None
            if self._clock.monotonic_s() - began_s > limits.BACKGROUND_PAUSE_S_MAX:
                pause_s = limits.BACKGROUND_PAUSE_S_MIN
            await self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.BACKGROUND_PAUSE_S_MAX)


class Supervisor:
    """All background tasks of one appliance, by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name = {CALLBACKS: Background(CALLBACKS, clock, is_essential=False)}

    @property
    def tasks(self) -> list[Background]:
        return list(self._by_name.values())

    @property
    def problems(self) -> list[str]:
        """Of the tasks without which the appliance is not ready."""
        found = [task for task in self.tasks if task.is_essential and task.is_failing]
        return [f"the background task {task.name} fails: {task.failure}" for task in found]

    def keep(
        self, name: str, run: Callable[[], Awaitable[None]], *, is_essential: bool = False
    ) -> Background:
        """Call `run`, and again after a pause whenever it has raised; not once it has returned.
        What it still has to do must be known beyond one call."""
        task = self._by_name[name] = Background(name, self._clock, is_essential=is_essential)
        task.begin(run)
        return task

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The event loop's exception handler: counts what nobody else has counted, and logs."""
        if "background" not in context:
            self._by_name[CALLBACKS].note(context.get("exception"), context["message"])
        loop.default_exception_handler(context)


class Job:
    """A loop, `_run`, that a supervisor keeps running from `start` to `close`."""

    name: ClassVar[str]
    _task: Background | None = None

    def start(self, supervisor: Supervisor) -> None:
        self._task = supervisor.keep(self.name, self._run)

    async def close(self) -> None:
        if self._task is not None:
            await self._task.close()

    async def _run(self) -> None:
        raise NotImplementedError


# Requests whose client may leave. `receive` is ASGI's; nothing else may call it meanwhile.

Receive: TypeAlias = Callable[[], Awaitable[Mapping[str, object]]]


async def disconnected(receive: Receive, leave: Callable[[], None] = lambda: None) -> None:
    """Calls `leave` once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
    leave()


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """The result of `work`, which ends when the client leaves. Raises RequestTimeoutError then."""
    task = asyncio.create_task(work)
    leaving = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise RequestTimeoutError("The client left before there was an answer.")
        return task.result()
    finally:
        task.cancel()
        leaving.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


# Child processes: modules of this package that are told their work through a pipe.


class Child:
    """A running `python -m <module>`, which ends when its standard input is closed."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: asyncio.StreamWriter, out: _ReadPipe
    ) -> None:
        self.stdin = stdin
        self._process = process
        self._reading, self.stdout = out

    @classmethod
    async def start(cls, module: str, environment: Mapping[str, str] | None) -> Child:
        """`environment`: its variables; None: those of this process."""
        # uvloop's own way to start one forks, which copies the page tables of a large process and
        # holds the event loop for 20 ms and more; subprocess uses vfork.
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - about a ms; our own module
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends it
        )
        connecting = asyncio.ensure_future(cls._connected(process))
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:  # nobody else knows of the process
            process.kill()
            await (await connecting).wait()
            raise

    @classmethod
    async def _connected(cls, process: subprocess.Popen[bytes]) -> Child:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_PIPE_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        writing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
        )
        return cls(process, asyncio.StreamWriter(writing, protocol, None, loop), (reading, reader))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        """For its end; its exit code. Closes the pipes."""
        try:
            return await asyncio.to_thread(self._process.wait)
        finally:
            self.stdin.close()
            self._reading.close()


# Long work on the event loop, in slices: everybody else has a turn every few milliseconds.


SLICE_S: Final = 0.002
SLICES_AT_ONCE: Final = 2  # in a turn of the event loop


class Steps(Generic[S, T]):
    """What a generator yields, to iterate over once; `result`: what it has returned in the end."""

    result: T

    def __init__(self, steps: Generator[S, None, T]) -> None:
        self._steps = self._run(steps)

    def _run(self, steps: Generator[S, None, T]) -> Iterator[S]:
        self.result = yield from steps

    def __iter__(self) -> Iterator[S]:
        return self._steps


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """`items`, with a pause for others once the work since the last pause has taken SLICE_S.

    What the items are taken from may change in a pause: pass a list where that matters.
    """
    loop = asyncio.get_running_loop()
    pause_s = loop.time() + SLICE_S
    for item in items:
        yield item
        if loop.time() >= pause_s:
            await _next_slice(loop)
            pause_s = loop.time() + SLICE_S


class _Waiting:
    """Work in slices that waits for its next one. A turn of the event loop has only so many, or
    everybody would wait for all of those that somebody has begun on a thousand connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call_soon = loop.call_soon
        self._waiting = deque[asyncio.Future[None]]()
        self._is_due = False

    def add(self, one: asyncio.Future[None]) -> None:
        self._waiting.append(one)
        self._again()

    def _again(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        self._is_due, left = False, SLICES_AT_ONCE
        while self._waiting and left:
            one = self._waiting.popleft()
            if not one.done():  # cancelled
                one.set_result(None)
                left -= 1
        self._again()


_waiting: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, _Waiting]()


async def _next_slice(loop: asyncio.AbstractEventLoop) -> None:
    of_loop = _waiting.get(loop)
    if of_loop is None:
        of_loop = _waiting[loop] = _Waiting(loop)
    one = loop.create_future()
    of_loop.add(one)
    await one


def run_in_slices(items: Iterator[object]) -> None:
    """Go through `items` in the next turns of the event loop, for SLICE_S in each. They are what
    is left to do of something that everybody takes for done."""
    loop = asyncio.get_running_loop()

    def go_on() -> None:
        pause_s = loop.time() + SLICE_S
        for _ in items:
            if loop.time() >= pause_s:
                loop.call_soon(go_on)
                return

    loop.call_soon(go_on)
