"""Verified bytes of sections: from memory, from the cache on disk, or from the bucket.

Every read checks the CRC, whatever the source: a real store was seen to return a flipped bit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from crc32c import crc32c

from seb_appliance.broker.ports import (
    EntryRef,
    NewSegment,
    ObjectRef,
    SectionRef,
    SignedUpload,
)
from seb_appliance.clock import Clock
from seb_appliance.errors import (
    CorruptObjectError,
    ObjectMissingError,
    StoreDeniedError,
    StoreError,
)
from seb_appliance.formats.entry import EncodedEntry
from seb_appliance.storage import layout
from seb_appliance.storage.objects.disk_cache import DiskCache, entry_name, section_name
from seb_appliance.storage.stores.object_store import ObjectStore

_log = logging.getLogger(__name__)

TAIL_BYTES = 16 * 1024 * 1024  # the newest entries stay in memory: most readers follow the end
ATTEMPTS = 3
PAUSE_S = 0.1
UNREADABLE_SAID_MAX = 1000  # objects that the log names, each once
CACHE_BACKLOG_MAX = 32  # entries on their way to the disk; more are not cached


class BucketSections:
    """Fulfils the broker's `SectionSource`. `cache` is None where the bucket is a local disk."""

    def __init__(
        self,
        store: ObjectStore,
        key_of: Callable[[EntryRef | ObjectRef], str],
        cache: DiskCache | None,
        clock: Clock,
    ) -> None:
        self._store = store
        self._key_of = key_of
        self._cache = cache
        self._clock = clock
        self._cache_thread = ThreadPoolExecutor(1, thread_name_prefix="cache")
        self._cache_backlog = 0
        self._tail: OrderedDict[int, bytes] = OrderedDict()
        self._tail_bytes = 0
        self._unreadable: set[str] = set()
        self.from_memory = self.from_disk = self.from_bucket = self.damaged = 0

    def keep(self, entry: EncodedEntry) -> None:
        """Keep a stored entry of ours in memory, and write it to the cache on disk."""
        seq = entry.entry.header.seq
        self._tail[seq] = entry.body
        self._tail_bytes += len(entry.body)
        while self._tail_bytes > TAIL_BYTES:
            _, oldest = self._tail.popitem(last=False)
            self._tail_bytes -= len(oldest)
        if self._cache is not None and self._cache_backlog < CACHE_BACKLOG_MAX:
            cache, body = self._cache, entry.body
            self._in_cache_thread(lambda: cache.put(entry_name(seq), body))

    @property
    def has_cache(self) -> bool:
        return self._cache is not None

    @property
    def cached_bytes(self) -> int:
        """Of the cache on disk; 0 where there is none."""
        return self._cache.used_bytes if self._cache is not None else 0

    async def signed_urls(self, objects: Sequence[ObjectRef], valid_s: int) -> list[str] | None:
        """See `ObjectStore.signed_urls`. Raises StoreError."""
        return await self._store.signed_urls([ref.key for ref in objects], valid_s)

    async def signed_upload(self, segment: NewSegment, valid_s: int) -> SignedUpload | None:
        """See `SectionSource`."""
        ends = segment.base_offset, segment.last_offset
        key = layout.segment_key(segment.topic_id, *ends, segment.epoch, segment.name)
        put = await self._store.signed_put(key, segment.length, segment.md5, valid_s)
        return None if put is None else SignedUpload(key, put.url, put.headers)

    def cached(self, ref: SectionRef) -> bytes | None:
        """The section's bytes if its entry is among the newest; else None."""
        body = self._tail.get(ref.entry.seq)
        if body is None:
            return None
        data = body[ref.at : ref.at + ref.length]
        if crc32c(data) != ref.crc:
            return None
        self.from_memory += 1
        return data

    async def read(self, ref: SectionRef) -> bytes:
        """The section's bytes. Raises CorruptObjectError, StoreError."""
        in_memory = self.cached(ref)
        if in_memory is not None:
            return in_memory
        cached = await self._from_disk(ref)
        if cached is not None:
            self.from_disk += 1
            return cached
        data = await self._from_bucket(ref)
        self.from_bucket += 1
        if self._cache is not None:
            cache = self._cache
            self._in_cache_thread(lambda: cache.put(section_name(ref.entry.seq, ref.at), data))
        return data

    async def close(self) -> None:
        """Wait for writes to the cache."""
        await asyncio.to_thread(self._cache_thread.shutdown)

    def _in_cache_thread(self, work: Callable[[], None]) -> None:
        self._cache_backlog += 1
        future = asyncio.get_running_loop().run_in_executor(self._cache_thread, work)

        def done(future: asyncio.Future[None]) -> None:
            self._cache_backlog -= 1
            future.result()  # the cache handles disk errors; any other error is a bug to show

        future.add_done_callback(done)

    async def _from_disk(self, ref: SectionRef) -> bytes | None:
        if self._cache is None:
            return None
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(
            self._cache_thread, self._cache.read, ref.entry.seq, ref.at, ref.length
        )
        if data is None or crc32c(data) == ref.crc:
            return data
        self.damaged += 1
        await loop.run_in_executor(self._cache_thread, self._cache.drop, ref.entry.seq, ref.at)
        return None

    async def _from_bucket(self, ref: SectionRef) -> bytes:
        """Tries up to three times, for an answer that is not damaged."""
        key = self._key_of(ref.entry)
        failure: StoreError | CorruptObjectError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._clock.sleep(PAUSE_S * 2**attempt)
            try:
                part = await self._store.get_range(key, ref.at, ref.length)
            except StoreDeniedError:
                raise
            except ObjectMissingError as error:
                self.damaged += 1
                failure = self._corrupt(ref, "the object is not in the bucket")
                self._say(key, failure)
                raise failure from error
            except StoreError as error:
                failure = error
                continue
            if len(part.data) == ref.length and crc32c(part.data) == ref.crc:
                return part.data
            self.damaged += 1
            failure = self._corrupt(ref, "the checksum does not agree")
        assert failure is not None
        if isinstance(failure, CorruptObjectError):
            self._say(key, failure)
        raise failure

    def _say(self, key: str, failure: CorruptObjectError) -> None:
        """Once for each object: readers try again and again."""
        if key not in self._unreadable and len(self._unreadable) < UNREADABLE_SAID_MAX:
            self._unreadable.add(key)
            _log.error("%s: %s seb fsck shows what is lost.", key, failure.detail)

    def _corrupt(self, ref: SectionRef, what: str) -> CorruptObjectError:
        return CorruptObjectError(
            f"Offsets {ref.base_offset} to {ref.last_offset} of topic id {ref.topic_id} cannot be "
            f"read: {what}.",
            object_key=self._key_of(ref.entry),
            topic_id=ref.topic_id,
            offset=ref.base_offset,
            until=ref.last_offset + 1,
        )
