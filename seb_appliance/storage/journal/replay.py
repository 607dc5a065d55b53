"""Replay: entries read in order by range GETs, many at the same time.

No entry is ever skipped. A writer's entries end where GET of the next key answers 404, never where
a LIST ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, TypeVar

from seb_appliance import limits
from seb_appliance.broker.ports import Replica
from seb_appliance.clock import Clock
from seb_appliance.errors import BadBatchError, ObjectMissingError
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.entry import (
    HEADER_BYTES,
    Entry,
    EntryHeader,
    Position,
    read_contents,
    read_header,
)
from seb_appliance.storage.journal.retry import RetryingStore

T = TypeVar("T")

AHEAD_MAX: Final = 32  # entries being read at the same time
APPLY_ENTRIES: Final = 256  # entries in one transaction of the replica
LIST_PAGE: Final = 1000
_PAGES_EXPECTED: Final = 1000
READS_OF_A_BAD_ENTRY: Final = 3  # a bit may have been flipped in transit

Progress = Callable[[int, int, str], None]
"""(entries done, entries estimated in all, what is being done, in words)."""


class ReplayError(Exception):
    """The log cannot be followed at `key`: start again from a newer snapshot, or it is damaged."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


@dataclass(frozen=True, slots=True)
class Span:
    """Entries whose keys follow one scheme, up to and including `until_seq` (None: up to the first
    absent key). `refusal` says why an entry does not continue the log here, or ""."""

    key: Callable[[int], str]
    until_seq: int | None
    refusal: Callable[[EntryHeader, Position], str]


class EntryReader:
    """Reads an entry's header and contents, not its records: one range GET, seldom two."""

    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def read(self, key: str, bucket_id: bytes) -> Entry | None:
        """The checked entry, or None for 404. Raises ReplayError for a damaged or foreign one."""
        entry = await self._checked(key, self._read_once)
        if entry is not None and entry.header.bucket_id != bucket_id:
            raise ReplayError(key, f"is of another bucket ({entry.header.bucket_id.hex()})")
        return entry

    async def read_header(self, key: str) -> EntryHeader | None:
        """The checked header alone, or None for 404."""
        return await self._checked(key, self._read_header_once)

    async def _checked(self, key: str, read: Callable[[str], Awaitable[T]]) -> T | None:
        why = ""
        for _ in range(READS_OF_A_BAD_ENTRY):
            try:
                return await read(key)
            except ObjectMissingError:
                return None
            except BadBatchError as error:
                why = error.detail
        raise ReplayError(key, f"is damaged: {why}")

    async def _read_header_once(self, key: str) -> EntryHeader:
        return read_header((await self._store.get_range(key, 0, HEADER_BYTES)).data)

    async def _read_once(self, key: str) -> Entry:
        part = await self._store.get_range(key, 0, limits.ENTRY_HEAD_READ_BYTES)
        head, header = part.data, read_header(part.data)
        if part.total_size != header.length:
            raise BadBatchError(
                f"the entry says {header.length} bytes, the object has {part.total_size}"
            )
        if len(head) < header.sections_at:
            missing = header.sections_at - len(head)
            head += (await self._store.get_range(key, len(head), missing)).data
        return Entry(header, read_contents(header, head))


class Replay:
    """Brings a replica up along spans. `done` counts the entries replayed so far, in `seconds`."""

    def __init__(
        self,
        store: RetryingStore,
        replica: Replica,
        clock: Clock,
        failpoints: Failpoints,
        progress: Progress,
    ) -> None:
        self.done = 0
        self.seconds = 0.0
        self.expected = 0  # entries in all, as far as a LIST knew; for the progress only
        self.store = store
        self.reader = EntryReader(store)
        self._replica = replica
        self._clock = clock
        self._failpoints = failpoints
        self._progress = progress

    async def expect(self, prefix: str, after: str) -> None:
        """See by LIST how many entries there are to come; for the progress only. A page that is not
        full ends it: a writer in force may store entries faster than pages come. So does the
        last page: a store may list without end."""
        self.expected = self.done
        for _ in range(_PAGES_EXPECTED):
            page = await self.store.list_after(prefix, after, LIST_PAGE)
            self.expected += len(page)
            if len(page) < LIST_PAGE:
                return
            after = page[-1].key

    async def run(self, position: Position, span: Span, bucket_id: bytes) -> Position:
        """Apply the entries of `span` that follow `position`; the position of the last of them.

        Raises ReplayError for an entry that is damaged, does not continue the log, or (below the
        end of a span that has one) is missing.
        """
        batch: list[Entry] = []
        applying: asyncio.Task[None] | None = None
        began_s = self._clock.monotonic_s()
        try:
            async with aclosing(self._entries(position, span, bucket_id, ahead=1)) as entries:
                async for entry in entries:
                    position = entry.header.position
                    batch.append(entry)
                    if len(batch) == APPLY_ENTRIES:
                        await _finished(applying)
                        applying = asyncio.create_task(self.apply(batch))
                        batch = []
            await _finished(applying)
            if batch:
                await self.apply(batch)
        finally:
            # Wait for a transaction in progress, whatever its outcome.
            if applying is not None:
                await asyncio.gather(applying, return_exceptions=True)
            self.seconds += self._clock.monotonic_s() - began_s
        return position

    async def read(
        self, position: Position, span: Span, bucket_id: bytes, *, ahead: int
    ) -> list[Entry]:
        """The entries of `span` that follow `position`, not applied. Raises as `run`."""
        async with aclosing(self._entries(position, span, bucket_id, ahead=ahead)) as entries:
            return [entry async for entry in entries]

    async def _entries(
        self, position: Position, span: Span, bucket_id: bytes, *, ahead: int
    ) -> AsyncGenerator[Entry]:
        """`ahead`: how many are requested at first; a start with nothing to replay must not request
        32 absent keys."""
        reads: deque[asyncio.Task[Entry | None]] = deque()
        next_seq = position.seq + 1
        try:
            while span.until_seq is None or position.seq < span.until_seq:
                while len(reads) < ahead and (span.until_seq is None or next_seq <= span.until_seq):
                    key = span.key(next_seq)
                    reads.append(asyncio.create_task(self.reader.read(key, bucket_id)))
                    next_seq += 1
                ahead = min(2 * ahead, AHEAD_MAX)
                entry = await reads.popleft()
                key = span.key(position.seq + 1)
                if entry is None and span.until_seq is None:
                    break
                if entry is None:
                    raise ReplayError(key, f"is missing, and the log goes on to {span.until_seq}")
                if why := span.refusal(entry.header, position):
                    raise ReplayError(key, why)
                position = entry.header.position
                yield entry
        finally:
            for read in reads:
                read.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

    async def apply(self, batch: list[Entry]) -> None:
        """Entries that follow what the replica has, in order."""
        await self._replica.apply(batch)
        self.done += len(batch)
        self._failpoints.reach("K20")
        self._progress(self.done, max(self.done, self.expected), "replaying the journal")


async def _finished(applying: asyncio.Task[None] | None) -> None:
    if applying is not None:
        await applying


def chain_refusal(header: EntryHeader, position: Position) -> str:
    """Why `header` is not the very next entry after `position`, or ""."""
    if header.follows(position):
        return ""
    return (
        f"does not continue the log: it follows entry {header.prev_seq} "
        f"({header.prev_header_crc:08x}), the log is at {position.seq} ({position.header_crc:08x})"
    )
