"""Sealing: a window's runs become batches and sections, and its steps become operations.

It does no I/O and does not touch the event loop, so a thread may run it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crc32c import crc32c

from seb_appliance.broker.append.window import PlainRun, TopicRuns, Window
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Bytes, Columns, int64s
from seb_appliance.formats.compression import Compressor
from seb_appliance.formats.contents import Contents, Section, check_readable
from seb_appliance.formats.operations import (
    Append,
    ObjectsAdopted,
    Operation,
    RecordsDelayed,
    SegmentsReplaced,
)


@dataclass(slots=True)
class Sealed:
    """The table of contents, and the parts of the entry's section area. `plain_bytes` and
    `packed_bytes`: of the compressed batches, before and after compression."""

    contents: Contents
    parts: list[Bytes] = field(default_factory=list)
    plain_bytes: int = 0
    packed_bytes: int = 0


def seal(window: Window, created_us: int) -> Sealed:
    """A window as the contents of its entry. Raises BadBatchError for what replay could not read;
    admission must have refused that."""
    operations: list[Operation] = []
    sections: list[Section] = []
    sealed = Sealed(Contents(operations, sections, window.results))
    start = 0
    for step in window.steps:
        if not isinstance(step, int):
            operations.append(step)
            continue
        section = _seal_topic(window.topics[step], start, created_us, sealed)
        operations.append(Append(section=len(sections)))
        if delays := window.topics[step].delays:
            operations.append(RecordsDelayed(topic_id=step, delays=tuple(delays)))
        sections.append(section)
        start += section.length
    # Operations that name segments are large, and consist of what was read back.
    large = (Append, SegmentsReplaced, ObjectsAdopted)
    events = [operation for operation in operations if not isinstance(operation, large)]
    check_readable(events, sections, window.results)
    return sealed


def _seal_topic(runs: TopicRuns, start: int, created_us: int, sealed: Sealed) -> Section:
    """Adds the section's parts to `sealed`."""
    parts: list[Bytes] = []
    offset = runs.base_offset
    largest_us = 0
    for run in runs.runs:
        if isinstance(run, PlainRun):
            parts.append(_encode_run(run, runs.compressor, offset, created_us, sealed))
            offset += len(run.values)
            largest_us = max(largest_us, max(run.timestamps_us))
            continue
        for header, stored in run.batches:
            parts += (batch.restamp(header, base_offset=offset, created_us=created_us), stored)
            offset += header.count
            largest_us = max(largest_us, header.largest_timestamp_us)
    assert offset == runs.next_offset, (offset, runs.next_offset)
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    length = sum(map(len, parts))
    assert length % 8 == 0, length
    sealed.parts += parts
    return Section(
        topic_id=runs.topic_id,
        base_offset=runs.base_offset,
        last_offset=offset - 1,
        record_count=offset - runs.base_offset,
        start=start,
        length=length,
        crc=crc,
        largest_timestamp_us=largest_us,
        producers=tuple(runs.producers),
    )


def _encode_run(
    run: PlainRun, compressor: Compressor | None, base_offset: int, created_us: int, sealed: Sealed
) -> bytes:
    """One batch, compressed if the topic wants that and it saves space."""
    plain = _encode(run, base_offset, created_us)
    if compressor is None:
        return plain
    packed = compressor.pack(plain)
    if packed is not plain:
        sealed.plain_bytes += len(plain)
        sealed.packed_bytes += len(packed)
    return packed


def _encode(run: PlainRun, base_offset: int, created_us: int) -> bytes:
    is_one = len(run.values) == 1 and run.keys is None and run.headers is None
    if is_one and (value := run.values[0]) is not None:
        return batch.encode_value(
            value, run.timestamps_us[0], base_offset=base_offset, created_us=created_us
        )
    columns = Columns(
        int64s(run.timestamps_us),
        BinaryColumn.of(run.values),
        None if run.keys is None else BinaryColumn.of(run.keys),
        None if run.headers is None else BinaryColumn.of(run.headers),
    )
    return batch.encode(columns, base_offset=base_offset, created_us=created_us)
