"""Object stores of every kind for the tests, by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from seb_appliance.clock import Clock
from seb_appliance.errors import ObjectExistsError, StoreConflictError, StoreError
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore, given_up
from seb_appliance.storage.stores.directory import DirectoryStore
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import ObjectStore
from seb_appliance.storage.stores.s3 import S3Store
from seb_appliance.storage.stores.store_probe import StoreTest, StoreTestReport
from tests.support.servers.s3_server import S3Server


@contextlib.asynccontextmanager
async def open_store(
    name: str, request: pytest.FixtureRequest, folder: Path
) -> AsyncIterator[ObjectStore]:
    """`memory`, `ready memory` (2 MiB of it), `directory` (in `folder`), or a server by its name in
    tests/support/servers/every.py, with a new bucket. Skips the test where that is not
    installed."""
    store: ObjectStore
    if name == "memory":
        store = MemoryStore()
    elif name == "ready memory":
        store = MemoryStore(ready_bytes=2 << 20)  # some of what the tests store fits
    elif name == "directory":
        store = DirectoryStore(folder / "bucket")
    else:
        server: S3Server = request.getfixturevalue(f"{name}_server")
        store = S3Store(server.new_bucket())
    try:
        yield store
    finally:
        await store.close()


async def race(stores: list[ObjectStore], keys: list[str]) -> dict[str, list[int]]:
    """All stores create all keys at once; for each key, which of them were told that they did.

    The body of writer number i is `writer i`.
    """
    winners: dict[str, list[int]] = {key: [] for key in keys}

    async def create(writer: int, key: str) -> None:
        with contextlib.suppress(ObjectExistsError, StoreConflictError):
            await stores[writer].create(key, f"writer {writer}".encode())
            winners[key].append(writer)

    await asyncio.gather(*(create(i, key) for key in keys for i in range(len(stores))))
    return winners


async def run_store_test(
    store: ObjectStore,
    *,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
    jitter: Callable[[], float],
) -> StoreTestReport:
    """The whole store test, with the retries of a start."""
    retrying = RetryingStore(store, clock, jitter, give_up_after_s=START_PATIENCE_S)
    try:
        return await StoreTest(retrying, clock, random_bytes(8).hex()).run()
    except StoreError as error:
        raise given_up(error) from error
