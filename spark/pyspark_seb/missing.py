"""What stands in for the data source where a package that it needs cannot be imported. Spark hides
what is raised while it looks for sources, and says only that there is none of this name."""

from __future__ import annotations

import importlib
import socket
import sys
from collections.abc import MutableMapping

from pyspark.sql.datasource import DataSource

from pyspark_seb.errors import SebSparkError


class DefaultSource(DataSource):
    """Raises SebSparkError, which says what is missing, when it is used."""

    def __init__(self, options: MutableMapping[str, str]) -> None:  # noqa: ARG002 - Spark's
        raise SebSparkError(sentence())

    @classmethod
    def name(cls) -> str:
        return "seb"


def sentence() -> str:
    try:
        importlib.import_module("pyspark_seb.source")
    except ImportError as error:
        why = str(error)
    else:
        why = "it is there now: restart Spark"
    return (
        f"pyspark_seb cannot be used by {sys.executable} on {socket.gethostname()}: {why}. Install "
        "what pyspark_seb needs into this Python, as 'pip install pyspark-seb' does."
    )
