"""A sentence about what did not hold, and which property it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROPERTIES: Final = {
    "P1": "every acknowledged record is in the log, once, its bytes unchanged, and was in the "
    "bucket before it was acknowledged",
    "P2": "no offset is used twice, not by another appliance or after a restart either",
    "P3": "no offset is missing",
    "P4": "what was sent after an acknowledgement lies behind it; so does each producer's next",
    "P5": "a record lies at the offset that its acknowledgement told",
    "P6": "a read that begins after an acknowledgement knows of it",
    "P7": "a reader goes forward only, and what was served stays",
    "P8": "nothing is served that nobody sent, or that the bucket does not have yet",
    "P9": "what was refused never appears; what is unknown appears whole and once, or not at all",
    "P10": "what a producer repeats has one offset and one copy",
    "P11": "log ends and committed offsets never go back, but by a reset",
    "P12": "who was taken over acknowledges nothing that is sent once the next one has",
    "P13": "30 s after the last fault every producer and every consumer has made progress",
    "P14": "what is rebuilt from the bucket is what was there",
    "P15": "compaction keeps the newest record of each record key, and brings none back",
    "P16": "no revocation of an API key that was answered is undone",
}


@dataclass(frozen=True, slots=True)
class Violation:
    law: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.law}: {self.sentence}"


def said(law: str, sentence: str) -> Violation:
    """One violation of a property that is there."""
    assert law in PROPERTIES, law
    return Violation(law, sentence)
