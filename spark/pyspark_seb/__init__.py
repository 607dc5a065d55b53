"""Spark reads and writes the topics of a Seb Appliance: `format("seb")`.

Spark looks for packages named `pyspark_…` with a `DefaultSource`, so nothing has to be registered.
"""

import gc
import sys
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

if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "") == "pyspark.daemon":
    # A worker of Spark collects garbage after each task, which took 40 ms for modules alone: as
    # long as decoding 300,000 records. What was imported up to here stays anyway.
    gc.freeze()
