"""What clients were told and shown, noted as it happens. `verdict.py` holds it against the log.

Values are unique, so that a record says which call sent it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["acked", "refused", "unknown"]
Row = tuple[int, bytes | None, bytes | None]
"""Offset, record key, value."""


@dataclass(slots=True)
class Call:
    """An append to one topic. `epoch`: of the process that acknowledged it; `topic_id`, `offset`:
    what it said, -1 if it said no offset. `together`: calls with the same number were one
    transaction."""

    topic: str
    marks: tuple[bytes, ...]
    sent_s: float
    outcome: Outcome = "unknown"
    answered_s: float = 0.0
    epoch: int = 0
    topic_id: int = 0
    offset: int = 0
    together: int = 0


@dataclass(slots=True)
class Commit:
    group: str
    topic_id: int
    offset: int
    outcome: Outcome = "unknown"


@dataclass
class History:
    """`tokens`: of API keys that are there for sure; `revoked`: of those that are gone for sure;
    `doomed`: topics of which somebody asked for the deletion."""

    calls: list[Call] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    trimmed: dict[int, int] = field(default_factory=dict)
    doomed: set[int] = field(default_factory=set)
    served: dict[tuple[int, int], tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    acked_ends: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)

    def acked(self, call: Call, process: str) -> None:
        """Also called again for a call that was repeated, which must have the same answer."""
        self.acked_ends.setdefault(call.topic_id, []).append(
            (call.epoch, call.offset + len(call.marks), process)
        )

    def end_known_to(self, topic_id: int, epoch: int, process: str) -> int:
        """What a read that is sent now to this writer must at least see."""
        return max(
            (
                end
                for of, end, who in self.acked_ends.get(topic_id, ())
                if of < epoch or who == process
            ),
            default=0,
        )

    def served_rows(self, topic_id: int, rows: Sequence[Row], who: str) -> None:
        """P2, P7: what an offset held once, it holds for ever, whoever serves it."""
        for offset, key, value in rows:
            before = self.served.setdefault((topic_id, offset), (key, value))
            if before != (key, value):
                self.violations.append(
                    f"P7 {who} served {value!r} at offset {offset} of topic {topic_id}, where "
                    f"{before[1]!r} was served before"
                )
