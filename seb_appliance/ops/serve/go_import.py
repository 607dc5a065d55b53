"""`seb import`: topics of a Go broker become topics of an appliance, with the same offsets.

It becomes the writer of the bucket, as a start does, so no appliance may run during the import.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.topics.names import Patterns
from seb_appliance.broker.upkeep.tidying import Tidying
from seb_appliance.clock import Clock, SystemClock
from seb_appliance.errors import (
    ConfigurationError,
    FencedError,
    ImportRefusedError,
    ObjectMissingError,
    OverloadedError,
    StoreError,
    StoreUnusableError,
)
from seb_appliance.failpoints import Failpoints
from seb_appliance.formats.batch_v1 import BatchV1
from seb_appliance.formats.operations import StoredObject, StoredSection
from seb_appliance.ops.host.data_directory import own_data_directory
from seb_appliance.ops.host.stores import make_store
from seb_appliance.ops.serve.assembly import Appliance
from seb_appliance.protocols.go.files import (
    Naming,
    ObjectMaker,
    OldBucket,
    OldFile,
    OldLog,
    OldTopics,
    look,
)
from seb_appliance.settings import Settings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import START_PATIENCE_S, RetryingStore, given_up
from seb_appliance.storage.objects.checked_objects import CheckedObjects
from seb_appliance.storage.stores.object_store import ObjectStore
from seb_appliance.storage.stores.store_clock import StoreClock

_FILES_PER_ENTRY: Final = 1_000
_BEHIND_S: Final = 0.1


class InPlace:
    """Each file becomes a section where it is."""

    def __init__(self, appliance: Appliance) -> None:
        self._tidying = appliance.broker.tidying
        self._topic_id = 0
        self._created_us = 0
        self._objects: list[StoredObject] = []

    def begin_topic(self, topic_id: int) -> None:
        """The next files are of this topic."""
        self._topic_id, self._created_us = topic_id, 0

    def take(self, one: OldFile, _found: BatchV1) -> None:
        """The topic's next file. In any thread, one at a time."""
        self._created_us = max(self._created_us, one.created_us)
        section = StoredSection(
            self._topic_id,
            one.base_offset,
            one.end_offset - 1,
            one.count,
            0,
            one.length,
            one.crc,
            self._created_us,
            one.created_us,
        )
        self._objects.append(StoredObject(one.key, one.length, (section,)))

    async def adopt_if_many(self) -> None:
        await self.adopt(_FILES_PER_ENTRY)

    async def adopt(self, least: int = 1) -> None:
        """Adopt the collected files while there are at least this many."""
        while len(self._objects) >= least:
            await _adopt(self._tidying, self._objects[:_FILES_PER_ENTRY])
            del self._objects[:_FILES_PER_ENTRY]


class Copied:
    """The records of the files are stored in new objects of the appliance."""

    def __init__(self, appliance: Appliance) -> None:
        journal, settings = appliance.journal, appliance.settings
        self._tidying = appliance.broker.tidying
        store = appliance.store.used_for("tidier")
        self._store = CheckedObjects(_retrying(store, SystemClock()))
        naming = Naming(journal.bucket_id, journal.epoch, os.urandom)
        self._maker = ObjectMaker(
            naming,
            object_bytes=settings.segment_bytes,
            compress=settings.compression == "zstd",
        )
        self.begin_topic = self._maker.begin_topic
        self.take = self._maker.take

    async def adopt_if_many(self) -> None:
        if self._maker.is_full:
            await self.adopt()

    async def adopt(self) -> None:
        stored = await self._maker.store(self._store)
        if stored is not None:
            await _adopt(self._tidying, [stored])


async def _adopt(tidying: Tidying, objects: Sequence[StoredObject]) -> None:
    """Adopt objects; wait while SQLite, which has more work for an object, is behind."""
    while True:
        try:
            await tidying.adopt(objects)
        except OverloadedError:
            await asyncio.sleep(_BEHIND_S)
        else:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """`source`: the settings of the old bucket. `copy`: store the records again, even within one
    bucket. `dry_run`: only read and check. `topics`: patterns. `quiet_ms`: the old bucket must not
    have been written to for this time."""

    source: Settings
    copy: bool = False
    dry_run: bool = False
    topics: tuple[str, ...] = ("**",)
    quiet_ms: int = limits.IMPORT_QUIET_MS
    times_may_go_back: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """`files` and `records` of `topics` that were imported now (of a dry run: checked); `found`:
    files that had been imported before. `goes_on`: topics of a dry run whose first files are gone,
    as those are that were imported in place and merged."""

    topics: int
    files: int
    records: int
    size_bytes: int
    found: int
    in_place: bool
    seconds: float
    goes_on: int = 0


async def import_old_log(
    settings: Settings, options: ImportOptions, progress: Progress
) -> Imported:
    """Import the old bucket into that of `settings`, or continue an interrupted import.

    Raises ImportRefusedError: the topics imported until then stay, and the same command continues
    after them. Also raises ConfigurationError, StoreUnusableError, and the errors of a start.
    """
    in_place = not options.copy and is_same_bucket(settings, options.source)
    if not (in_place or options.copy or options.dry_run):
        raise ConfigurationError(
            f"{options.source.bucket} is not this appliance's bucket ({settings.bucket}): its "
            "files cannot stay where they are. --copy stores their records in this one."
        )
    kinds = (options.source.address.kind, "" if options.dry_run else settings.address.kind)
    if "memory" in kinds:
        raise ConfigurationError(
            "a memory: bucket is lost when this command ends; name buckets or directories"
        )
    clock = SystemClock()
    began_s = clock.monotonic_s()
    source = make_store(options.source, must_exist=True)
    try:
        store = _retrying(source, clock)
        wanted = Patterns(options.topics).cover
        progress(0, 0, "listing the old bucket")
        old = await look(store, wanted)
        now_us = StoreClock(clock, source).wall_us()
        _require_quiet(old, now_us, options.quiet_ms)
        log = OldLog(store, now_us, times_may_go_back=options.times_may_go_back)
        work = _Work(old, log, progress)
        if options.dry_run:
            await work.check(is_begun=in_place and await _is_used(store))
        else:
            async with _writing(settings, progress) as appliance:
                await work.run(appliance, in_place=in_place)
        _require_unchanged(old, await look(store, wanted))
    except StoreError as error:
        raise given_up(error) from error
    finally:
        await source.close()
    seconds = clock.monotonic_s() - began_s
    counts = work.files, work.records, work.size_bytes, work.found
    return Imported(len(old.topics), *counts, in_place, seconds, work.goes_on)


async def _is_used(store: RetryingStore) -> bool:
    """Whether an appliance has used this bucket."""
    try:
        await store.head(layout.BUCKET)
    except ObjectMissingError:
        return False
    return True


def is_same_bucket(settings: Settings, source: Settings) -> bool:
    """Whether both name one bucket and prefix, or one directory."""
    ours, theirs = settings.address, source.address
    if ours.kind != theirs.kind or ours.kind == "memory":
        return False
    if ours.kind == "file":
        return ours.path.resolve() == theirs.path.resolve()
    return (ours.name, ours.prefix, settings.s3_endpoint) == (
        theirs.name,
        theirs.prefix,
        source.s3_endpoint,
    )


def _require_quiet(old: OldBucket, now_us: int, quiet_ms: int) -> None:
    if not old.topics:
        raise ImportRefusedError("There are no files of a Go broker. Check --from.")
    age_ms = (now_us - old.newest_us) // 1000
    if age_ms < quiet_ms:
        raise ImportRefusedError(
            f"{old.newest_key} was written {max(0, age_ms) / 1000:.0f} s ago: is the Go broker "
            f"still running? Stop it, and wait {quiet_ms / 1000:.0f} s."
        )


def _require_unchanged(old: OldBucket, now: OldBucket) -> None:
    if now != old:
        raise ImportRefusedError(
            f"The old bucket was written to during the import ({now.newest_key}): the Go broker is "
            "still running. All earlier files are imported. Stop the Go broker, and run the same "
            "command again before you start the appliance: it continues from there."
        )


@contextlib.asynccontextmanager
async def _writing(settings: Settings, progress: Progress) -> AsyncIterator[Appliance]:
    """The appliance of this bucket, without HTTP and without a tidier. At the end of the block all
    records are stored, and in a snapshot. Raises StartError."""
    failpoints = Failpoints(settings.fail)
    # It fences nobody: a new data directory is rather a wrong --data than a new machine.
    quiet = replace(settings, tidier=False, follow=False, linger_ms=0, take_over_when_new=False)
    with own_data_directory(settings.data):
        store = make_store(quiet, failpoints)
        try:
            appliance = await Appliance.open(quiet, store, failpoints, progress)
        except BaseException:
            await store.close()
            raise
        try:
            await appliance.start()
            yield appliance
            if not await appliance.drain():
                raise StoreUnusableError("the bucket did not answer within the grace time")
        except FencedError as error:
            raise StoreUnusableError(error.detail) from error
        finally:
            await appliance.close()


class _Work:
    """Counts what it has done."""

    def __init__(self, old: OldBucket, log: OldLog, progress: Progress) -> None:
        self.files = self.records = self.size_bytes = self.found = self.goes_on = 0
        self._old = old
        self._log = log
        self._progress = progress

    async def check(self, *, is_begun: bool) -> None:
        """Read every file. `is_begun`: files may have been imported in place, and then merged and
        removed; the import itself sees whether it goes on there. Raises ImportRefusedError."""
        for topic in self._old.topics:
            start = topic.bases[0] if is_begun else 0
            self.goes_on += start > 0
            found = self._log.files(topic, _leave, end_offset=start)
            async with contextlib.aclosing(found) as parts:
                async for files in parts:
                    self._count(topic.name, files, "checking")

    async def run(self, appliance: Appliance, *, in_place: bool) -> None:
        """Import what was not imported before. Raises ImportRefusedError."""
        topics = OldTopics(appliance.broker, self._log)
        ids = await topics.make(self._old.topics)
        objects = InPlace(appliance) if in_place else Copied(appliance)
        for topic in sorted(self._old.topics, key=lambda topic: ids[topic.name]):
            begin, end = await topics.imported(topic, in_place=in_place)
            self.found += begin
            if begin == len(topic.bases):
                continue
            objects.begin_topic(ids[topic.name])
            found = self._log.files(topic, objects.take, begin, end)
            async with contextlib.aclosing(found) as parts:
                async for files in parts:
                    await objects.adopt_if_many()
                    self._count(topic.name, files, "importing")
        await objects.adopt()

    def _count(self, name: str, files: list[OldFile], what: str) -> None:
        self.files += len(files)
        self.records += sum(one.count for one in files)
        self.size_bytes += sum(one.length for one in files)
        self._progress(self.files + self.found, self._old.files, f"{what} {name}")


def _leave(_one: OldFile, _found: BatchV1) -> None:
    """For files that are only checked."""


def _retrying(store: ObjectStore, clock: Clock) -> RetryingStore:
    return RetryingStore(store, clock, random.random, give_up_after_s=START_PATIENCE_S)
