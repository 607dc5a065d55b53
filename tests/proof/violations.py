"""A sentence about what did not hold, and which property it breaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROPERTIES: Final = {
    "P1": "every acknowledged record is in the log, once, its bytes unchanged, and was in the "
    "bucket before it was acknowledged",
    "P2": "no offset is used twice, not by another appliance or after a restart either",
    "P3": "no offset is missing",
    "P4": "a record sent after an acknowledgement has a larger offset, as has each producer's next",
    "P5": "a record is at the offset of its acknowledgement",
    "P6": "a read that begins after an acknowledgement includes it",
    "P7": "a reader only moves forward, and served records stay",
    "P8": "nothing is served that was not sent, or that the bucket does not have yet",
    "P9": "refused records never appear; unknown ones appear whole and once, or not at all",
    "P10": "a producer's repeated request has one offset and one copy",
    "P11": "log ends and committed offsets never go back, except by a reset",
    "P12": "a writer that was taken over acknowledges nothing new that is sent after the next "
    "one's first acknowledgement",
    "P13": "30 s after the last fault every producer and every consumer has made progress",
    "P14": "the state rebuilt from the bucket equals the state before",
    "P15": "compaction keeps the newest record of each record key, and no deleted one returns",
    "P16": "no acknowledged revocation of an API key is undone",
    "P17": "a lake table has the records of its topic below its next offset, each once",
    "P18": "a queue hands a record out until it is settled, not after, to one worker at a time, in "
    "the order of its key, and loses none",
    "P20": "a transactional worker by Kafka wrote each record of its input below its committed "
    "offset once, in order, and no other",
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
