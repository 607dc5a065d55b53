"""What a fork of a stream is made of: an offset of its parent, and perhaps the beginning of the
record that lies there, which becomes its own first record."""

from __future__ import annotations

from dataclasses import dataclass

from seb_appliance.broker.reads import Reads
from seb_appliance.broker.stream_values import StreamView, WantedFork, is_json
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import BadParameterError


@dataclass(frozen=True, slots=True)
class Past:
    """Of the topic `parent_id`. `offset` None: the parent's end as of admission. `prefix`: at most
    one record."""

    parent_id: int
    offset: int | None
    prefix: list[bytes]


async def past_of(reads: Reads, parent: StreamView, asked: WantedFork) -> Past:
    """Raises BadParameterError for what lies beyond the parent's records, and as `Reads.read`."""
    offset = parent.log_end_offset if asked.offset is None else asked.offset
    counts_records = is_json(parent.state.content_type)
    if offset + (asked.sub_offset if counts_records else 0) > parent.log_end_offset:
        raise _beyond()
    if asked.sub_offset == 0:
        return Past(parent.topic_id, asked.offset, [])
    if counts_records:
        return Past(parent.topic_id, offset + asked.sub_offset, [])
    result = await reads.read(parent.topic, ReadRequest(From(offset=offset), max_records=1))
    value = b""
    for piece in result.slices:
        value = piece.batch.columns.values.get(piece.begin) or b""
    if len(value) < asked.sub_offset:
        raise _beyond()
    return Past(parent.topic_id, offset, [value[: asked.sub_offset]])


def _beyond() -> BadParameterError:
    return BadParameterError("The fork would begin beyond what its parent has there.")
