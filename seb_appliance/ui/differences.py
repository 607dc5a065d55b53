"""What changed from one version of a value to the next, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.ui.texts import lines_of


@dataclass(frozen=True, slots=True)
class Line:
    """`kind`: same, gone or new; gap where lines that are the same are left out."""

    kind: str
    text: str


def differences(before: bytes | None, after: bytes | None) -> list[Line] | None:
    """Of pretty JSON, else of text; none for versions that are the same. None: they are too large
    to be compared. May take some ten milliseconds."""
    if max(len(before or b""), len(after or b"")) > limits.VALUE_SHOWN_BYTES_MAX:
        return None
    old, new = lines_of(before), lines_of(after)
    if max(len(old), len(new)) > limits.COMPARED_LINES_MAX:
        return None
    return [
        _line(text)
        for text in list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the head
    ]


def _line(text: str) -> Line:
    if text.startswith("@@"):
        return Line("gap", "")
    kinds = {"-": "gone", "+": "new", " ": "same"}
    return Line(kinds[text[0]], text[1:])


def neighbours(
    values: Sequence[bytes | None],
) -> list[list[Line] | None]:
    """For each of some versions, newest first, how it differs from the next older one; the oldest
    has nothing to be compared with."""
    return [differences(values[i + 1], values[i]) for i in range(len(values) - 1)]
