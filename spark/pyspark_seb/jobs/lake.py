"""A lake of Parquet files that every engine reads exactly, whenever a job that writes it dies.

Each finished directory topic=T/date=D/offsets=FROM-TO is renamed into the lake: it is there whole
or not at all, and no file in the lake is ever written to, replaced or removed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_seb.errors import BadOptionError, LakeError
from pyspark_seb.jobs import frame
from pyspark_seb.jobs.folders import Folder
from pyspark_seb.jobs.frame import Progress, Run
from pyspark_seb.jobs.steps import pulling
from pyspark_seb.jobs.steps.pulling import Pull
from pyspark_seb.options import read_options
from seb_appliance.formats.lake.columns import columns_of
from seb_appliance.formats.lake.tables import RAW, Column
from seb_appliance.lake.rows import RowMaker

TOPIC: Final = "topic"
FIT: Final = "_fit"
FITS: Final = "yes"
DOES_NOT_FIT: Final = "no"
PARTITIONS: Final = (FIT, TOPIC, "date", "offsets")
_OF_A_STREAM: Final = "_spark_metadata"  # of Spark's own file sink, which earlier releases used
_OFFSETS: Final = re.compile(r"offsets=(\d+)-(\d+)")


def pull(run: Run) -> Pull:
    """Pull what the group has not read yet into the lake, then commit. Raises ApplianceError
    (`offset_conflict`), RecordsGoneError, LakeError, BadOptionError."""
    asked = run.asked
    columns = declared_columns(asked.columns, asked.dead_letters)
    options = {**run.reading, "group": asked.group, "startingOffsets": asked.start}
    lake = Lake(run.spark, asked.out, asked.group)
    dead = asked.dead_letters and Lake(run.spark, asked.dead_letters, asked.group)
    lakes = {FITS: lake, **({DOES_NOT_FIT: dead} if dead else {})}

    def check(begun: Pull) -> None:
        for one in lakes.values():
            one.check(begun)

    run.step("asking what the group has not read")
    with run.appliance() as appliance:
        reading = read_options(options)
        begun = pulling.begin(appliance, reading, asked.max_records, check, note=not asked.dry_run)
    if asked.dry_run:
        return begun
    for one in lakes.values():
        one.remove_left(begun)
    if not begun.ranges:
        return begun
    wanted = {
        **options,
        "topics": ",".join(found.topic for found in begun.ranges),
        "startingOffsets": json.dumps({found.topic: found.start for found in begun.ranges}),
        "endingOffsets": json.dumps({found.topic: found.end for found in begun.ranges}),
    }
    records = run.records(wanted, {found.topic: found.topic_id for found in begun.ranges})
    rows = records.withColumn(FIT, sql.lit(FITS)) if columns is None else typed(records, columns)
    lake.put(frame.with_date(rows), begun, lakes, run.step)
    run.step("committing")
    with run.appliance() as appliance:
        pulling.finish(appliance, asked.group, begun)
    return begun


def declared_columns(text: str | None, dead_letters: str | None) -> tuple[Column, ...] | None:
    """Raises BadOptionError."""
    if (text is None) != (dead_letters is None):
        raise BadOptionError("--columns and --dead-letters need each other")
    if text is None:
        return None
    try:
        return columns_of(text, ())
    except ValueError as error:
        raise BadOptionError(f"--columns: {error}") from error


def typed(records: DataFrame, columns: tuple[Column, ...]) -> DataFrame:
    """With these columns, the topic, and whether the record fits them. A tombstone fits."""
    schema = RowMaker(columns).schema
    for name in (TOPIC, FIT):
        schema = schema.append(pa.field(name, pa.string(), nullable=False))

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = RowMaker(columns)
        for one in batches:
            if one.num_rows:
                rows = made.rows_of(one)[0]
                is_bad = pc.is_valid(rows.column(RAW.name))
                fit = pc.if_else(is_bad, DOES_NOT_FIT, FITS)
                arrays = [*rows.columns, one.column(TOPIC), fit]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return records.mapInArrow(convert, from_arrow_schema(schema))


class Lake(Folder):
    """A folder of directories topic=T/date=D/offsets=FROM-TO, each put in place whole."""

    def check(self, pull: Pull) -> None:
        """Raises LakeError where records would be there twice, or could not be seen."""
        if self.files.exists(self.path(self.root, _OF_A_STREAM)):
            raise LakeError(
                f"{self.root} has a folder {_OF_A_STREAM}: Spark shows only the files that are "
                "listed there, and other engines show others. Name a new folder."
            )
        for found in pull.ranges:
            first, end = pull.noted[found.topic]
            for path in self.directories(self.path(self.root, f"topic={found.topic}"), 2):
                named = _OFFSETS.fullmatch(path.getName())
                if named is None or int(named[1]) >= end or int(named[2]) <= first:
                    continue
                ours = (int(named[1]), int(named[2])) == (first, end)
                if not ours or found.topic not in pull.resumed:
                    raise LakeError(
                        f"{path} holds some of the offsets {first} to {end} that are to be "
                        "written: another group writes here, the group was reset, or the topic was "
                        "created again. Remove that directory, or name a new folder."
                    )

    def put(self, rows: DataFrame, begun: Pull, lakes: Mapping[str, Lake], step: Progress) -> None:
        """Write the rows, with columns `topic`, `date` and `_fit`, which says into which of the
        lakes they go, and put them in place. A directory that an earlier run of the same range has
        put there is whole, and stays."""
        noted = {found.topic: begun.noted[found.topic] for found in begun.ranges}
        names = {topic: f"{first}-{end}" for topic, (first, end) in noted.items()}
        folder = self.path(self._of(begun), uuid.uuid4().hex)
        named = rows.withColumn("offsets", frame.by_topic(names))
        step(f"writing {sum(map(len, begun.ranges))} offsets of {len(names)} topics")
        named.write.partitionBy(*PARTITIONS).parquet(str(folder))
        for fit in self.directories(folder, 1):
            root = fit.toUri().getPath() + "/"
            lake = lakes[fit.getName().partition("=")[2]]
            for path in self.directories(fit, len(PARTITIONS) - 1):
                name = path.toUri().getPath().removeprefix(root)
                step(f"putting {name} in place")
                lake.move(path, name)
        self.files.delete(folder, True)

    def remove_left(self, pull: Pull) -> None:
        """Remove what dead runs of this group have left; a run of this very pull may be alive."""
        for path in self.directories(self.unfinished, 1):
            if not pull.ranges or path.getName() != self._of(pull).getName():
                self.files.delete(path, True)

    def _of(self, pull: Pull) -> Any:
        """Where runs of this pull write: each in a folder of its own."""
        named = ",".join(f"{found.topic}={pull.noted[found.topic]}" for found in pull.ranges)
        return self.path(self.unfinished, uuid.uuid5(uuid.NAMESPACE_URL, named).hex)
