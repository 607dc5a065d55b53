"""Where `seb export` writes the Go broker's files: a bucket or directory of its own."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError, StoreError
from seb_appliance.ops.host.stores import make_store
from seb_appliance.protocols.go.writing import OldTopicWriter
from seb_appliance.settings import Settings
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore, given_up


class MakeWriter(Protocol):
    def __call__(
        self, name: str, *, values_only: bool, records_per_file: int | None
    ) -> OldTopicWriter: ...


@asynccontextmanager
async def old_bucket(target: Settings) -> AsyncIterator[MakeWriter]:
    """Makes writers of topics in the bucket of `target`. Raises ConfigurationError; inside the
    block a store that does not answer raises StoreUnusableError."""
    if target.address.kind == "memory":
        raise ConfigurationError("--to memory: would be gone at once; name a bucket or directory")
    store = RetryingStore(
        make_store(target), SystemClock(), random.random, give_up_after_s=START_PATIENCE_S
    )

    def make(name: str, *, values_only: bool, records_per_file: int | None) -> OldTopicWriter:
        return OldTopicWriter(
            store, name, values_only=values_only, records_per_file=records_per_file
        )

    try:
        yield make
    except StoreError as error:
        raise given_up(error) from error
    finally:
        await store.close()
