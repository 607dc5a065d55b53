"""Writing a stream: the number of the micro-batch is the producer's epoch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_seb.errors import BadOptionError, BatchTooOldError, SebSparkError
from pyspark_seb.writing.batch import BATCH_ID, QUERY_ID, Written, checked, this_task, write_rows
from seb_appliance import limits

CLOCKS_DIFFER_S: Final = 3600.0  # of Spark's driver and of the appliance, at most


class SebStreamWriter(DataSourceStreamArrowWriter):
    """One for each micro-batch; the query's id stays over restarts from its checkpoint."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options, self._rows = checked(given, schema)
        if self._options.producer_id is not None:
            raise BadOptionError("producerId is for a batch: a stream is known by its checkpoint")
        self._planned = newest_batch(self._options.checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = this_task()
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
        """Each request was acknowledged already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Appended records stay; the batch is sent again under the same numbers."""


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
