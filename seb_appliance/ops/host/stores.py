"""The object store that the settings name."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, cast

from seb_appliance.clock import SystemClock
from seb_appliance.errors import ConfigurationError, StoreError, StoreUnusableError
from seb_appliance.failpoints import NO_FAILPOINTS, Failpoints
from seb_appliance.settings import Settings
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore, given_up
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.object_store import DelayedStore, ObjectStore


def make_store(
    settings: Settings, failpoints: Failpoints = NO_FAILPOINTS, *, must_exist: bool = False
) -> CountedStore:
    """The store, counting its requests; S3 is not asked yet. A missing directory is made, unless it
    `must_exist`: what only reads makes none.

    Raises ConfigurationError, StoreUnusableError. What one kind of store needs is imported only for
    that kind.
    """
    address = settings.address
    if address.kind == "memory":
        from seb_appliance.storage.stores.memory import MemoryStore

        return CountedStore(_delayed(MemoryStore(address.ready_bytes), settings))
    if address.kind == "file":
        from seb_appliance.storage.stores.directory import DirectoryStore

        if must_exist and not address.path.is_dir():
            raise StoreUnusableError(f"there is no directory {address.path}")
        try:
            return CountedStore(_delayed(DirectoryStore(address.path, failpoints), settings))
        except OSError as error:
            raise ConfigurationError(
                f"cannot use the directory {address.path} as a bucket ({error.strerror})"
            ) from error
    from seb_appliance.storage.stores.s3 import S3Store
    from seb_appliance.storage.stores.s3_options import S3Options

    options = S3Options(
        bucket=address.name,
        prefix=address.prefix,
        endpoint_url=settings.s3_endpoint,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=settings.s3_secret_access_key,
        connect_timeout_s=settings.s3_connect_timeout_ms / 1000,
        read_timeout_s=settings.s3_read_timeout_ms / 1000,
        checksums=cast("Literal['when_required', 'when_supported']", settings.s3_checksums),
    )
    return CountedStore(S3Store(options, failpoints))


@asynccontextmanager
async def opened_store(
    settings: Settings, *, must_exist: bool = True
) -> AsyncIterator[RetryingStore]:
    """The store of `settings` for a command, with the patience of a start; closed after the block.
    Raises ConfigurationError; a store that does not answer raises StoreUnusableError."""
    store = make_store(settings, must_exist=must_exist)
    try:
        yield RetryingStore(store, SystemClock(), random.random, give_up_after_s=START_PATIENCE_S)
    except StoreError as error:
        raise given_up(error) from error
    finally:
        await store.close()


def _delayed(store: ObjectStore, settings: Settings) -> ObjectStore:
    """As far away as `store_latency` says."""
    if not settings.store_latency_ms:
        return store
    return DelayedStore(store, settings.store_latency_ms / 1000, SystemClock())
