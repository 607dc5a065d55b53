"""An appliance over a bucket in memory that is tidied by hand."""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from seb_appliance import setting_sources
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import ApiKeyView, From, NewRecords, ReadRequest
from seb_appliance.failpoints import NO_FAILPOINTS
from seb_appliance.formats import batch_v1
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.operations import StoredObject, StoredSection
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.storage.stores.counted import CountedStore
from seb_appliance.storage.stores.memory import MemoryStore
from seb_appliance.storage.stores.object_store import list_all

ADMIN = ApiKeyView("test", "test", (Grant(operation="admin"),), 0)
FLAGS = {"tidier": "off", "tidy_bytes": "1KiB", "tidy_young": "0ms", "garbage_grace": "0ms"}


Record = tuple[int, bytes | None, bytes | None]


class Place:
    """An appliance that is tidied by hand, started again and again on one bucket."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.folder = folder
        self.appliance: Appliance

    async def start(self, **flags: str) -> None:
        given = {"bucket": "memory:", "linger": "0ms", "take_over": True, **FLAGS, **flags}
        chosen = setting_sources.load(flags={"data": str(self.folder), **given}, environment={})
        store = CountedStore(self.store)
        self.appliance = await Appliance.open(chosen, store, NO_FAILPOINTS, lambda *_: None)
        await self.appliance.start()
        self.broker, self.tidier = self.appliance.broker, self.appliance.tidier

    async def restart(self, **flags: str) -> None:
        assert await self.appliance.drain()
        await self.appliance.close()
        await self.start(**flags)

    async def produce(self, topic: str, count: int, size: int = 40) -> list[bytes]:
        values = [b"%d " % n + b"x" * size for n in range(count)]
        for value in values:
            reservation = self.broker.pending.reserve(OPERATOR, 1)
            await self.broker.appends.append(ADMIN, topic, NewRecords([value]), reservation)
        return values

    async def put(self, topic: str, *records: tuple[bytes | None, bytes | None]) -> None:
        """Append (record key, value) each."""
        keys, values = [key for key, _ in records], [value for _, value in records]
        new = NewRecords(values, keys=keys)
        await self.broker.appends.append(
            ADMIN, topic, new, self.broker.pending.reserve(OPERATOR, 1)
        )

    async def old_files(self, topic: str, base: int, *counts: int) -> list[StoredObject]:
        """A file of a Go broker for each count of records, from the offset `base` on, which the
        topic may adopt."""
        topic_id = self.broker.topics.get(topic).topic_id
        objects = []
        for count in counts:
            values = [f"{topic} {base + n}".encode() for n in range(count)]
            body = batch_v1.compress(batch_v1.encode(values, created_us := 1_000_000 + base))
            key = f"{topic}/{base:012d}.record_batch"
            await self.store.put(key, body)
            ends, crc = (base, base + count - 1), crc32c(body)
            section = StoredSection(
                topic_id, *ends, count, 0, len(body), crc, created_us, created_us
            )
            objects.append(StoredObject(key, len(body), (section,)))
            base += count
        return objects

    async def records(self, topic: str) -> list[Record]:
        """All that can be read: (offset, record key, value) each."""
        found: list[Record] = []
        start = From(earliest=True)
        while True:
            request = ReadRequest(start, max_records=7, max_bytes=1 << 24)
            result = await self.broker.read(topic, request)
            for piece in result.slices:
                columns, count = piece.batch.columns, piece.batch.header.count
                keys = [None] * count if columns.keys is None else columns.keys.slice()
                rows = list(zip(piece.batch.offsets(), keys, columns.values.slice(), strict=True))
                found += rows[piece.begin : piece.end]
            if result.next_offset == result.log_end_offset:
                return found
            start = From(offset=result.next_offset)

    async def tidy(self) -> None:
        while await self.tidier.step():
            pass

    async def compact(self) -> None:
        await compact(self.appliance)

    async def values(self, topic: str, start: From | None = None) -> list[bytes | None]:
        request = ReadRequest(start or From(earliest=True), max_records=100_000, max_bytes=1 << 24)
        result = await self.broker.read(topic, request)
        return [
            value
            for piece in result.slices
            for value in piece.batch.columns.values.slice(piece.begin, piece.end)
        ]

    async def keys(self, folder: str) -> list[str]:
        return [info.key for info in await list_all(self.store, folder)]


async def compact(appliance: Appliance) -> None:
    """Tidy until no record lies in an entry, and no compaction is due. Every entry is worth a job
    with these settings, also the one that a job writes: tidying would find no end."""
    tidier, broker = appliance.tidier, appliance.broker
    await tidier.step()
    while (
        any(topic.entries_begin < topic.log_end_offset for topic in broker._catalog.topics())
        or await broker.tidying.compactions.next() is not None
    ):
        await tidier.step()
