"""Stand-ins for the broker's ports: a journal in memory that a test steps by hand, and the like."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from seb_appliance.broker.ports import (
    AuditQuery,
    AuditRow,
    LoadedState,
    NewSegment,
    ObjectRef,
    SectionRef,
    SignedUpload,
    StoreHealth,
)
from seb_appliance.broker.record_keys.indexing import IndexedTopic
from seb_appliance.broker.topics.topic import IndexRows
from seb_appliance.errors import FencedError, StoreUncertainError
from seb_appliance.formats import entry as entry_format
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Contents
from seb_appliance.formats.entry import ORIGIN, EncodedEntry, Encoder, Entry, Position
from seb_appliance.formats.operations import AuditNoted
from tests.support.delays import DelaysOfEntries

START_US = 1_800_000_000_000_000


class FakeTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """Time stands still until a test says `await clock.advance(seconds)`."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_offset_us = 0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, FakeTimer, Callable[[], None]]] = []

    def wall_us(self) -> int:
        return START_US + int((self.now_s - 1000.0) * 1_000_000) + self.wall_offset_us

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        done = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: done.done() or done.set_result(None))
        await done

    def call_later(self, seconds: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer()
        heapq.heappush(self._timers, (self.now_s + seconds, next(self._order), timer, callback))
        return timer

    @property
    def armed(self) -> int:
        """Timers that would still fire."""
        return sum(not timer.cancelled for _, _, timer, _ in self._timers)

    async def advance(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        await settle()
        while self._timers and self._timers[0][0] <= until_s:
            at_s, _, timer, callback = heapq.heappop(self._timers)
            self.now_s = max(self.now_s, at_s)
            if not timer.cancelled:
                callback()
                await settle()
        self.now_s = until_s
        await settle()


async def settle() -> None:
    """Let everything that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)


class FakeJournal:
    """Entries in a list. `hold` keeps an append waiting until `release` is called."""

    bucket_id = b"B" * 16
    writer_id = b"W" * 16
    epoch = 1
    mode = "A"
    encodes_ahead = True
    durability = "memory"

    def __init__(self, clock: FakeClock) -> None:
        self.position: Position = ORIGIN
        self.health = StoreHealth(last_success_s=clock.monotonic_s())
        self.encoded: list[EncodedEntry] = []
        self.entries: list[EncodedEntry] = []
        self.fenced = False
        self.confirmations = 0
        self._go = asyncio.Event()
        self._go.set()
        self._clock = clock

    def hold(self) -> None:
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def encoder(self, created_us: int) -> Encoder:
        def encode(contents: Contents, parts: Sequence[Bytes]) -> EncodedEntry:
            encoded = entry_format.encode(
                contents,
                parts,
                after=self.encoded[-1].entry.header.position if self.encoded else ORIGIN,
                epoch=self.epoch,
                writer_id=self.writer_id,
                entry_id=len(self.encoded).to_bytes(16, "big"),
                bucket_id=self.bucket_id,
                created_us=created_us,
            )
            self.encoded.append(encoded)
            return encoded

        return encode

    async def append(self, encoded: EncodedEntry) -> None:
        await self._go.wait()
        if self.fenced:
            raise FencedError("another appliance has taken over")
        assert encoded.entry.header.follows(self.position)
        self.entries.append(encoded)
        self.position = encoded.entry.header.position
        self.health.last_success_s = self._clock.monotonic_s()

    async def confirm_in_force(self) -> None:
        self.confirmations += 1
        if self.fenced:
            raise FencedError("another appliance has taken over")
        self.health.last_success_s = self._clock.monotonic_s()


class FakeSource:
    """Sections out of the entries that were kept."""

    def __init__(self) -> None:
        self.bodies: dict[int, bytes] = {}
        self.reads = 0
        self.away = False
        self.in_memory = False  # whether sections can be had without waiting
        self.pause: Callable[[], Awaitable[None]] | None = None  # before each answer

    def keep(self, entry: EncodedEntry) -> None:
        self.bodies[entry.entry.header.seq] = entry.body

    def cached(self, ref: SectionRef) -> bytes | None:
        return self.bodies[ref.entry.seq][ref.at : ref.at + ref.length] if self.in_memory else None

    async def signed_urls(self, objects: Sequence[ObjectRef], valid_s: int) -> list[str] | None:
        return [f"https://bucket/{ref.key}?for={valid_s}" for ref in objects]

    async def signed_upload(self, segment: NewSegment, valid_s: int) -> SignedUpload | None:
        key = f"segments/{segment.topic_id}/{segment.name.hex()}"
        return SignedUpload(key, f"https://bucket/{key}?for={valid_s}", {})

    async def read(self, ref: SectionRef) -> bytes:
        self.reads += 1
        if self.pause is not None:
            await self.pause()
        if self.away:
            raise StoreUncertainError("the bucket does not answer")
        return self.bodies[ref.entry.seq][ref.at : ref.at + ref.length]


class FakeState(DelaysOfEntries):
    """Takes entries and commits none until told: how far it is behind is a test's to set."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.lag_entries = 0
        self.is_far_behind = False
        self.pause_s = 0.0
        self.paged_seq = 0
        self.failure = ""

    async def load(self) -> LoadedState:
        return LoadedState(ORIGIN)

    def follow(self, entry: Entry) -> None:
        self.entries.append(entry)

    async def index_page(self, topic_id: int, offset: int) -> IndexRows | None:
        raise AssertionError("nothing is in a page")

    async def index_page_at(self, topic_id: int, timestamp_us: int) -> IndexRows | None:
        raise AssertionError("nothing is in a page")

    async def drain(self) -> None: ...

    async def audit(self, query: AuditQuery) -> list[AuditRow]:
        """All actions, newest first, whatever the query."""
        noted = [
            operation
            for entry in self.entries
            for operation in entry.contents.operations
            if isinstance(operation, AuditNoted)
        ]
        rows = []
        for number, event in enumerate(noted, 1):
            fields = msgspec.structs.asdict(event)
            del fields["version"]
            rows.append(AuditRow(number, **fields))
        return rows[::-1][: query.most]

    async def audited(self) -> list[tuple[str, str]]:
        raise AssertionError("nobody asks here")


class FakeKeyIndex:
    """No topic is indexed, and none may be."""

    size_bytes = 0

    async def load(self) -> dict[int, IndexedTopic]:
        return {}
