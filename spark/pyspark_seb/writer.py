"""Writing: rows become record batches, appended as a numbered producer so that nothing is doubled.

A task that is tried again sends the same requests under the same numbers. In a stream the number
of the micro-batch is the producer's epoch: a batch that is replayed is known, and a task of an
older batch that comes late is refused.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_seb.client import Appliance
from pyspark_seb.errors import BadOptionError, BatchTooOldError, SebSparkError
from pyspark_seb.options import WriteOptions, write_options
from pyspark_seb.rows import RowSchema, record_batches
from pyspark_seb.sending import Gathered, Producer
from seb_appliance import limits

CLOCKS_DIFFER_S: Final = 3600.0  # of Spark's driver and of the appliance, at most

# Spark's own names for what a sink is not told otherwise; a test holds them.
BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"


@dataclass
class Written(WriterCommitMessage):
    """What one task appended, by topic."""

    records: Mapping[str, int]


def write_rows(
    options: WriteOptions,
    rows: RowSchema,
    batches: Iterator[pa.RecordBatch],
    producer_id: str,
    epoch: int,
) -> Written:
    """Raises ApplianceError, SebSparkError."""
    appliance = Appliance(options.url, options.token_file)
    try:
        producer = Producer(appliance, producer_id, epoch)
        with Gathered(producer) as gathered:
            for batch in batches:
                now_us = time.time_ns() // 1000
                for topic, part in _by_topic(batch, options.topic):
                    for made, checksum in record_batches(rows, part, now_us):
                        gathered.add(topic, made, checksum)
                gathered.whole()
        return Written(producer.records)
    finally:
        appliance.close()


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    if "topic" not in batch.schema.names:
        assert topic is not None
        yield topic, batch
        return
    column = batch.column("topic")
    for name in pc.unique(column).to_pylist():
        if name is None:
            raise SebSparkError("a row has no topic: null in the column topic")
        mask = pc.equal(column, name)
        yield name, batch if pc.all(mask).as_py() else batch.filter(mask)


class SebWriter(DataSourceArrowWriter):
    """A batch. Its id is made here and sent to every task, also to one that is tried again; who
    names it can run the same batch again."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOptionError(
                'a log is only appended to: mode("append"). What was written stays.'
            )
        self._options, self._rows = _checked(given, schema)
        self._id = self._options.producer_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _task()
        producer_id = f"spark-{self._id}-{context.partitionId()}"
        return write_rows(self._options, self._rows, iterator, producer_id, epoch=0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: what was appended is read by others already."""


class SebStreamWriter(DataSourceStreamArrowWriter):
    """One for each micro-batch; the query's id stays over restarts from its checkpoint."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options, self._rows = _checked(given, schema)
        if self._options.producer_id is not None:
            raise BadOptionError("producerId is for a batch: a stream is known by its checkpoint")
        self._planned = newest_batch(self._options.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _task()
        query_id = context.getLocalProperty(QUERY_ID)
        batch_id = context.getLocalProperty(BATCH_ID)
        if not query_id or batch_id is None:
            raise SebSparkError(
                f"this Spark does not tell a task {QUERY_ID} and {BATCH_ID}: without them a batch "
                "that is replayed would be stored twice"
            )
        if self._planned is not None and self._planned[0] == int(batch_id):
            check_remembered(*self._planned, time.time())
        producer_id = f"spark-stream-{query_id}-{context.partitionId()}"
        return write_rows(self._options, self._rows, iterator, producer_id, epoch=int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: each request was acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back; the batch is sent again under the same numbers."""


def newest_batch(checkpoint: str | None) -> tuple[int, float] | None:
    """The number of the newest batch in a stream's checkpoint, and when it was planned, in seconds;
    None where that cannot be known: Python reads only checkpoints on a mounted file system."""
    path = urlsplit(checkpoint or "")
    if not path.path or path.scheme not in {"", "file"}:
        return None
    try:
        number = max(int(p.name) for p in Path(path.path, "offsets").iterdir() if p.name.isdigit())
        lines = Path(path.path, "offsets", str(number)).read_text(encoding="utf-8").splitlines()
        return number, json.loads(lines[1])["batchTimestampMs"] / 1000
    except (OSError, ValueError, LookupError, TypeError):
        return None


def check_remembered(batch_id: int, planned_s: float, now_s: float) -> None:
    """Raises BatchTooOldError for a batch that an earlier run may have appended so long ago that
    the appliance has forgotten it."""
    if now_s - planned_s < limits.PRODUCER_IDLE_US / 1e6 - CLOCKS_DIFFER_S:
        return
    planned = datetime.fromtimestamp(planned_s, UTC).isoformat(timespec="seconds")
    raise BatchTooOldError(
        f"batch {batch_id} of this stream was planned at {planned} and is run again after 7 days, "
        "when the appliance no longer knows what was stored of it. If its topic has none of it, "
        f"remove offsets/{batch_id} from the checkpoint: the batch is planned anew."
    )


def _checked(given: Mapping[str, str], schema: StructType) -> tuple[WriteOptions, RowSchema]:
    options = write_options(given)
    rows = RowSchema.of(schema)
    if options.topic is None and "topic" not in schema.names:
        raise BadOptionError("name the topic: an option topic, or a column topic")
    return options, rows


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
