"""What a task does: the records of one range, as Arrow, by the API or straight from the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_seb.client import Appliance
from pyspark_seb.columns import ArrowBatches, arrow_schema
from pyspark_seb.errors import ApplianceError, RecordsGoneError, TopicChangedError
from pyspark_seb.offsets import TopicRange
from pyspark_seb.options import ReadOptions
from pyspark_seb.segments import SegmentReader
from seb_appliance import limits
from seb_appliance.formats.columns import Bytes

_ASKED: Final[dict[str, Any]] = {
    "format": "batch",
    "max_records": limits.FETCH_RECORDS_MAX,
    "max_bytes": limits.FETCH_BYTES_MAX // 2,
}

Stored = tuple[Bytes, int]
"""Record batches back to back, and the offset that reading goes on from after them."""


@dataclass
class RangePartition(InputPartition):
    """What one task reads; None: nothing. It is all that a task is told, and holds no secret."""

    wanted: TopicRange | None


def partitions_of(parts: list[TopicRange]) -> list[RangePartition]:
    """One for each part. Of an empty list Spark would make one that it cannot read."""
    return [RangePartition(part) for part in parts] or [RangePartition(None)]


def read_partition(
    options: ReadOptions, partition: InputPartition, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """As `read_range`, of what a task was sent."""
    assert isinstance(partition, RangePartition), partition
    if partition.wanted is not None:
        yield from read_range(options, partition.wanted, arrow_schema(schema))


def read_range(
    options: ReadOptions, wanted: TopicRange, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Raises ApplianceError, RecordsGoneError, TopicChangedError, BadBatchError."""
    appliance = Appliance(options.url, options.token_file)
    made = ArrowBatches(wanted.topic, schema)
    at = wanted.start
    try:
        _check_topic(appliance, wanted)
        while at < wanted.end:
            try:
                for stored, following in _parts(appliance, options, wanted, at):
                    yield from made.take(stored, at, min(following, wanted.end))
                    at = following
            except ApplianceError as error:
                if error.code != "offset_expired":
                    raise
                log_start_offset = int(error.data["log_start_offset"])
                if options.fail_on_data_loss:
                    raise RecordsGoneError(wanted.topic, at, log_start_offset) from error
                at = max(at, log_start_offset)
        yield from made.rest()
    finally:
        appliance.close()


def _parts(
    appliance: Appliance, options: ReadOptions, wanted: TopicRange, at: int
) -> Iterator[Stored]:
    if options.transport == "direct":
        by_segments = SegmentReader(appliance, wanted)
        return by_segments.read(at, lambda begin, end: by_api(appliance, wanted, begin, end))
    return by_api(appliance, wanted, at, wanted.end)


def by_api(appliance: Appliance, wanted: TopicRange, at: int, end: int) -> Iterator[Stored]:
    """Parts of the range through the appliance."""
    path = f"/v1/topics/{wanted.topic}/records"
    while at < end:
        answer = appliance.get(path, offset=at, until=end, **_ASKED)
        following = int(answer.headers["seb-next-offset"])
        if following <= at:
            raise TopicChangedError(
                f"the log of topic {wanted.topic!r} ends at {following}, and was planned to be "
                f"read up to {end}"
            )
        yield answer.body, following
        at = following


def _check_topic(appliance: Appliance, wanted: TopicRange) -> None:
    topic_id = appliance.get(f"/v1/topics/{wanted.topic}").json()["topic_id"]
    if topic_id != wanted.topic_id:
        raise TopicChangedError(
            f"topic {wanted.topic!r} was deleted and made anew since the read was planned"
        )
