"""The same client for programs without an event loop: it runs on one in a thread of its own.

What a method does is written once, in the asynchronous classes; here it is waited for.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar


class Closes(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T")
Inner = TypeVar("Inner", bound=Closes)
P = ParamSpec("P")
STOP_S: Final = 10.0


class LoopThread:
    """An event loop that runs until `stop`. A daemon: it keeps no process alive."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="seb-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.loop.run_forever()
        left = asyncio.all_tasks(self.loop)  # others may wait for what these end with
        for task in left:
            task.cancel()
        if left:
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """`work` goes on, on that loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` comes to, on that loop. An interrupt here cancels it there."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(STOP_S)


class Blocking(Generic[Inner]):
    """Holds an asynchronous object that was made on its loop."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        async def made() -> Inner:
            return make()

        self._thread = LoopThread()
        try:
            self._inner = self._thread.wait_for(made())
        except BaseException:
            self._thread.stop()
            raise

    def close(self) -> None:
        """As of the object within; then the thread ends."""
        if self._thread.is_alive:
            try:
                self._wait_for(self._inner.close())
            finally:
                self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.wait_for(work)


def blocking(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[Inner], P], T]:
    """The method that waits for `method` of the object within."""

    @functools.wraps(method)
    def waits(self: Blocking[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait_for(method(self._inner, *args, **kwargs))

    return waits
