"""Tables without pyarrow, for simulations: the same objects under the same names, in msgpack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from seb_appliance.broker.lake.jobs import PrintedObject, PrintJob, TableFormats
from seb_appliance.broker.lake.names import HINT, list_name, manifest_name, metadata_name
from seb_appliance.broker.lake.table import LakeFile, TableHead, manifests_of
from seb_appliance.formats.batch import Batch
from seb_appliance.formats.lake.tables import Column, ManifestName, TableFile

_encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.decode

Get = Callable[[str], Awaitable[bytes]]


class PlainWriter:
    """Rows are pairs of offset and value."""

    def __init__(self, columns: tuple[Column, ...], schema: int, file_bytes: int) -> None:
        self.bad_rows: list[tuple[int, str, bytes]] = []
        self._rows: list[tuple[int, bytes | None]] = []
        self._schema = schema
        self._file_bytes = file_bytes
        self._created_us = 0

    @property
    def records(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        return sum(len(value or b"") for _, value in self._rows) >= self._file_bytes

    def add(self, batch: Batch, begin: int, end: int) -> None:
        pairs = zip(batch.offsets(), batch.columns.values.slice(), strict=True)
        self._rows += [(offset, value) for offset, value in pairs if begin <= offset < end]
        self._created_us = max(self._created_us, batch.header.created_us)

    def finish(self) -> tuple[bytes, TableFile]:
        return _file(self._rows, self._schema, self._created_us)


def _file(rows: list[Any], schema: int, created_us: int) -> tuple[bytes, TableFile]:
    ends = rows[0][0], rows[-1][0]
    return _encode(rows), TableFile("", 0, len(rows), 0, *ends, 0, 0, schema, created_us=created_us)


def _merged(
    bodies: Sequence[bytes], _: tuple[Column, ...], files: Sequence[TableFile]
) -> tuple[bytes, TableFile]:
    rows = [row for body in bodies for row in decode(body)]
    assert all(a[0] < b[0] for a, b in pairwise(rows)), files
    body, made = _file(rows, files[0].schema, max(one.created_us for one in files))
    return body, msgspec.structs.replace(
        made,
        first_offset=files[0].first_offset,
        last_offset=files[-1].last_offset,
        as_of=min(one.as_of for one in files),
    )


def _manifest(_: TableHead, name: ManifestName, files: Sequence[LakeFile]) -> bytes:
    return _encode([one.file.name for one in files if not one.removed])


def _objects(job: PrintJob) -> list[PrintedObject]:
    head, number = job.head, job.head.number
    made = []
    if head.is_printed_whole:
        for name, files in manifests_of(number, job.listed):
            body = _manifest(head, name, files)
            (row,) = [one for one in head.manifests if one.name == name]
            assert row.length == len(body), (row, body)
            made.append(PrintedObject(head.key_of(manifest_name(name)), body))
        names = [manifest_name(one.name) for one in head.manifests]
        made.append(PrintedObject(head.key_of(list_name(number)), _encode(names)))
    lists = [(one.number, list_name(one.number), one.next_offset) for one in head.snapshots]
    made.append(PrintedObject(head.key_of(metadata_name(number)), _encode(lists), create_only=True))
    made.append(PrintedObject(head.key_of(HINT), str(number).encode()))
    return made


PLAIN: Final = TableFormats(PlainWriter, _merged, _manifest, _objects)


async def rows_of(
    get: Get, location: str, snapshot: int | None = None
) -> tuple[list[tuple[int, bytes | None]], int]:
    """What a reader finds, in the order of offsets, of the newest snapshot or this one; and its
    `next_offset`."""
    hint = int(await get(location + HINT))
    snapshots = decode(await get(location + metadata_name(hint)))
    if snapshot is not None:
        snapshots = [one for one in snapshots if one[0] == snapshot]
    if not snapshots:
        return [], 0
    _, list_of, next_offset = snapshots[-1]
    rows = []
    for manifest in decode(await get(location + list_of)):
        for name in decode(await get(location + manifest)):
            rows += [tuple(row) for row in decode(await get(location + name))]
    return sorted(rows), next_offset
