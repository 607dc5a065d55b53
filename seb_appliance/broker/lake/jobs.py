"""What the process that writes tables is asked, and what it answers: plain values for a pipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from seb_appliance.broker.lake.table import LakeFile, TableHead
from seb_appliance.broker.upkeep.rewrite_jobs import Asked, SectionPlace
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import Column, ManifestName, TableFile, TableOp
from seb_appliance.formats.operations import TableCommitted


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A section of the log, of which the table takes the records below `end`: a fork takes only
    some of its parent's."""

    place: SectionPlace
    end: int


class WriteJob(msgspec.Struct, frozen=True, tag=True):
    """Make the next commit of the table `head`.

    Its rows are the records from `first` up to `end` in `parts` (in the order of offsets), or
    all rows of the files `merged`. `as_of`: the journal entry up to which the log is read.
    `touched`: the files that the commit concerns, which are those
    of `rewritten` and `removed`. `name`: 8 random bytes, part of the names of new files.
    """

    head: TableHead
    op: TableOp
    name: bytes
    file_bytes: int
    oldest: int
    first: int = 0
    end: int = 0
    as_of: int = 0
    parts: tuple[Part, ...] = ()
    merged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewritten: tuple[ManifestName, ...] = ()
    touched: tuple[LakeFile, ...] = ()


class BadRow(msgspec.Struct, frozen=True, array_like=True):
    """A record that could not be read as the columns say."""

    offset: int
    error: str
    raw: bytes


class Written(msgspec.Struct, frozen=True, tag=True):
    """The objects of `commit` that hold rows are stored; its metadata is not."""

    commit: TableCommitted
    bad_rows: tuple[BadRow, ...] = ()
    bytes_read: int = 0
    bytes_written: int = 0


class PrintJob(msgspec.Struct, frozen=True, tag=True):
    """Store the metadata of the last commit of `head`. `listed`: the files of its manifests;
    `living`: of the table, if Delta needs them. `is_first`: print nothing if the bucket has it;
    `repair`: replace what others wrote."""

    head: TableHead
    listed: tuple[LakeFile, ...]
    living: tuple[LakeFile, ...] | None = None
    is_first: bool = False
    repair: bool = False


class Printed(msgspec.Struct, frozen=True, tag=True):
    """`foreign`: the key of an object that someone else wrote in place of ours, "" for none. Then
    nothing more was stored."""

    foreign: str = ""
    objects: int = 0


class PrintedObject(NamedTuple):
    """An object of a table's metadata. `create_only`: others may look for it under this name, so
    that it is never replaced by other bytes."""

    key: str
    body: bytes
    create_only: bool = False


class RowWriter(Protocol):
    """Makes one data file. `bad_rows`: offset, what is wrong, and the value, of some of them."""

    bad_rows: list[tuple[int, str, bytes]]

    @property
    def records(self) -> int: ...

    @property
    def is_full(self) -> bool: ...

    def add(self, batch: Batch, begin: int, end: int) -> None:
        """The records of the batch with begin ≤ offset < end."""

    def finish(self) -> tuple[bytes, TableFile]:
        """The file, and what it holds; its name and its offsets are still to be set."""


@dataclass(frozen=True, slots=True)
class TableFormats:
    """How rows and metadata become bytes. Each function gives the same bytes for the same values.

    `writer`: of a file with these columns, of the schema with this number, of about so many bytes.
    `merged`: one file with the rows of these. `objects`: the metadata of a commit, in the order in
    which it must be stored; the last one tells that all of it is there.
    """

    writer: Callable[[tuple[Column, ...], int, int], RowWriter]
    merged: Callable[
        [Sequence[bytes], tuple[Column, ...], Sequence[TableFile]], tuple[bytes, TableFile]
    ]
    manifest: Callable[[TableHead, ManifestName, Sequence[LakeFile]], bytes]
    objects: Callable[[PrintJob], Sequence[PrintedObject]]


class TableWriter(Protocol):
    """`asked`: what it asked of the bucket. `rss_bytes`: the most memory that its process took."""

    asked: Asked
    rss_bytes: int

    async def write(self, job: WriteJob) -> Written:
        """Raises CorruptObjectError, StoreError; some new objects may be stored then."""

    async def print(self, job: PrintJob) -> Printed:
        """Raises StoreError."""

    async def close(self) -> None: ...
