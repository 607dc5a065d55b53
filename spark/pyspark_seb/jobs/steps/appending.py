"""Records from elsewhere are appended to a topic in one order, and stored once however often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame

from pyspark_seb.jobs.frame import Run

COLUMNS: Final = ("key", "value", "headers", "timestamp")


def append(
    run: Run, rows: DataFrame, topic: str, order: Sequence[str | Column], producer_id: str
) -> None:
    """`rows`: with a column `value`, and others of COLUMNS. `order`: a total one, so that a run
    with the same rows and the same `producer_id` stores only what an earlier one did not, for seven
    days. Raises ApplianceError, RowsChangedError."""
    run.step(f"appending to {topic}")
    # A topic has one order, so there is one task that appends.
    ordered = rows.repartition(1).sortWithinPartitions(*order)
    kept = [name for name in COLUMNS if name in rows.columns]
    appended = ordered.select(*kept).write.format("seb").mode("append")
    appended.options(**run.access, topic=topic, producerId=producer_id).save()
