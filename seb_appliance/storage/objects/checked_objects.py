"""The tidier's reads and writes: inputs are checked by checksums, outputs by reading them back and
comparing their records with the inputs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from crc32c import crc32c

from seb_appliance.errors import BadBatchError, CorruptObjectError, ObjectMissingError
from seb_appliance.formats import segment
from seb_appliance.formats.operations import StoredObject, StoredSection
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.objects.merging import Fingerprint, batches_of

_T = TypeVar("_T")

Expected: TypeAlias = Mapping[tuple[int, int], Fingerprint]
"""What the records of each range amount to, by topic id and base offset."""

READS_AT_ONCE: Final = 8
READS_OF_A_BAD_OBJECT: Final = 3  # a bit may have been flipped on the way


class CheckedObjects:
    """Counts the bytes that it `read` and `wrote`."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store
        self.bytes_read = self.bytes_written = 0

    async def get(self, key: str, check: Callable[[bytes], _T]) -> _T:
        """The result of `check` on the object, in a thread; the object is read again if `check`
        raises BadBatchError. Raises CorruptObjectError, StoreError."""

        async def get() -> bytes:
            return await self._store.get(key)

        return await self._checked(key, get, check)

    async def get_range(
        self, key: str, start: int, length: int, check: Callable[[bytes], _T]
    ) -> _T:
        """As `get`, of bytes start ≤ i < start + length."""

        async def get() -> bytes:
            return (await self._store.get_range(key, start, length)).data

        return await self._checked(key, get, check)

    async def put(self, key: str, body: bytes) -> None:
        """Raises StoreError."""
        await self._store.put(key, body)
        self.bytes_written += len(body)

    async def read_back(self, made: StoredObject, bucket_id: bytes, expected: Expected) -> None:
        """Check that the object in the bucket has this index and these records. Raises
        CorruptObjectError, StoreError."""

        def check(body: bytes) -> None:
            index = segment.decode(body)
            if index.sections != made.sections or index.bucket_id != bucket_id:
                raise BadBatchError("its index differs from the one that was written")
            _check_records(body, index.sections, expected)

        await self.get(made.key, check)

    async def _checked(
        self, key: str, get: Callable[[], Awaitable[bytes]], check: Callable[[bytes], _T]
    ) -> _T:
        why = ""
        for _ in range(READS_OF_A_BAD_OBJECT):
            try:
                body = await get()
                self.bytes_read += len(body)
                return await asyncio.to_thread(check, body)
            except ObjectMissingError:
                why = "it is not in the bucket"
                break
            except BadBatchError as error:
                why = error.detail
        raise CorruptObjectError(f"{key} cannot be merged or compacted: {why}", object_key=key)


def check_crc(data: bytes, crc: int) -> None:
    """Raises BadBatchError."""
    if crc32c(data) != crc:
        raise BadBatchError("the checksum of a section does not agree")


def _check_records(body: bytes, sections: tuple[StoredSection, ...], expected: Expected) -> None:
    """The sections hold the records that `expected` was made of. Raises BadBatchError."""
    found: dict[tuple[int, int], Fingerprint] = {}
    run, next_offset = (-1, -1), -1
    for section in sections:
        if (section.topic_id, section.base_offset) != (run[0], next_offset) or (
            (section.topic_id, section.base_offset) in expected
        ):
            run = (section.topic_id, section.base_offset)
            found[run] = Fingerprint()
        next_offset = section.last_offset + 1
        data = body[section.at : section.at + section.length]
        check_crc(data, section.crc)
        for decoded, _ in batches_of(data, section.base_offset, section.last_offset):
            found[run].add(decoded)
    if found != expected:
        raise BadBatchError("it does not have the records of its inputs")
