"""Writes topics in the Go broker's format, so that it can continue with them.

A file ends where the time of the records changes: the one time that it has is then theirs. So an
imported topic is exported unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from seb_appliance import limits
from seb_appliance.errors import BadBatchError, ExportRefusedError
from seb_appliance.formats import batch_v1
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.stores.object_store import list_all

PUTS_AT_ONCE: Final = 8


class ExportedRecord(Protocol):
    """What is known of a record. `value` None: a tombstone."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_us(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Mapping[str, bytes]: ...


class OldTopicWriter:
    """Writes one topic. `values_only`: record keys and headers are left out, and tombstones and
    offsets without a record become empty records; else such records are refused. `records_per_file`
    None: a file for each time; N: up to N records of any times, the latest of which is the file's.
    """

    def __init__(
        self,
        store: RetryingStore,
        name: str,
        *,
        values_only: bool = False,
        records_per_file: int | None = None,
    ) -> None:
        self.files = self.records = self.found = 0
        self._store = store
        self._name = name
        self._values_only = values_only
        self._records_per_file = records_per_file or limits.EXPORT_FILE_RECORDS_MAX
        self._mixes_times = records_per_file is not None
        self._there: set[str] = set()
        self._next_offset: int | None = None
        self._values: list[bytes] = []
        self._values_bytes = 0
        self._created_us = 0
        self._waiting: list[tuple[str, bytes]] = []
        self._waiting_bytes = 0

    async def begin(self) -> None:
        """List what the destination already has. Raises StoreError."""
        listed = await list_all(self._store, f"{self._name}/")
        self._there = {info.key for info in listed if layout.parse_go_batch(info.key)}

    async def add(self, records: Sequence[ExportedRecord]) -> None:
        """The topic's next records. Raises ExportRefusedError, StoreError."""
        for record in records:
            await self._fill_gap(record)
            is_more = record.key is not None or record.headers or record.value is None
            if is_more and not self._values_only:
                raise ExportRefusedError(
                    f"The record at offset {record.offset} of {self._name!r} has a record key, "
                    "headers or no value, which the Go broker's files cannot represent. "
                    "--values-only leaves them out."
                )
            await self._put_in(record.offset, record.timestamp_us, record.value or b"")

    async def finish(self) -> None:
        """Write what is left. Raises ExportRefusedError, StoreError."""
        self._end_file()
        await self._write()
        if self._there:
            raise ExportRefusedError(
                f"The destination has {min(self._there)}, which does not belong to this topic's "
                "log. Choose an empty destination."
            )

    async def _fill_gap(self, record: ExportedRecord) -> None:
        if self._next_offset is None:
            self._next_offset = record.offset
        if record.offset > self._next_offset and not self._values_only:
            raise ExportRefusedError(
                f"Topic {self._name!r} has no records from offset {self._next_offset} up to "
                f"{record.offset}, which the Go broker's files cannot represent. --values-only "
                "writes empty records instead."
            )
        while self._next_offset < record.offset:
            await self._put_in(self._next_offset, record.timestamp_us, b"")

    async def _put_in(self, offset: int, timestamp_us: int, value: bytes) -> None:
        """The next record. Compaction may have left out billions, so what is full is stored."""
        self._take(offset, timestamp_us, value)
        if self._waiting_bytes >= limits.EXPORT_FILE_BYTES:
            await self._write()

    def _take(self, offset: int, timestamp_us: int, value: bytes) -> None:
        is_full = (
            len(self._values) >= self._records_per_file
            or self._values_bytes + len(value) > limits.EXPORT_FILE_BYTES
        )
        other_time = not self._mixes_times and timestamp_us != self._created_us
        if self._values and (is_full or other_time):
            self._end_file()
        self._created_us = max(self._created_us, timestamp_us) if self._values else timestamp_us
        self._values.append(value)
        self._values_bytes += len(value)
        self._next_offset = offset + 1

    def _end_file(self) -> None:
        if not self._values:
            return
        assert self._next_offset is not None
        plain = batch_v1.encode(self._values, self._created_us)
        base_offset = self._next_offset - len(self._values)
        self._waiting.append((layout.go_batch_key(self._name, base_offset), plain))
        self._waiting_bytes += len(plain)
        self.files += 1
        self.records += len(self._values)
        self._values, self._values_bytes = [], 0

    async def _write(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        await together((self._put(key, plain) for key, plain in waiting), PUTS_AT_ONCE)

    async def _put(self, key: str, plain: bytes) -> None:
        if key not in self._there:
            body = batch_v1.compress(plain)
            await self._store.put(key, body)
            return
        stored = await self._store.get(key)
        try:
            is_same = batch_v1.inflate(stored) == plain
        except BadBatchError:
            is_same = False
        if not is_same:
            raise ExportRefusedError(f"{key} already exists with other content.")
        self._there.discard(key)
        self.found += 1
