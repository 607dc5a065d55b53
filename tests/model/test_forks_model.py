"""A fork holds what it shared and what it got, whatever becomes of its parent: topics with forks
equal a plain model of lists, through merging, compaction, trims, deletions and starts; and what the
bucket alone tells is what the appliance that wrote it knew."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.upkeep.tidying import SwitchRefusedError
from seb_appliance.clock import SystemClock
from seb_appliance.errors import ForkRefusedError, NameHeldError, TopicHeldError
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.ops.checks.check import CheckOptions, check_bucket
from seb_appliance.ops.checks.findings import Findings
from seb_appliance.ops.checks.objects import list_bucket
from seb_appliance.ops.checks.reference import DigestDatabase, Reference
from seb_appliance.state.tables import state_digest
from seb_appliance.storage.journal.retry import RetryingStore
from seb_appliance.storage.stores.counted import CountedStore
from tests.support.tidied import Place, Record

SETTINGS = TopicSettings(
    cleanup="compact", dirty_ratio=0.01, tombstone_retention_ms=0, key_index="latest"
)


@dataclass
class Log:
    """A topic: `records` by offset."""

    parent: str | None = None
    fork_offset: int = 0
    start: int = 0
    end: int = 0
    records: dict[int, Record] = field(default_factory=dict)
    forks: set[str] = field(default_factory=set)
    is_deleted: bool = False


class Model:
    def __init__(self, place: Place, chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.logs: dict[str, Log] = {}
        self.made = 0

    @property
    def living(self) -> list[str]:
        return sorted(name for name, log in self.logs.items() if not log.is_deleted)

    async def create(self) -> None:
        self.made += 1
        name = f"t{self.made}"
        await self.place.broker.topics.create(name, SETTINGS)
        log = self.logs[name] = Log()
        if self.chance.random() < 0.5:
            await self.adopt(name, log)

    async def adopt(self, name: str, log: Log) -> None:
        """The topic was a Go broker's."""
        counts = [self.chance.randint(1, 9) for _ in range(self.chance.randint(1, 6))]
        await self.place.broker.tidying.adopt(await self.place.old_files(name, 0, *counts))
        log.end = sum(counts)
        log.records = {n: (n, None, f"{name} {n}".encode()) for n in range(log.end)}

    async def produce(self) -> None:
        name = self.chance.choice(self.living)
        log = self.logs[name]
        for _ in range(self.chance.randint(1, 3)):
            records: list[tuple[bytes | None, bytes | None]] = []
            for _ in range(self.chance.randint(1, 9)):
                key = self.chance.choice([None, b"a", b"b", b"c"])
                gone = key is not None and self.chance.random() < 0.3
                at = log.end + len(records)
                records.append((key, None if gone else f"{name} {at}".encode().ljust(90)))
            await self.place.put(name, *records)
            for key, value in records:
                log.records[log.end] = (log.end, key, value)
                log.end += 1

    async def fork(self) -> None:
        await self.check()
        parent = self.chance.choice(self.living)
        log = self.logs[parent]
        at = self.chance.choice([log.start, log.end, self.chance.randint(log.start, log.end)])
        self.made += 1
        name = f"t{self.made}"
        try:
            view, made = await self.place.broker.topics.fork(name, parent, at)
        except ForkRefusedError:  # compaction went over what lies around it
            return
        assert made
        assert (view.log_start_offset, view.log_end_offset) == (log.start, at)
        shared = {offset: record for offset, record in log.records.items() if offset < at}
        self.logs[name] = Log(parent, at, log.start, at, shared)
        log.forks.add(name)

    async def trim(self) -> None:
        name = self.chance.choice(self.living)
        log = self.logs[name]
        log.start = self.chance.randint(log.start, log.end)
        await self.place.broker.topics.trim(name, log.start)
        log.records = {o: record for o, record in log.records.items() if o >= log.start}

    async def delete(self) -> None:
        name = self.chance.choice(self.living)
        await self.place.broker.topics.delete(name)
        log = self.logs[name]
        log.is_deleted = True
        while log.is_deleted and not log.forks:
            del self.logs[name]
            if log.parent is None:
                break
            name, child = log.parent, name
            log = self.logs[name]
            log.forks.remove(child)

    async def merge(self) -> None:
        await self.place.tidier.step()

    async def merge_late(self) -> None:
        """Other things happen before what the tidier has made is to come into force."""
        tidying = self.place.broker.tidying
        job = await tidying.next_job()
        if job is None:
            return
        made = await self.place.tidier._rewriter.rewrite(job)
        for step in self.chance.sample([self.produce, self.fork, self.trim, self.delete], 3):
            if self.living:
                await step()
        with contextlib.suppress(SwitchRefusedError):
            await tidying.switch(job, made)
        await self.check()

    async def compact(self) -> None:
        """The newest record of each key of what is a topic's alone may be all that is left."""
        await self.check()
        await self.place.compact()
        await self.check()

    async def restart(self) -> None:
        await self.place.restart()

    async def check(self) -> None:
        for name, log in self.logs.items():
            if log.is_deleted:
                with pytest.raises(TopicHeldError):
                    self.place.broker.topics.get(name)
                with pytest.raises(NameHeldError):
                    await self.place.broker.topics.create(name, TopicSettings())
                continue
            view = self.place.broker.topics.get(name)
            assert (view.log_start_offset, view.log_end_offset) == (log.start, log.end)
            assert (view.fork_of and view.fork_of.topic) == log.parent
            found = await self.place.records(name)
            assert found == kept(found, log, self.pinned(log)), name
            log.records = {record[0]: record for record in found}

    def pinned(self, log: Log) -> int:
        """What lies below must not be compacted: the fork's own past, or what its forks share."""
        forks = [self.logs[fork] for fork in log.forks]
        shared = [f.fork_offset for f in forks if self.needed(f) < f.fork_offset]
        return max([log.fork_offset, *shared])

    def needed(self, log: Log) -> int:
        """The first offset that the topic or a fork of it reads."""
        forks = [self.logs[fork] for fork in log.forks]
        below = [begin for f in forks if (begin := self.needed(f)) < f.fork_offset]
        return min(below, default=log.end) if log.is_deleted else min([log.start, *below])


def kept(found: list[Record], log: Log, pinned: int) -> list[Record]:
    """What must be there of the topic: all of it but what newer records of the same record key, or
    tombstones, may have had removed of what no fork shares."""
    there = {offset for offset, _, _ in found}
    newest = {key: offset for offset, key, _ in log.records.values() if key is not None}
    return [
        record
        for offset, record in sorted(log.records.items())
        if offset in there
        or offset < pinned
        or record[1] is None
        or (newest[record[1]] == offset and record[2] is not None)
    ]


async def bucket_tells(place: Place, folder: Path) -> None:
    """A state that is rebuilt from the bucket alone is the one that followed; all is well."""
    assert await place.appliance.drain()
    await place.appliance.close()
    ours = await asyncio.to_thread(state_digest, place.folder / "state.sqlite")
    clock, store, findings = SystemClock(), CountedStore(place.store), Findings()
    retrying = RetryingStore(store, clock, random.Random(0).random)
    options = CheckOptions(data=place.folder, full=True)
    report = await check_bucket(retrying, clock, options, lambda *_: None)
    # What was made in vain is a stray.
    assert {problem.code for problem in report.findings.problems} <= {"object_unreferenced"}
    bucket_id = report.bucket_id
    folder.mkdir()
    database = await DigestDatabase.open(folder / "reference.sqlite")
    reference = Reference(
        database, folder, retrying, clock, findings, lambda *_: None, mode="A", bucket_id=bucket_id
    )
    await reference.follow(await list_bucket(retrying, findings))
    await database.close()
    theirs = await asyncio.to_thread(state_digest, folder / "reference.sqlite")
    assert ours == theirs
    await place.start(tidy_after="0ms")


async def history(place: Place, seed: int, folder: Path) -> None:
    chance = random.Random(seed)
    model = Model(place, chance)
    await model.create()
    for n in range(60):
        steps = [model.produce] * 6 + [model.fork] * 4 + [model.trim, model.delete] * 2
        steps += [model.merge] * 4 + [model.merge_late] * 3 + [model.compact, model.restart]
        step = model.create if not model.living else chance.choice(steps)
        await step()
        if n % 6 == 5 or step == model.restart:
            await model.check()
    await bucket_tells(place, folder)
    await model.check()
    for name in model.living:
        await place.broker.topics.delete(name)
    await place.compact()
    assert place.broker._catalog.with_rows() == []
    assert not any(found.sections for found in place.broker._catalog.stored.all())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_forks_keep_what_they_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(limits, "ENTRIES_PER_JOB_MIN", 1)
    monkeypatch.setattr(limits, "SMALL_OBJECTS_MAX", 3)
    monkeypatch.setattr(limits, "INDEX_PAGE_ENTRIES", 8)
    place = Place(tmp_path / "data")
    await place.start(tidy_after="0ms")
    try:
        await history(place, seed, tmp_path / "again")
    finally:
        await place.appliance.close()
