"""A history as transactions that send values to logs and poll values from them, in the form that
Jepsen's workload for Kafka has.

A topic is a log. So is what a transactional worker by Kafka consumed: its transactions send the
offsets of their input, and what is committed in the end was polled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.proof.check_records import Evidence, Told
from tests.proof.history import NEVER, Outcome, Record

Value = bytes | int
Rows = list[tuple[int, Value]]


@dataclass(eq=False)
class Transaction:
    """`sends`: the values by log, in order; `told`: at which offsets they are, each as often as an
    answer said so. `polls`: offsets and values by log, and `ends`: where the log ended. `process`:
    whose transactions come one after the other; it ends with an outcome that is unknown, unless
    the producer is idempotent. `is_exact`: `ends` and the times say what was there when."""

    process: tuple[str, int]
    call_s: float
    back_s: float = NEVER
    outcome: Outcome = "ok"
    sends: dict[str, list[Value]] = field(default_factory=dict)
    told: dict[str, Rows] = field(default_factory=dict)
    polls: dict[str, Rows] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    is_exact: bool = True

    def __str__(self) -> str:
        does = [f"sends {len(values)} to {log}" for log, values in self.sends.items()]
        does += [
            f"polls {len(rows)} of {log}, to {self.ends.get(log)}"
            for log, rows in self.polls.items()
        ]
        return f"{self.process[0]} at {self.call_s:.6f} s {', '.join(does)}"


def transactions_of(evidence: Evidence) -> list[Transaction]:
    """In the order of their calls. The last one polls all logs to their ends."""
    found = [*_writes(evidence), *_reads(evidence), *_tables(evidence)]
    found.sort(key=lambda one: one.call_s)
    last = Transaction(("the end", 0), NEVER)
    for topic, log in evidence.history.logs.items():
        last.polls[topic] = _rows(log)
        last.ends[topic] = log[-1][0] + 1 if log else 0
    for worker in evidence.history.transforms:
        looks = [c for c in evidence.history.commits if c.group == worker and c.kind == "look"]
        end = max((look.offset for look in looks if look.outcome == "ok"), default=0)
        last.polls[_input_of(worker)] = [(offset, offset) for offset in range(end)]
        last.ends[_input_of(worker)] = end
    return [*found, last]


def _input_of(worker: str) -> str:
    return f"input of {worker}"


def _rows(records: list[tuple[int, Record]] | tuple[tuple[int, Record], ...]) -> Rows:
    """Without tombstones, which are no values of their own."""
    return [(offset, record.value) for offset, record in records if record.value is not None]


def _writes(evidence: Evidence) -> Iterator[Transaction]:
    broken: dict[str, int] = {}
    # Requests in flight may have been written down at the same moment.
    ordered = sorted(evidence.told, key=lambda told: (told.sent_s, told.calls[0].sequence or ()))
    for told in ordered:
        worker, sequence = told.calls[0].worker, told.calls[0].sequence
        process = (worker, broken.get(worker, 0) if sequence is None else sequence[1])
        found = Transaction(process, told.sent_s, told.answered_s, told.outcome)
        if told.outcome == "unknown" and sequence is None:
            broken[worker] = process[1] + 1
        for i, part in enumerate(told.calls[0].parts):
            values = [record.value for record in part.records if record.value is not None]
            found.sends.setdefault(part.topic, []).extend(values)
            if len(values) == len(part.records):
                for offset in told.offsets_told(i):
                    rows = found.told.setdefault(part.topic, [])
                    rows += [(offset + n, value) for n, value in enumerate(values)]
        if worker in evidence.history.transforms:
            found.sends[_input_of(worker)] = sorted(_sources(told))
        yield found


def _sources(told: Told) -> Iterator[int]:
    for part in told.calls[0].parts:
        for record in part.records:
            value = json.loads(record.value or b"{}")
            if "source" in value:
                yield value["source"]


def _reads(evidence: Evidence) -> Iterator[Transaction]:
    for read in evidence.history.reads:
        if read.outcome == "ok":
            process = (read.worker, read.journey)
            found = Transaction(process, read.sent_s, read.answered_s)
            found.polls[read.topic] = _rows(read.records)
            seen = max((offset + 1 for offset, _ in read.records), default=0)
            found.ends[read.topic] = max(read.log_end_offset, seen)
            found.is_exact = evidence.current(read)
            yield found


def _tables(evidence: Evidence) -> Iterator[Transaction]:
    """Each look at a table is a process of its own: the next one begins anew. The table of a fork
    ends where that was made, within a transaction if need be."""
    for number, seen in enumerate(evidence.history.tables):
        if not seen.failure:
            found = Transaction((f"table of {seen.topic}", number), NEVER, is_exact=seen.is_last)
            found.polls[seen.topic] = _rows(seen.rows)
            if seen.is_last:
                found.ends[seen.topic] = seen.next_offset
            yield found
