"""Jobs on the bucket that a child process does with a low priority, and what they ask of it.

A child reads and PUTs; only the parent appends and deletes. It ends when its pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from seb_appliance.broker.upkeep.rewrite_jobs import Asked
from seb_appliance.clock import SystemClock
from seb_appliance.errors import CorruptObjectError, SebError, StoreUncertainError
from seb_appliance.ops.host.runtime import keep_freed_memory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.jobs.job_process import Hello, first_frame, requests_of
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.disk_cache import EntriesOnDisk
from seb_appliance.storage.stores.counted import CountedStore

NICE: Final = 10
PATIENCE_S: Final = 60.0

_T = TypeVar("_T")


class JobAnswer(msgspec.Struct, Generic[_T]):
    """What a job made, or why it failed; `is_damage`: an input cannot be read, whoever tries again.
    Either way `requests` to the bucket were made, by kind, and `received_bytes` came out of it."""

    made: _T | None = None
    failure: str = ""
    is_damage: bool = False
    requests: dict[str, int] = {}
    received_bytes: int = 0

    def taken(self, asked: Asked) -> _T:
        """What was made; what it took is added to `asked`. Raises CorruptObjectError,
        StoreUncertainError."""
        asked.requests.update(self.requests)
        asked.received_bytes += self.received_bytes
        if self.made is not None:
            return self.made
        raise (CorruptObjectError if self.is_damage else StoreUncertainError)(self.failure)


# --- in a child ---


class Work(NamedTuple):
    """`reader`: of the pipe with the jobs. `bucket`: of `store`, with retries."""

    reader: asyncio.StreamReader
    hello: Hello
    store: CountedStore
    bucket: RetryingStore


def run(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    os.nice(NICE)
    keep_freed_memory()  # one heap for all threads: it takes two thirds of what one each takes
    asyncio.run(serve())


async def begin() -> Work:
    reader, hello = await first_frame(Hello)
    store = make_store(hello.settings)
    reads = store if hello.cache is None else EntriesOnDisk(store, hello.cache)
    retrying = RetryingStore(reads, SystemClock(), random.random, give_up_after_s=PATIENCE_S)
    return Work(reader, hello, store, retrying)


async def answer(store: CountedStore, working: Awaitable[_T]) -> JobAnswer[_T]:
    before, received = requests_of(store), store.counts.bytes_received
    found = JobAnswer[_T]()
    try:
        found.made = await working
    except CorruptObjectError as error:
        found.failure, found.is_damage = error.detail, True
    except (SebError, OSError) as error:
        found.failure = str(error)
    found.requests = dict(requests_of(store) - before)
    found.received_bytes = store.counts.bytes_received - received
    return found
