"""Sealing: a window's runs become batches and sections, and its steps operations. Pure."""

from __future__ import annotations

from crc32c import crc32c

from seb_appliance.broker.window import PlainRun, TopicRuns, Window
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Bytes, Columns, int64s
from seb_appliance.formats.operations import Append, Contents, Operation, Section


def seal(window: Window, created_us: int) -> tuple[Contents, list[Bytes]]:
    """The table of contents, and the parts which joined are the entry's section area."""
    operations: list[Operation] = []
    sections: list[Section] = []
    parts: list[Bytes] = []
    start = 0
    for step in window.steps:
        if not isinstance(step, int):
            operations.append(step)
            continue
        section, section_parts = _seal_topic(window.topics[step], start, created_us)
        operations.append(Append(section=len(sections)))
        sections.append(section)
        parts += section_parts
        start += section.length
    return Contents(operations, sections, window.results), parts


def _seal_topic(runs: TopicRuns, start: int, created_us: int) -> tuple[Section, list[Bytes]]:
    parts: list[Bytes] = []
    offset = runs.base_offset
    largest_us = 0
    for run in runs.runs:
        if isinstance(run, PlainRun):
            encoded = _encode(run, offset, created_us)
            parts.append(encoded)
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
    section = Section(
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
    return section, parts


def _encode(run: PlainRun, base_offset: int, created_us: int) -> bytes:
    if len(run.values) == 1 and run.keys is None and run.headers is None:
        value = run.values[0]
        assert value is not None, "a tombstone has a record key"
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
