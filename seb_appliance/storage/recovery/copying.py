"""Copying a bucket, as of one entry, to another bucket.

Each object is checked before it is written. A marker that a start refuses comes first and
`bucket.json` last, so that half a copy is never started. Running the same copy again continues it,
or brings a finished one up to date.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.broker.lake.names import earlier_metadata
from seb_appliance.broker.lake.table import LakeTable
from seb_appliance.broker.ports import LoadedState
from seb_appliance.errors import (
    BadBatchError,
    ConfigurationError,
    CorruptObjectError,
    ObjectExistsError,
    ObjectMissingError,
    StoreUnusableError,
)
from seb_appliance.formats import batch_v1, entry, segment
from seb_appliance.storage import layout
from seb_appliance.storage.journal.bases import decode_base
from seb_appliance.storage.journal.bucket_info import (
    BucketInfo,
    CopyMarker,
    encode_bucket_info,
    read_copy_marker,
    refuse_foreign_data,
)
from seb_appliance.storage.journal.replay import Progress
from seb_appliance.storage.journal.retry import RetryingStore, together
from seb_appliance.storage.recovery.rebuilding import Rebuilt
from seb_appliance.storage.stores.object_store import ObjectInfo, list_all

AT_ONCE: Final = 4  # objects in memory; each may be as large as a segment
READS_OF_A_BAD_OBJECT: Final = 3  # a bit may have been flipped in transit


@dataclass(frozen=True, slots=True)
class Needed:
    """`objects`: everything to copy except `bucket.json`, in that order; they include entries up to
    `may_be_gone_seq` while the bucket has them. `table_files_gone`: of lake tables, which are
    copied without them."""

    objects: tuple[ObjectInfo, ...]
    may_be_gone_seq: int
    table_files_gone: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(info.size for info in self.objects)


async def needed_objects(rebuilt: Rebuilt, state: LoadedState) -> Needed:
    """The objects that `state`, which was `rebuilt`, needs; others that somebody put beside them
    are left out.

    Raises StoreUnusableError for an object that is missing or has another size.
    """
    rows, tidied_seq = state.objects, state.tidied_seq
    listed = await list_all(rebuilt.view, layout.JOURNAL)
    entries = [info for info in listed if layout.is_ours(info.key)]
    places = (layout.parse_entry(info.key) for info in entries)
    seqs = {place[1] for place in places if place is not None}
    for seq in range(tidied_seq + 1, rebuilt.position.seq + 1):
        if seq not in seqs:
            raise _missing(f"entry {seq}", rebuilt.position.seq)
    adopted = {place[0] for row in rows if (place := layout.parse_go_batch(row.key))}
    outside = {
        info.key: info
        for folder in (layout.SEGMENTS, layout.PACKED, *(f"{name}/" for name in sorted(adopted)))
        for info in await list_all(rebuilt.view, folder)
    }
    for row in rows:
        found = outside.get(row.key)
        if found is None or found.size != row.length:
            raise _missing(row.key, rebuilt.position.seq)
    found_objects = [*entries, *(outside[row.key] for row in rows)]
    for folder in (layout.SNAPSHOTS, layout.CLAIMS, layout.BASES):
        listed = await list_all(rebuilt.view, folder)
        found_objects += [info for info in listed if layout.is_ours(info.key)]
    of_tables, gone = await _of_tables(rebuilt.view, state.lake_tables)
    found_objects += of_tables
    return Needed(tuple(found_objects), min(tidied_seq, rebuilt.floor), gone)


async def _of_tables(
    view: RetryingStore, tables: Sequence[LakeTable]
) -> tuple[list[ObjectInfo], int]:
    """The data files of tables, which may have rows that the log has no more, and the metadata that
    earlier commits printed; the start prints that of the last one. And how many files are gone."""
    found: list[ObjectInfo] = []
    gone = 0
    for table in tables:
        head = table.head
        location = head.definition.location
        is_place = layout.is_of_table(f"{location}_")  # and nothing that somebody else made up
        listed = await list_all(view, location) if is_place else []
        there = {info.key: info for info in listed if layout.is_of_table(info.key)}
        files = [head.key_of(name) for name in table.files]
        printed = [head.key_of(name) for name, _ in earlier_metadata(head)]
        found += [there[key] for key in (*files, *printed) if key in there]
        gone += sum(key not in there for key in files)
    return found, gone


def _missing(what: str, end_seq: int) -> StoreUnusableError:
    return StoreUnusableError(
        f"{what} is needed for the state as of entry {end_seq}, and is no longer in the bucket. "
        "If it was merged and removed since then, restore a later entry; otherwise it is lost."
    )


def another_history(target: RetryingStore) -> ConfigurationError:
    """The refusal of a copy into `target`, which holds entries that its source does not have."""
    return ConfigurationError(
        f"{target.description} is a copy of this bucket, but an appliance was started on it, or on "
        "this bucket after it was set back, and its history is another one now. Choose an empty "
        "bucket, or another prefix."
    )


@dataclass(frozen=True, slots=True)
class Copied:
    """Objects and bytes that were copied now; `found`: objects that already existed."""

    objects: int
    size_bytes: int
    found: int


class BucketCopy:
    """Copies `needed`, the objects of the state `rebuilt`, into the bucket `target`."""

    def __init__(
        self,
        rebuilt: Rebuilt,
        needed: Needed,
        target: RetryingStore,
        progress: Progress,
        *,
        earlier_seq: int | None = None,
    ) -> None:
        """`earlier_seq`: the last entry of an earlier copy of the same log in the target, which is
        brought up to date; None: there is none."""
        self._rebuilt = rebuilt
        self._earlier_seq = earlier_seq
        self._source = rebuilt.view
        self._needed = needed
        self._target = target
        self._progress = progress
        self._copied = self._bytes = 0
        self._mark: CopyMarker | None = None

    async def run(self) -> Copied:
        """Copy everything except `bucket.json`, which `finish` stores after the copy was checked.

        Raises ConfigurationError if the target holds something else, also if an appliance begins
        there meanwhile; StoreUnusableError if an object that is needed is gone, CorruptObjectError.
        """
        plan = self._needed.objects
        await self._begin()
        there = {
            info.key: info.size
            for folder in (layout.OURS, layout.TABLES)
            for info in await list_all(self._target, folder)
        }
        await self._refuse_later_entries(there)
        missing = [info for info in plan if there.get(info.key) != info.size]
        # The first entry alone, first: from then on no start takes this bucket for an empty one.
        # Bases, which complete it in mode B, at the end.
        first, bases = missing[:1], [i for i in missing[1:] if i.key.startswith(layout.BASES)]
        rest = [info for info in missing[1:] if not info.key.startswith(layout.BASES)]
        large = [info for info in rest if info.size > limits.ENTRY_BYTES_MAX]  # of tables
        others = [info for info in rest if info.size <= limits.ENTRY_BYTES_MAX]
        for part, at_once in ((first, 1), (others, AT_ONCE), (large, 1), (bases, AT_ONCE)):
            await self._refuse_other_claims()
            await together((self._copy(info, len(missing)) for info in part), at_once)
        return Copied(self._copied, self._bytes, len(plan) - len(missing))

    async def _refuse_later_entries(self, there: Iterable[str]) -> None:
        if self._earlier_seq is not None:
            places = filter(None, map(layout.parse_entry, there))
            if max((seq for _, seq in places), default=0) > self._earlier_seq:
                await self._leave()
                raise another_history(self._target)

    async def _refuse_other_claims(self) -> None:
        """Mode B: an appliance that was started on the target has a claim of its own there."""
        ours = {info.key for info in self._needed.objects}
        for info in await list_all(self._target, layout.CLAIMS):
            if layout.is_ours(info.key) and info.key not in ours:
                await self._leave()
                raise another_history(self._target)

    async def _leave(self) -> None:
        """An appliance that was started on an earlier copy meanwhile can be started again, unless
        more than it has was copied already."""
        if self._earlier_seq is not None and not self._copied:
            await self.finish()

    async def finish(self) -> None:
        """Make the copy an appliance. Raises ConfigurationError if a later copy into the target has
        begun meanwhile: it is not complete yet, and only its mark says so."""
        journal = self._rebuilt.journal
        info = BucketInfo(bucket_id=journal.bucket_id.hex(), mode=journal.mode)
        await self._refuse_other_mark()
        await self._target.put(layout.BUCKET, encode_bucket_info(info))
        await self._refuse_other_mark()
        await self._target.delete(layout.COPY)

    async def _refuse_other_mark(self) -> None:
        found = await read_copy_marker(self._target)
        if found not in (self._mark, None):  # None: the same copy, made twice at once, is complete
            raise ConfigurationError(
                f"{self._target.description}: another copy into it has begun meanwhile. If that "
                "one does not run any more, run the same command again."
            )

    async def _begin(self) -> None:
        """Refuse a target that holds other data, and mark it as ours."""
        there = [info.key for info in await list_all(self._target, layout.OURS)]
        where = self._target.description
        begun = await read_copy_marker(self._target)
        if layout.BUCKET in there and begun is None and self._earlier_seq is None:
            raise ConfigurationError(
                f"{where} already holds an appliance. Choose an empty bucket, or another prefix."
            )
        bucket_id = self._rebuilt.journal.bucket_id.hex()
        until_seq, complete_seq = self._rebuilt.position.seq, self._earlier_seq or 0
        if begun is not None:
            if begun.bucket_id != bucket_id or begun.until_seq > until_seq:
                raise ConfigurationError(
                    f"{where} holds an unfinished copy of bucket {begun.bucket_id} up to entry "
                    f"{begun.until_seq}. Continue that copy, or remove its objects."
                )
            complete_seq = max(complete_seq, begun.complete_seq)
            self._earlier_seq = None  # what is there since then is of that copy, which goes on here
        elif self._earlier_seq is None:
            if any(not key.startswith(layout.PROBE) for key in there):
                raise ConfigurationError(
                    f"{where} is not empty ({there[0]}). Choose an empty bucket, or another prefix."
                )
            await refuse_foreign_data(self._target)
        mark = CopyMarker(bucket_id=bucket_id, until_seq=until_seq, complete_seq=complete_seq)
        await self._target.put(layout.COPY, msgspec.json.encode(mark))
        self._mark = mark
        if layout.BUCKET in there:  # no start takes it for an appliance before `finish`
            await self._target.delete(layout.BUCKET)

    async def _copy(self, info: ObjectInfo, of: int) -> None:
        try:
            body = await self._checked(info.key)
        except ObjectMissingError as error:
            # A running source removes entries below the floor, and snapshots. Whether enough are
            # left, the check of the finished copy shows.
            place = layout.parse_entry(info.key)
            if (place is not None and place[1] <= self._needed.may_be_gone_seq) or (
                place is None and info.key.startswith((layout.SNAPSHOTS, layout.CLAIMS))
            ):
                return
            raise StoreUnusableError(
                f"{info.key} was removed while it was being copied. Run the same command again "
                "to continue."
            ) from error
        await self._put(info.key, body)
        self._copied += 1
        self._bytes += len(body)
        self._progress(self._copied, of, f"copying {self._bytes >> 20:,} MiB")

    async def _put(self, key: str, body: bytes) -> None:
        """Entries of mode A only where none is: a start may be quicker, and acknowledges then."""
        if not key.startswith(layout.JOURNAL) or self._rebuilt.journal.mode == "B":
            await self._target.put(key, body)
            return
        try:
            await self._target.create(key, body)
        except ObjectExistsError as error:
            if await self._target.get(key) != body:
                await self._leave()
                raise another_history(self._target) from error

    async def _checked(self, key: str) -> bytes:
        fault = ""
        for _ in range(READS_OF_A_BAD_OBJECT):
            body = await self._source.get(key)
            if not (fault := fault_of(key, body)):
                return body
        raise CorruptObjectError(f"{key} is damaged: {fault}. It was not copied.")


def fault_of(key: str, body: bytes) -> str:
    """Why these are not the bytes of the object `key`, as far as its checksums tell; "" if they
    are. A claim has no content, and lake tables have no checksums of their files."""
    try:
        if key.startswith(layout.JOURNAL):
            found = entry.decode(body)
            for part in found.contents.sections:
                data = entry.section_bytes(found.header, body, part.start, part.length)
                if crc32c(data) != part.crc:
                    return f"the CRC of topic {part.topic_id}'s section does not agree"
        elif key.startswith((layout.SEGMENTS, layout.PACKED)):
            for stored in segment.decode(body).sections:
                if crc32c(memoryview(body)[stored.at : stored.at + stored.length]) != stored.crc:
                    return f"the CRC of topic {stored.topic_id}'s section does not agree"
        elif key.startswith(layout.SNAPSHOTS):
            name = layout.parse_snapshot(key)
            if name is None or hashlib.sha256(body).hexdigest()[:16] != name.digest:
                return "its SHA-256 is not the one in its name"
        elif key.startswith(layout.BASES):
            claim = layout.parse_claim(key)
            if claim is None:
                return "it is not a base of ours"
            decode_base(body, claim)
        elif layout.parse_go_batch(key) is not None:
            batch_v1.decode(body)
    except BadBatchError as error:
        return error.detail
    except (msgspec.DecodeError, ValueError) as error:
        return str(error)
    return ""
