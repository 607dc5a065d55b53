"""What an exception of a job means: a sentence for its user, and whether another try may help."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pyspark.errors import PySparkException

from pyspark_seb.client import RETRIED
from pyspark_seb.errors import ApplianceError, ConflictError, SebSparkError

# What a task raised is only in the text of the exception that Spark raises here.
_OF_A_TASK: Final = re.compile(r"pyspark_seb\.errors\.(\w+): (.+)")
_LINES: Final = 3


class Failure(NamedTuple):
    """`kind`: the name of the exception, or the appliance's error code. `may_pass`: the appliance
    was unavailable, so another try may help."""

    kind: str
    sentence: str
    may_pass: bool = False
    is_conflict: bool = False


def failure_of(error: Exception) -> Failure:
    if isinstance(error, ApplianceError):
        may_pass = not error.status or error.status in RETRIED
        return Failure(error.code, str(error), may_pass, error.code == "offset_conflict")
    if isinstance(error, SebSparkError):
        kind, is_conflict = type(error).__name__, isinstance(error, ConflictError)
        return Failure(kind, str(error), is_conflict=is_conflict)
    text = str(error)
    if found := _OF_A_TASK.findall(text):
        kind, sentence = found[-1]
        return Failure(kind, sentence, kind == ApplianceError.__name__ and _may_pass(sentence))
    if isinstance(error, PySparkException) and (condition := error.getCondition()):
        return Failure(condition, _first_lines(text))
    return Failure(type(error).__name__, _first_lines(text))


def _may_pass(sentence: str) -> bool:
    """Of an ApplianceError's text."""
    status = re.search(r" at \S+: (\d{3}) ", sentence)
    return int(status[1]) in RETRIED if status else "no answer" in sentence


def _first_lines(text: str) -> str:
    """Without the stack of the JVM, which says nothing to a user."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("at ", "JVM stacktrace", "=="))]
    return " ".join(told[:_LINES])
