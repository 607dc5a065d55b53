"""The state of one lake table, changed only by applying journal events.

`TableHead` is what is small; the files are beside it. SQLite stores both (state/projection.py), the
broker holds them in memory, and both change them by the functions here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from seb_appliance import limits
from seb_appliance.formats.lake.tables import (
    MANIFEST_FILES_MAX,
    Column,
    ManifestName,
    TableFile,
    TableOp,
)
from seb_appliance.formats.operations import TableCommitted, TableSet

NO_MANIFEST = ManifestName(0, 0)


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The table after commit `number`. Totals count what is in the table then; `next_offset`: the
    table has all records of its topic below it."""

    number: int
    op: TableOp
    timestamp_ms: int
    next_offset: int
    schema: int
    files: int
    records: int
    bad: int
    length: int
    added_files: int
    added_records: int
    added_length: int
    removed_files: int
    removed_records: int
    removed_length: int


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """A list of files in the bucket, as a manifest list names it; `smallest`: the first commit that
    added one of them. A file is listed as added or removed by the commit that wrote the manifest,
    else as existing."""

    name: ManifestName
    length: int
    added_files: int
    added_records: int
    existing_files: int
    existing_records: int
    removed_files: int
    removed_records: int
    smallest: int

    @property
    def living_files(self) -> int:
        return self.added_files + self.existing_files


class LakeFile(msgspec.Struct, array_like=True):
    """A data file of the table, added and removed by these commits (0: not removed), and listed in
    this manifest. A removed file stays until no kept snapshot has it."""

    file: TableFile
    added: int
    manifest: ManifestName
    removed: int = 0


class TableHead(msgspec.Struct):
    """All of a table but its files.

    `number`: of the last commit; each `TableSet` takes one, too. `schemas`: columns by schema
    number. `snapshots`: those that are kept, oldest first. `manifests`: of the newest snapshot.
    `dropped`: manifests that only older kept snapshots have, each with the commit that dropped it.
    `times`: when each of the newest metadata files was made (number, ms), oldest first.
    `delta_from`, `iceberg_from`: the commit that switched the format on, or for Iceberg changed the
    address; 0 while it is off.
    """

    definition: TableSet
    made_ms: int
    number: int = 0
    next_offset: int = 0
    schemas: list[tuple[Column, ...]] = []
    snapshots: list[Snapshot] = []
    manifests: list[Manifest] = []
    dropped: list[tuple[ManifestName, int]] = []
    times: list[tuple[int, int]] = []
    delta_from: int = 0
    iceberg_from: int = 0

    @property
    def table_id(self) -> str:
        return self.definition.table_id

    @property
    def updated_ms(self) -> int:
        return self.times[-1][1] if self.times else self.made_ms

    @property
    def schema(self) -> int:
        """The number of the current schema."""
        return len(self.schemas) - 1

    @property
    def newest(self) -> Snapshot | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def is_unlisted(self) -> bool:
        """Whether no manifest in the bucket names the table's files: Iceberg was switched on later,
        or the bucket has a new address."""
        return (
            "iceberg" in self.definition.formats
            and self.iceberg_from > 1
            and not (self.newest is not None and self.newest.number > self.iceberg_from)
        )

    def copy(self) -> TableHead:
        """As it is now."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(self), type=TableHead)

    @property
    def is_printed_whole(self) -> bool:
        """Whether the last commit is a snapshot (else it changed only what can be set)."""
        return bool(self.snapshots) and self.snapshots[-1].number == self.number

    def key_of(self, name: str) -> str:
        """In the store."""
        return self.definition.location + name


@dataclass(slots=True)
class LakeTable:
    """`files` are in the order of their commits."""

    head: TableHead
    files: dict[str, LakeFile] = field(default_factory=dict)

    @classmethod
    def made(cls, event: TableSet, created_us: int) -> LakeTable:
        table = cls(TableHead(event, made_ms=created_us // 1_000))
        table.set(event, created_us)
        return table

    def copy(self) -> LakeTable:
        """As it is now."""
        files = msgspec.msgpack.encode(self.files)
        return LakeTable(self.head.copy(), msgspec.msgpack.decode(files, type=dict[str, LakeFile]))

    @property
    def stored_bytes(self) -> int:
        return sum(one.file.length for one in self.files.values())

    def living(self) -> Iterator[LakeFile]:
        return (one for one in self.files.values() if not one.removed)

    def listed(self) -> list[LakeFile]:
        """The files in the manifests of the last commit, in their order."""
        number = self.head.number
        return in_order([one for one in self.files.values() if one.manifest.version == number])

    def manifests_after(self, event: TableCommitted) -> list[tuple[ManifestName, list[LakeFile]]]:
        """The manifests that the commit writes, each with its files. Marks removed files."""
        for name in event.removed:
            self.files[name].removed = event.number
        rewritten = set(event.rewritten)
        files = self.files.values()
        listed = [
            *(one for one in files if not one.removed and one.manifest in rewritten),
            *(one for one in files if one.removed == event.number),
            *(LakeFile(file, event.number, NO_MANIFEST) for file in event.added),
        ]
        return manifests_of(event.number, in_order(listed))

    def set(self, event: TableSet, created_us: int) -> None:
        head = self.head
        if event.address != head.definition.address:
            head.iceberg_from = 0  # its manifests name files by their old address
        head.definition = event
        if not head.schemas or head.schemas[-1] != event.columns:
            head.schemas.append(event.columns)
        head.number += 1
        self._note_time(created_us)

    def commit(self, event: TableCommitted, created_us: int) -> list[str]:
        """Apply a commit; names of removed files that no kept snapshot has any more. `files` may
        lack those that the commit does not touch."""
        head, before = self.head, self.head.newest
        assert event.number == head.number + 1, (event.number, head.number)
        head.number = event.number
        self._note_time(created_us)
        groups = self.manifests_after(event)
        removed = [self.files[name] for name in event.removed]
        gone = set(event.rewritten)
        dropped = [m for m in head.manifests if m.name in gone or not m.living_files]
        head.manifests = [m for m in head.manifests if m not in dropped]
        head.dropped += [(m.name, event.number) for m in dropped]
        for (manifest, files), length in zip(groups, event.manifest_bytes, strict=True):
            for one in files:
                one.manifest = manifest
                self.files[one.file.name] = one
            head.manifests.append(manifest_row(manifest, files, length))
        for covered in event.ranges:
            head.next_offset = max(head.next_offset, covered.next)
        head.snapshots = [one for one in head.snapshots if one.number >= event.oldest]
        head.snapshots.append(self._snapshot(event, before, removed))
        oldest = head.snapshots[0].number
        head.dropped = [one for one in head.dropped if one[1] > oldest]
        dead = [name for name, one in self.files.items() if 0 < one.removed <= oldest]
        for name in dead:
            del self.files[name]
        return dead

    def _note_time(self, created_us: int) -> None:
        """A wrong clock must not take a table back in time: readers refuse that."""
        head = self.head
        times = [*head.times, (head.number, max(created_us // 1_000, head.updated_ms + 1))]
        head.times = times[-limits.TABLE_METADATA_LOG :]
        formats = head.definition.formats
        head.delta_from = (head.delta_from or head.number) if "delta" in formats else 0
        head.iceberg_from = (head.iceberg_from or head.number) if "iceberg" in formats else 0

    def _snapshot(
        self, event: TableCommitted, before: Snapshot | None, removed: Sequence[LakeFile]
    ) -> Snapshot:
        head = self.head
        files = before.files if before else 0
        records = before.records if before else 0
        bad = before.bad if before else 0
        length = before.length if before else 0
        return Snapshot(
            event.number,
            event.op,
            head.updated_ms,
            head.next_offset,
            head.schema,
            files + len(event.added) - len(removed),
            records + _sum(event.added, "records") - _sum(removed, "records"),
            bad + _sum(event.added, "bad") - _sum(removed, "bad"),
            length + _sum(event.added, "length") - _sum(removed, "length"),
            len(event.added),
            _sum(event.added, "records"),
            _sum(event.added, "length"),
            len(removed),
            _sum(removed, "records"),
            _sum(removed, "length"),
        )


def in_order(listed: Sequence[LakeFile]) -> list[LakeFile]:
    return sorted(listed, key=lambda one: (one.file.first_offset, one.file.name))


def manifests_of(
    number: int, listed: Sequence[LakeFile]
) -> list[tuple[ManifestName, list[LakeFile]]]:
    """How commit `number` divides the files that it lists into manifests."""
    begins = range(0, len(listed), MANIFEST_FILES_MAX)
    return [
        (ManifestName(number, i), list(listed[at : at + MANIFEST_FILES_MAX]))
        for i, at in enumerate(begins)
    ]


def manifest_row(name: ManifestName, files: Sequence[LakeFile], length: int) -> Manifest:
    removed = [one for one in files if one.removed]
    new = [one for one in files if one.added == name.version and not one.removed]
    existing = [one for one in files if one.added != name.version and not one.removed]
    return Manifest(
        name,
        length,
        len(new),
        _sum(new, "records"),
        len(existing),
        _sum(existing, "records"),
        len(removed),
        _sum(removed, "records"),
        min(one.added for one in files),
    )


def _sum(files: Iterable[LakeFile | TableFile], what: str) -> int:
    return sum(getattr(one.file if isinstance(one, LakeFile) else one, what) for one in files)
