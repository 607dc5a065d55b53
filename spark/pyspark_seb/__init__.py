"""Spark reads and writes the topics of a Seb Appliance: `format("seb")`.

Spark looks for packages named `pyspark_…` with a `DefaultSource`, so nothing has to be registered.
"""

from typing import Any

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

try:
    from pyspark_seb.frames import batch_offsets, commit, narrowed, offsets_of
    from pyspark_seb.source import DefaultSource
except ImportError:
    from pyspark_seb import missing
    from pyspark_seb.missing import DefaultSource  # type: ignore[assignment]

    def __getattr__(name: str) -> Any:
        if name in __all__:
            raise ImportError(missing.sentence())
        raise AttributeError(name)


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
