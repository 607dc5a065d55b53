"""SQLite without threads: what aiosqlite would hand to its thread is done between callbacks.

The connection, its SQL and its files are real. Only where the work is done is another: a little
later on the simulated loop, as that of every thread, so that a seed decides what comes between two
statements, and a kill may come there, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import aiosqlite
from sqlalchemy import AsyncAdaptedQueuePool
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from seb_appliance.state import connection, database, migrate, page_reader
from tests.simulation.loop import SimulatedLoop


class _Inline:
    """The queue of an aiosqlite connection: its functions are called in order, one at a time."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[asyncio.Future[Any] | None, Callable[[], Any]]] = deque()

    def put_nowait(self, item: tuple[asyncio.Future[Any] | None, Callable[[], Any]]) -> None:
        self._waiting.append(item)
        if len(self._waiting) == 1:
            self._next()

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.run_in_executor(None, self._work)

    def _work(self) -> None:
        future, function = self._waiting[0]
        try:
            found = function()
        except Exception as error:
            if future is not None and not future.done():
                future.set_exception(error)
        else:
            if future is not None and not future.done():
                future.set_result(found)
        self._waiting.popleft()
        if self._waiting:
            self._next()


class _NoThread:
    daemon = True

    def start(self) -> None:
        """The queue does its work."""


class InlineConnection(aiosqlite.Connection):
    def __init__(self, path: Path) -> None:
        super().__init__(lambda: sqlite3.connect(path), iter_chunk_size=64)
        self._tx = _Inline()  # type: ignore[assignment]
        self._thread = _NoThread()  # type: ignore[assignment]

    def __del__(self) -> None:
        """A process that was killed closes nothing."""


class InlineExecutor(Executor):
    """For what waits for a thread's result; all else is the loop's to do."""

    def __init__(self, *_: object, **__: object) -> None:
        """As any executor's."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class _KeptEngine:
    """An engine outlives its seed with the statements that it has compiled, which cost more than
    all that is done with them."""

    def __init__(self) -> None:
        self.path = Path()

        async def connect() -> InlineConnection:
            return await InlineConnection(self.path)

        self.engine = create_async_engine(
            "sqlite+aiosqlite:///",
            async_creator=connect,
            poolclass=AsyncAdaptedQueuePool,
            pool_size=1,
            max_overflow=0,
        )
        connection._listen(self.engine.sync_engine)


_kept: list[_KeptEngine] = []


@cache
def _empty_file() -> bytes:
    """What `migrate.make` makes, which takes longer than many a seed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.sqlite")
        migrate.make(path)
        return path.read_bytes()


@contextlib.contextmanager
def sqlite_on_the_loop() -> Iterator[None]:
    """While it lasts, the local state of each process is on the simulated loop."""
    used = 0

    def engine_of(path: Path) -> AsyncEngine:
        nonlocal used
        if used == len(_kept):
            _kept.append(_KeptEngine())
        kept = _kept[used]
        kept.path = path
        used += 1
        return kept.engine

    empty = _empty_file()
    try:
        with (
            mock.patch.object(migrate, "make", lambda path: path.write_bytes(empty)),
            mock.patch.object(database, "writer_engine", engine_of),
            mock.patch.object(page_reader, "ThreadPoolExecutor", InlineExecutor),
        ):
            yield
    finally:
        for kept in _kept[:used]:
            kept.engine.sync_engine.dispose(close=False)  # its files are gone


@contextlib.contextmanager
def nothing_heard_of_pools() -> Iterator[None]:
    """When a seed ends, transactions of dead processes are torn, and their pools complain."""
    log = logging.getLogger("sqlalchemy.pool.impl.AsyncAdaptedQueuePool")
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False
