"""The Go broker's files: listed by topic, read, compared with our topics, and made into objects."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import add
from typing import Final, TypeAlias

from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import BadBatchError, BadNameError, ImportRefusedError, ObjectMissingError
from seb_appliance.formats import batch, batch_v1, segment
from seb_appliance.formats.batch_v1 import BatchV1
from seb_appliance.formats.columns import BinaryColumn, Columns
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.operations import StoredObject
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.storage import layout
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.objects.checked_objects import CheckedObjects
from seb_appliance.storage.objects.merging import ObjectDraft, Piece
from seb_appliance.storage.stores.object_store import ObjectInfo

_OFFSETS: Final = ".offsets"  # the Go broker's cache of its own listing


@dataclass(slots=True)
class OldTopic:
    """`bases`: the first offset of each file, ascending; `sizes`: its bytes as they are stored."""

    name: str
    bases: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def key(self, i: int) -> str:
        return layout.go_batch_key(self.name, self.bases[i])


@dataclass(slots=True)
class OldBucket:
    """`newest_us`: when the newest file was stored, by the store's clock (0 where that does not
    tell), and `newest_key` its key."""

    topics: list[OldTopic] = field(default_factory=list)
    newest_us: int = 0
    newest_key: str = ""

    @property
    def files(self) -> int:
        return sum(len(topic.bases) for topic in self.topics)

    @property
    def size_bytes(self) -> int:
        return sum(sum(topic.sizes) for topic in self.topics)


async def look(store: RetryingStore, is_wanted: Callable[[str], bool]) -> OldBucket:
    """LIST everything once, our own folder aside; lake tables, which lie beside it, are passed
    over. `is_wanted`: which topics to look at. Raises ImportRefusedError for a key that no Go
    broker makes, for a topic that cannot be ours, and for more than an import takes."""
    found, after, listed = OldBucket(), "", 0
    while page := await store.list_after("", after):
        listed += len(page)
        if listed > limits.IMPORT_LISTED_MAX or len(found.topics) > limits.TOPICS_MAX:
            raise ImportRefusedError(
                f"The old bucket lists more than {limits.IMPORT_LISTED_MAX:,} objects, or more "
                f"than {limits.TOPICS_MAX:,} topics are wanted: an import takes no more."
            )
        for info in page:
            is_ours = info.key.startswith(layout.OURS) or layout.is_of_table(info.key)
            if not is_ours and not info.key.endswith(_OFFSETS):
                _take(found, info, is_wanted)
        after = page[-1].key
        if after.startswith(layout.OURS):
            after = layout.OURS[:-1] + "0"  # the byte after "/": behind all of that folder
    return found


def _take(found: OldBucket, info: ObjectInfo, is_wanted: Callable[[str], bool]) -> None:
    folder, _, name = info.key.rpartition("/")
    if not folder or not name.endswith(".record_batch"):
        raise ImportRefusedError(
            f"{info.key} is not a file of a Go broker. Move other files away, or add the prefix "
            "of the broker's topics to --from."
        )
    if not is_wanted(folder):
        return
    try:
        check_topic_name(folder)
    except BadNameError as error:
        raise ImportRefusedError(
            f"The topic of {info.key} cannot have its name here. {error.detail} Leave it out: "
            "--topic says which topics are wanted."
        ) from error
    place = layout.parse_go_batch(info.key)
    if place is None:
        raise ImportRefusedError(f"{info.key}: the file name must be an offset of 12 digits.")
    if not found.topics or found.topics[-1].name != folder:
        found.topics.append(OldTopic(folder))
    found.topics[-1].bases.append(place[1])
    found.topics[-1].sizes.append(info.size)
    if (info.modified_us or 0) >= found.newest_us:
        found.newest_us, found.newest_key = info.modified_us or 0, info.key


READS_AT_ONCE: Final = 16
FILES_AT_ONCE: Final = 256  # in memory, unless they are large
BYTES_AT_ONCE: Final = 4 * limits.MIB  # of files in memory, as they are stored; or one larger one
READS_OF_A_BAD_FILE: Final = 3  # a bit may have been flipped on the way


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that was read and is sound. `crc`: CRC-32C of its `length` stored bytes."""

    key: str
    base_offset: int
    count: int
    created_us: int
    length: int
    crc: int

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


Take: TypeAlias = Callable[[OldFile, BatchV1], None]
"""What is done with each file and its records, in a thread, one after the other."""


class OldLog:
    """`times_may_go_back`: the clock of the old machine was set back once; else a file that is
    older than the one before it is refused, for they may have been mixed up."""

    def __init__(self, store: RetryingStore, now_us: int, *, times_may_go_back: bool) -> None:
        self._store = store
        self._latest_us = now_us + limits.TIMESTAMP_AHEAD_US_MAX
        self._times_may_go_back = times_may_go_back

    async def file(self, topic: OldTopic, i: int) -> tuple[OldFile, BatchV1]:
        """File `i` of a topic, by itself. Raises ImportRefusedError."""
        held: list[tuple[OldFile, BatchV1]] = []
        bodies = await self._fetch(topic, i, i + 1)
        await self._take(topic, i, bodies, None, lambda one, found: held.append((one, found)))
        return held[0]

    async def files(
        self, topic: OldTopic, take: Take, begin: int = 0, end_offset: int = 0
    ) -> AsyncGenerator[list[OldFile], None]:
        """From file `begin` on, some at a time, in order. `take` is given each of them.
        `end_offset`: of what is imported already, where file `begin` belongs. Raises
        ImportRefusedError for one that is damaged, missing, or does not follow the one before."""
        before = (await self.file(topic, begin - 1))[0] if begin else _BEFORE_ALL
        before = replace(before, count=end_offset - before.base_offset)
        coming: asyncio.Task[list[bytes]] | None = None
        first = begin
        try:
            for place in (*_ranges(topic, begin), None):
                arrived, coming = coming, None
                if place is not None:  # these are fetched while those before are worked on
                    coming = asyncio.create_task(self._fetch(topic, *place))
                if arrived is not None:
                    found = await self._take(topic, first, await arrived, before, take)
                    yield found
                    before = found[-1]
                    first += len(found)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _fetch(self, topic: OldTopic, begin: int, end: int) -> list[bytes]:
        return await together((self._get(topic.key(i)) for i in range(begin, end)), READS_AT_ONCE)

    async def _get(self, key: str) -> bytes:
        try:
            return await self._store.get(key)
        except ObjectMissingError as error:
            raise ImportRefusedError(f"{key} went away while it was read.") from error

    async def _take(
        self, topic: OldTopic, first: int, bodies: list[bytes], before: OldFile | None, take: Take
    ) -> list[OldFile]:
        """The files from `first` on. `before`: the one that they follow; None: whichever."""
        files: list[OldFile] = []
        reads = 1
        while fault := await asyncio.to_thread(
            self._take_sound, topic, first, bodies, before, take, files
        ):
            at = len(files)
            key = topic.key(first + at)
            if reads == READS_OF_A_BAD_FILE:
                raise ImportRefusedError(f"{key} is damaged: {fault}.")
            reads += 1
            bodies[at] = await self._get(key)
        return files

    def _take_sound(
        self,
        topic: OldTopic,
        first: int,
        bodies: list[bytes],
        before: OldFile | None,
        take: Take,
        files: list[OldFile],
    ) -> str:
        """Add to `files` those of `bodies` that are not among them yet, up to one that is not
        sound: why that is, or ""."""
        for i in range(len(files), len(bodies)):
            key, body = topic.key(first + i), bodies[i]
            if len(body) != topic.sizes[first + i]:
                raise ImportRefusedError(
                    f"{key} has {len(body):,} bytes now, and had {topic.sizes[first + i]:,} when "
                    "the bucket was listed: is the Go broker still running?"
                )
            try:
                found = batch_v1.decode(body)
                batch_v1.check_records(found)
            except BadBatchError as error:
                return error.detail
            base_offset, count = topic.bases[first + i], len(found.values)
            one = OldFile(key, base_offset, count, found.created_us, len(body), crc32c(body))
            self._check(one, files[-1] if files else before)
            take(one, found)
            files.append(one)
        return ""

    def _check(self, one: OldFile, before: OldFile | None) -> None:
        """Raises ImportRefusedError unless `one` can follow `before`."""
        if one.created_us > self._latest_us:
            raise ImportRefusedError(
                f"{one.key} has a creation time of more than a day in the future."
            )
        if one.end_offset > limits.OFFSET_MAX:
            raise ImportRefusedError(f"{one.key} has offsets beyond 2^53 - 1.")
        if before is None:
            return
        if one.base_offset > before.end_offset:
            raise ImportRefusedError(
                f"There is a gap before {one.key}: the records from offset {before.end_offset} "
                f"up to {one.base_offset} are missing. Restore the files that hold them."
            )
        if one.base_offset < before.end_offset:
            raise ImportRefusedError(
                f"{before.key} has records up to offset {before.end_offset}, and {one.key} has "
                f"them from {one.base_offset} on: these files do not belong together."
            )
        back_us = before.created_us - one.created_us
        if back_us > limits.CLOCK_JUMP_US_MAX and not self._times_may_go_back:
            raise ImportRefusedError(
                f"{one.key} was written {back_us // 1_000_000:,} s before {before.key}: were files "
                "mixed up? If the old machine's clock was set back, say --times-may-go-back."
            )


_BEFORE_ALL: Final = OldFile("", 0, 0, 0, 0, 0)


def _ranges(topic: OldTopic, begin: int) -> Iterator[tuple[int, int]]:
    """Files from `begin` on, cut so that each part can be in memory."""
    size_bytes = 0
    for i in range(begin, len(topic.sizes)):
        size_bytes += topic.sizes[i]
        if i > begin and (i - begin == FILES_AT_ONCE or size_bytes > BYTES_AT_ONCE):
            yield begin, i
            begin, size_bytes = i, topic.sizes[i]
    if begin < len(topic.sizes):
        yield begin, len(topic.sizes)


_TOPICS_AT_ONCE: Final = 500  # are made in one window, or a few


class OldTopics:
    def __init__(self, broker: Broker, log: OldLog) -> None:
        self._broker = broker
        self._log = log

    async def make(self, topics: Sequence[OldTopic]) -> dict[str, int]:
        """Their ids, by name. Those that are missing are made, with the appliance's defaults."""
        known = {view.name: view.topic_id for view in self._broker.topics.all()}
        missing = sorted(topic.name for topic in topics if topic.name not in known)
        for begin in range(0, len(missing), _TOPICS_AT_ONCE):
            names = missing[begin : begin + _TOPICS_AT_ONCE]
            made = await asyncio.gather(
                *(self._broker.topics.create(name, TopicSettings()) for name in names)
            )
            known.update((view.name, view.topic_id) for view, _ in made)
        return known

    async def imported(self, topic: OldTopic, *, in_place: bool) -> tuple[int, int]:
        """How many of its files are in the topic already, and the topic's end. Raises
        ImportRefusedError if it holds anything else where these files belong.

        Files that were imported in place are the appliance's, and may have been merged and removed
        since: if the next one begins where the topic ends, they need not be there."""
        view = self._broker.topics.get(topic.name)
        end = view.log_end_offset
        if end == 0:
            return 0, 0
        begin = bisect_left(topic.bases, end)
        goes_on = in_place and begin < len(topic.bases) and topic.bases[begin] == end
        if begin == 0:
            if goes_on:
                return 0, end
            raise _others(topic.name, 0, topic.key(0))
        one, found = await self._log.file(topic, begin - 1)
        is_all = begin == len(topic.bases) and end >= one.end_offset
        if not (is_all or goes_on or end == one.end_offset):
            raise _others(topic.name, end, one.key)
        if view.log_start_offset > one.base_offset:  # trimmed: there is nothing to compare
            if is_all or goes_on:
                return begin, end
            raise _others(topic.name, view.log_start_offset, one.key)
        if not await self._holds(topic.name, one, found):
            raise _others(topic.name, one.base_offset, one.key)
        return begin, end

    async def _holds(self, name: str, one: OldFile, found: BatchV1) -> bool:
        """Whether these very records, with the file's time, are in the topic at its offsets."""
        offset = one.base_offset
        while offset < one.end_offset:
            request = ReadRequest(
                From(offset=offset),
                From(offset=one.end_offset),
                limits.FETCH_RECORDS_MAX,
                limits.FETCH_BYTES_MAX,
            )
            result = await self._broker.read(name, request)
            for piece in result.slices:
                columns = piece.batch.columns
                values = columns.values.slice(piece.begin, piece.end)
                begin, end = offset - one.base_offset, offset - one.base_offset + len(values)
                times_us = array("q", columns.timestamps_us[piece.begin : piece.end])
                if (
                    piece.batch.offsets()[piece.begin] != offset
                    or values != found.values.slice(begin, end)
                    or times_us != array("q", [one.created_us]) * len(values)
                ):
                    return False
                offset += len(values)
            if result.next_offset != offset:
                return False
        return True


def _others(name: str, offset: int, key: str) -> ImportRefusedError:
    return ImportRefusedError(
        f"Topic {name!r} has records of its own at offset {offset}, where {key} belongs. Delete "
        "the topic, or leave it out: --topic says which are wanted."
    )


_MERGED_BYTES: Final = 256 * limits.KIB  # of a batch, inflated; as the tidier makes them
_RECORDS_MAX: Final = 65_536
OBJECT_BYTES_MAX: Final = 8 * limits.MIB  # three times this is in memory while it is stored


@dataclass(frozen=True, slots=True)
class Naming:
    """What the keys of objects are made of, and whose they are."""

    bucket_id: bytes
    epoch: int
    random_bytes: Callable[[int], bytes]


class ObjectMaker:
    """One object after another. `compress`: batches that shrink by it. Call `take` with the files
    of one topic after those of another whose id is smaller."""

    def __init__(self, naming: Naming, *, object_bytes: int, compress: bool) -> None:
        self._naming = naming
        self._object_bytes = min(object_bytes, OBJECT_BYTES_MAX)
        self._compressor = Compressor() if compress else None
        self._draft = ObjectDraft()
        self._topic_id = 0
        self._created_us = 0  # of the topic's newest batch: it never decreases
        self._run: list[tuple[OldFile, BatchV1]] = []
        self._run_bytes = self._run_records = 0

    def begin_topic(self, topic_id: int) -> None:
        """The files that come are of this topic."""
        self._end_batch()
        self._draft.end_section()
        self._topic_id, self._created_us = topic_id, 0

    def take(self, one: OldFile, found: BatchV1) -> None:
        """The topic's next file."""
        size_bytes = len(found.values.data) + 12 * one.count
        too_large = self._run_bytes + size_bytes > _MERGED_BYTES
        if self._run and (too_large or self._run_records + one.count > _RECORDS_MAX):
            self._end_batch()
        self._run.append((one, found))
        self._run_bytes += size_bytes
        self._run_records += one.count

    @property
    def is_full(self) -> bool:
        sections = len(self._draft.sections)
        return (
            self._draft.size_bytes >= self._object_bytes
            or sections >= limits.SEGMENT_SECTIONS_MAX // 2
        )

    async def store(self, objects: CheckedObjects) -> StoredObject | None:
        """What was taken since the last one, stored and read back; None: nothing was. Raises
        CorruptObjectError, StoreError."""
        self._end_batch()
        self._draft.end_section()
        sections = tuple(self._draft.sections)
        if not sections:
            return None
        first, last = sections[0], sections[-1]
        naming = self._naming
        name = naming.random_bytes(8)
        if first.topic_id == last.topic_id:
            place = first.topic_id, first.base_offset, last.last_offset
            key = layout.segment_key(*place, naming.epoch, name)
        else:
            place = segment.MANY_TOPICS, 0, 0
            key = layout.packed_key(0, 0, naming.epoch, name)
        body = self._draft.seal(segment.header(*place), naming.bucket_id)
        self._draft = ObjectDraft()

        def check(stored: bytes) -> None:
            if stored != body:
                raise BadBatchError("the stored object differs from what was written")

        await objects.put(key, body)
        await objects.get(key, check)
        return StoredObject(key, len(body), sections)

    def _end_batch(self) -> None:
        """Make one batch of the run."""
        if not self._run:
            return
        files = [one for one, _ in self._run]
        self._created_us = max(self._created_us, *(one.created_us for one in files))
        data = batch.encode(
            _joined(self._run), base_offset=files[0].base_offset, created_us=self._created_us
        )
        if self._compressor is not None:
            data = self._compressor.pack(data)
        piece = Piece(
            files[0].base_offset,
            files[-1].end_offset - 1,
            self._run_records,
            self._created_us,
            max(one.created_us for one in files),
            data,
        )
        self._draft.add(self._topic_id, [piece])
        self._run, self._run_bytes, self._run_records = [], 0, 0


def _joined(run: list[tuple[OldFile, BatchV1]]) -> Columns:
    """All records, each with its file's time as its timestamp."""
    timestamps_us, starts = array("q"), array("i")
    at = 0
    for one, found in run:
        timestamps_us.extend(array("q", [one.created_us]) * one.count)
        starts.extend(map(add, found.values.starts[:-1], repeat(at)))
        at += len(found.values.data)
    starts.append(at)
    data = b"".join(found.values.data for _, found in run)
    return Columns(timestamps_us, BinaryColumn(starts, data))
