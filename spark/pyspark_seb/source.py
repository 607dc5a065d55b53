"""`format("seb")`: the Python Data Source that Spark finds by the name of this package.

What a version of Spark lacks is imported when it is asked for: batches are read and written with
Spark 4.0, streams are written with 4.1, and read with 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from pyspark_seb.arrow.columns import spark_schema
from pyspark_seb.client import Appliance
from pyspark_seb.errors import BadOptionError
from pyspark_seb.frames import Loaded, described
from pyspark_seb.options import (
    CommittedOffset,
    ReadOptions,
    TopicRange,
    read_options,
    resolve_ranges,
    split,
)
from pyspark_seb.reading.ranges import RangePartition, partitions_of, read_partition
from pyspark_seb.versions import require


class DefaultSource(DataSource):
    """Spark makes one when a reader or writer is asked for, and sends it where it is needed."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # Kept as it is: a plain dict of it would have lower-case names for good.
        self.options = options
        self._ranges: list[TopicRange] | None = None

    @classmethod
    def name(cls) -> str:
        return "seb"

    def schema(self) -> StructType:
        """Resolve the offsets of a batch. Spark calls this once, when a DataFrame is made; resolved
        later, each action would read up to a different "latest"."""
        options = read_options(self.options)
        self._ranges, committed = _resolved(options)
        at = {topic: found.offset for topic, found in committed.items()}
        begins_at = options.group if options.starting.everywhere == "committed" else None
        return described(_schema(options), Loaded(begins_at, at, self._ranges))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, "batch")
        ours = _schema(options)
        if schema.simpleString() != ours.simpleString():
            raise BadOptionError(f"the schema is {ours.simpleString()}: leave .schema(…) out")
        if self._ranges is None:
            self._ranges, _ = _resolved(options)
        return SebReader(options, schema, self._ranges)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        require("reading a stream needs", 4, 2)
        from pyspark_seb.reading.stream import SebStreamReader

        return SebStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_seb.writing.batch import SebWriter

        return SebWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002 - Spark's; a stream's "complete" mode is refused
    ) -> DataSourceStreamWriter:
        require("writing a stream needs", 4, 1)
        from pyspark_seb.writing.stream import SebStreamWriter

        return SebStreamWriter(self.options, schema)


class SebReader(DataSourceReader):
    """A batch: ranges of offsets, resolved before."""

    def __init__(self, options: ReadOptions, schema: StructType, ranges: list[TopicRange]) -> None:
        self._options = options
        self._schema = schema
        self._ranges = ranges

    def partitions(self) -> list[RangePartition]:
        options = self._options
        return partitions_of(split(self._ranges, options.min_partitions, options.records_per_task))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(self._options, partition, self._schema)


def _schema(options: ReadOptions) -> StructType:
    return spark_schema(options.columns, headers_as_array=options.headers_as_array)


def _resolved(options: ReadOptions) -> tuple[list[TopicRange], dict[str, CommittedOffset]]:
    with closing(Appliance(options.url, options.token_file)) as appliance:
        return resolve_ranges(appliance, options)
