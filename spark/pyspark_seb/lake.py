"""A lake of Parquet files that every engine reads exactly, whenever a job that writes it dies.

Spark writes into a folder beside the lake. Each finished directory topic=T/date=D/offsets=FROM-TO
is then renamed into the lake: it is there whole or not at all, and no file in the lake is ever
written to, replaced or removed.
"""

from __future__ import annotations

import errno
import json
import re
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_seb import jobs
from pyspark_seb import stream_reader as pulling
from pyspark_seb.client import Appliance
from pyspark_seb.errors import BadOptionError, LakeError
from pyspark_seb.options import read_options

PARTITIONS: Final = ("topic", "date", "offsets")
_OF_A_STREAM: Final = "_spark_metadata"  # of Spark's own file sink, which earlier releases used
_OFFSETS: Final = re.compile(r"offsets=(\d+)-(\d+)")


def pull(
    spark: SparkSession,
    asked: Namespace,
    options: Mapping[str, str],
    until: Mapping[str, int] | None = None,
) -> int:
    """Pull what the group has not read yet into the lake, then commit; how many offsets that were.
    `options`: for `format("seb")`, with the group. Raises ApplianceError (`offset_conflict`),
    RecordsGoneError, LakeError."""
    lake = Lake(spark, asked.out, asked.group)
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        reading = read_options(options)
        begun = pulling.begin(appliance, reading, asked.max_records, until, lake.check)
    lake.remove_left(begun)
    if not begun.ranges:
        return 0
    wanted = {
        **options,
        "topics": ",".join(found.topic for found in begun.ranges),
        "startingOffsets": json.dumps({found.topic: found.start for found in begun.ranges}),
        "endingOffsets": json.dumps({found.topic: found.end for found in begun.ranges}),
    }
    lake.put(jobs.with_date(spark.read.format("seb").options(**wanted).load()), begun)
    with closing(Appliance(asked.url, asked.token_file)) as appliance:
        pulling.finish(appliance, asked.group, begun)
    return sum(map(len, begun.ranges))


class Lake:
    """`out`: its folder, on a file system with a rename."""

    def __init__(self, spark: SparkSession, out: str, group: str) -> None:
        # Spark has no other way from Python to the file systems that it writes to.
        jvm: Any = spark._jvm  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files = self._path(out).getFileSystem(configuration)
        self._root = self._files.makeQualified(self._path(out))
        if self._root.getParent() is None:
            raise BadOptionError(f"{out} is the root of a file system: name a folder in it")
        beside = self._path(self._root.getParent(), f".{self._root.getName()}.unfinished")
        self._unfinished = self._path(beside, group)

    def check(self, pull: pulling.Pull) -> None:
        """Raises LakeError where records would be there twice, or could not be seen."""
        if self._files.exists(self._path(self._root, _OF_A_STREAM)):
            raise LakeError(
                f"{self._root} has a folder {_OF_A_STREAM}: Spark shows only the files that are "
                "listed there, and other engines show others. Name a new folder."
            )
        for found in pull.ranges:
            first, end = pull.noted[found.topic]
            for path in self._directories(self._path(self._root, f"topic={found.topic}"), 2):
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

    def put(self, records: DataFrame, pull: pulling.Pull) -> None:
        """Write the records, with columns `topic` and `date`, and put them in place. A directory
        that an earlier run of the same range has put there is whole, and stays."""
        noted = {found.topic: pull.noted[found.topic] for found in pull.ranges}
        names = {topic: f"{first}-{end}" for topic, (first, end) in noted.items()}
        folder = self._path(self._of(pull), uuid.uuid4().hex)
        named = records.withColumn("offsets", jobs.by_topic(names))
        named.write.partitionBy(*PARTITIONS).parquet(str(folder))
        for path in self._directories(folder, len(PARTITIONS)):
            self._move(path, path.toUri().getPath().removeprefix(folder.toUri().getPath() + "/"))
        self._files.delete(folder, True)

    def remove_left(self, pull: pulling.Pull) -> None:
        """Remove what dead runs of this group have left; a run of this very pull may be alive."""
        for path in self._directories(self._unfinished, 1):
            if not pull.ranges or path.getName() != self._of(pull).getName():
                self._files.delete(path, True)

    def _of(self, pull: pulling.Pull) -> Any:
        """Where runs of this pull write: each in a folder of its own."""
        named = ",".join(f"{found.topic}={pull.noted[found.topic]}" for found in pull.ranges)
        return self._path(self._unfinished, uuid.uuid5(uuid.NAMESPACE_URL, named).hex)

    def _directories(self, path: Any, depth: int) -> Iterator[Any]:
        """Those that lie so deep below the path."""
        if depth == 0:
            yield path
        elif self._files.exists(path):
            for found in self._files.listStatus(path):
                if found.isDirectory():
                    yield from self._directories(found.getPath(), depth - 1)

    def _move(self, path: Any, name: str) -> None:
        """Rename a directory into the lake, unless it is there already."""
        target = self._path(self._root, name)
        if self._files.exists(target):
            return
        self._files.mkdirs(target.getParent())
        if self._files.getScheme() == "file":
            # Hadoop would copy into a directory that another run has put there meanwhile.
            try:
                Path(path.toUri().getPath()).rename(target.toUri().getPath())
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                    raise
        elif not self._files.rename(path, target):
            raise LakeError(f"{path} could not be renamed to {target}")
