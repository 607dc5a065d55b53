"""Spark reads and writes the topics of a Seb Appliance: `format("seb")`.

Spark looks for packages named `pyspark_…` with a `DefaultSource`, so nothing has to be registered.
"""

from pyspark_seb.errors import (
    ApplianceError,
    BadOptionError,
    BatchTooOldError,
    CompactedError,
    LakeError,
    RecordsGoneError,
    RowsChangedError,
    SebSparkError,
    TopicChangedError,
)
from pyspark_seb.frames import batch_offsets, commit, narrowed, offsets_of
from pyspark_seb.source import DefaultSource

__all__ = [
    "ApplianceError",
    "BadOptionError",
    "BatchTooOldError",
    "CompactedError",
    "DefaultSource",
    "LakeError",
    "RecordsGoneError",
    "RowsChangedError",
    "SebSparkError",
    "TopicChangedError",
    "batch_offsets",
    "commit",
    "narrowed",
    "offsets_of",
]
