"""What a version of Spark lacks."""

from __future__ import annotations

import re

import pyspark

from pyspark_seb.errors import BadOptionError


def require(what: str, *version: int) -> None:
    """Raises BadOptionError if this Spark is older."""
    found = tuple(map(int, re.findall(r"\d+", pyspark.__version__)[:2]))
    if found < version:
        needed = ".".join(map(str, version))
        raise BadOptionError(f"{what} Spark {needed} or newer, and this is {pyspark.__version__}")
