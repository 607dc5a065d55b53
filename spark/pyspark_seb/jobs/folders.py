"""Folders that readers see whole or not at all, whenever a job that writes them dies.

Spark writes into a hidden folder beside the one that is shown; what is finished is renamed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from pyspark_seb.errors import BadOptionError, LakeError
from pyspark_seb.jobs.frame import Run

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2


class Folder:
    """`out`: its path, on a file system with a rename. `owner`: names what is unfinished."""

    def __init__(self, spark: SparkSession, out: str, owner: str) -> None:
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise BadOptionError(
                "this job renames directories, which Spark Connect offers no way to: run it with "
                "spark-submit"
            )
        # Spark has no other way from Python to the file systems that it writes to.
        self.path: Any = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self.files: Any = self.path(out).getFileSystem(configuration)
        self.root: Any = self.files.makeQualified(self.path(out))
        if self.root.getParent() is None:
            raise BadOptionError(f"{out} is the root of a file system: name a folder in it")
        beside = self.path(self.root.getParent(), f".{self.root.getName()}.unfinished")
        self.unfinished: Any = self.path(beside, owner)

    def directories(self, path: Any, depth: int) -> Iterator[Any]:
        """Those that lie so deep below the path."""
        if depth == 0:
            yield path
        elif self.files.exists(path):
            for found in self.files.listStatus(path):
                if found.isDirectory():
                    yield from self.directories(found.getPath(), depth - 1)

    def move(self, path: Any, name: str) -> None:
        """Rename a directory into the folder, unless it is there already."""
        target = self.path(self.root, name) if name else self.root
        if self.files.exists(target):
            return
        self.files.mkdirs(target.getParent())
        if self.files.getScheme() == "file":
            # Hadoop would copy into a directory that another run has put there meanwhile.
            try:
                Path(path.toUri().getPath()).rename(target.toUri().getPath())
            except OSError as error:
                if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                    raise
        elif not self.files.rename(path, target):
            raise LakeError(f"{path} could not be renamed to {target}")

    def replace(self, path: Any) -> None:
        """Put a directory in the place of the folder. On a local disk nobody sees neither; on other
        file systems there is no folder for a moment, or until the next run if this one dies then.
        """
        if not self.files.exists(self.root):
            self.move(path, "")
        elif self.files.getScheme() == "file":
            exchange(Path(path.toUri().getPath()), Path(self.root.toUri().getPath()))
        else:
            self.files.rename(self.root, self.path(self.unfinished, uuid.uuid4().hex))
            self.move(path, "")


def exchange(one: Path, other: Path) -> None:
    """Swap the names of two directories of a local disk in one step. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, f"{one} and {other} cannot be swapped: {os.strerror(code)}")


def write(
    run: Run, rows: DataFrame, out: str, partitions: tuple[str, ...] = (), *, name: str = ""
) -> None:
    """Write rows as Parquet: as the directory `name` of the folder, or in place of the folder."""
    folder = Folder(run.spark, out, "one")
    mine = folder.path(folder.unfinished, uuid.uuid4().hex)
    run.step(f"writing {out}")
    rows.write.partitionBy(*partitions).parquet(str(mine))
    run.step(f"putting {name or out} in place")
    if name:
        folder.move(mine, name)
    else:
        folder.replace(mine)
    folder.files.delete(folder.unfinished, True)
