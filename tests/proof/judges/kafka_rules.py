"""The rules of Jepsen's workload for Kafka and those of Elle for lists, ported: what a history of
sends and polls may not show.

They need no JVM; `jepsen.py` asks the originals where they are installed. The names of anomalies
are theirs. Unlike Kafka, the appliance stores a transaction in one piece: so sends that leave a
gap, and cycles of writes, are anomalies here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.proof.judges.transactions import Transaction, Value

At = tuple[str, Value]  # a log and a value that was sent to it


@dataclass(frozen=True)
class Anomaly:
    name: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sentence}"


class Analysis:
    """`offsets`: of each log in order, and `values` at each: what a transaction that took place
    was told, and what was polled. `index` of a value: its place in that order. `writer` of a value:
    who sent it, and took place, as far as is known. Logs in `compacted` have values removed."""

    def __init__(self, transactions: list[Transaction], compacted: set[str]) -> None:
        self.transactions, self.compacted = transactions, compacted
        self.polled = {
            (log, v) for t in transactions for log, rows in t.polls.items() for _, v in rows
        }
        self.writers: dict[At, list[Transaction]] = defaultdict(list)
        for one in transactions:
            for log, sent in one.sends.items():
                for value in sent:
                    self.writers[log, value].append(one)
        self.writer = {at: writers[0] for at in self.writers if (writers := self._committed(at))}
        logs: dict[str, dict[int, list[Value]]] = defaultdict(lambda: defaultdict(list))
        for one in transactions:
            for rows_by_log in (one.told, one.polls):
                for log, rows in rows_by_log.items():
                    for offset, value in rows:
                        if value not in logs[log][offset]:
                            logs[log][offset].append(value)
        self.offsets = {log: sorted(values) for log, values in logs.items()}
        self.values = {log: [values[o] for o in self.offsets[log]] for log, values in logs.items()}
        self.index: dict[At, int] = {}
        for log, values_of_log in self.values.items():
            for i, values in enumerate(values_of_log):
                for value in values:
                    self.index.setdefault((log, value), i)

    def took_place(self, one: Transaction) -> bool:
        """It was acknowledged, or a value that nobody else sent was polled."""
        return one.outcome == "ok" or (one.outcome == "unknown" and any(
            (log, value) in self.polled and self._possible(log, value) == [one]
            for log, values in one.sends.items() for value in values))  # fmt: skip

    def _possible(self, log: str, value: Value) -> list[Transaction]:
        return [one for one in self.writers[log, value] if one.outcome != "refused"]

    def _committed(self, at: At) -> list[Transaction]:
        return [one for one in self._possible(*at) if self.took_place(one)]

    def length(self, log: str, end: int) -> int:
        """How many values a log has that ends there."""
        return bisect_left(self.offsets.get(log, []), end)

    def step(self, log: str, before: Value, after: Value) -> int:
        """How many places `after` is behind `before`; 1, if that is not known."""
        places = self.index.get((log, before)), self.index.get((log, after))
        return 1 if None in places else places[1] - places[0]  # type: ignore[operator]


def anomalies(found: Analysis) -> Iterator[Anomaly]:
    """All but the cycles."""
    yield from _versions(found)
    yield from _writers(found)
    yield from _lost_writes(found)
    yield from _within(found)
    yield from _between(found)


def _versions(found: Analysis) -> Iterator[Anomaly]:
    """All who name an offset agree on its value, and a value has one offset."""
    for log, values_of_log in found.values.items():
        places: dict[Value, list[int]] = defaultdict(list)
        for offset, values in zip(found.offsets[log], values_of_log, strict=True):
            if len(values) > 1:
                yield Anomaly("inconsistent-offsets", f"{log} has {values} at {offset}")
            for value in values:
                places[value].append(offset)
        for value, offsets in places.items():
            if len(offsets) > 1:
                yield Anomaly("duplicate", f"{value!r} of {log} is at {offsets}")


def _writers(found: Analysis) -> Iterator[Anomaly]:
    """What is polled was sent, by one transaction that took place."""
    for log, value in found.polled:
        writers = found.writers.get((log, value), [])
        if not writers:
            yield Anomaly("no-writer", f"nobody sent {value!r}, which was polled from {log}")
        elif all(one.outcome == "refused" for one in writers):
            yield Anomaly("G1a", f"{value!r} of {log} was polled, and {writers[0]} was aborted")
    for (log, value), writers in found.writers.items():
        if len(writers) > 1 and sum(map(found.took_place, writers)) > 1:
            yield Anomaly(
                "duplicate", f"{value!r} was sent to {log} by {len(writers)} transactions"
            )


def _lost_writes(found: Analysis) -> Iterator[Anomaly]:
    """The last transaction polls whole logs: all values of those that took place were seen."""
    for (log, value), writer in found.writer.items():
        if log not in found.compacted and (log, value) not in found.polled:
            yield Anomaly("lost-write", f"nobody polled {value!r} of {log}: {writer}")


def _within(found: Analysis) -> Iterator[Anomaly]:
    """A transaction sends and polls values that lie one behind the other."""
    for one in found.transactions:
        for log, sent in one.sends.items():
            if found.took_place(one):
                yield from _steps(found, "int-", "send", log, sent, one)
        for log, rows in one.polls.items():
            yield from _steps(found, "int-", "poll", log, [value for _, value in rows], one)


def _steps(
    found: Analysis, where: str, what: str, log: str, values: list[Value], one: Transaction
) -> Iterator[Anomaly]:
    for before, after in pairwise(values):
        step = found.step(log, before, after)
        if step < 1:
            yield Anomaly(f"{where}nonmonotonic-{what}", f"{after!r} after {before!r}: {one}")
        elif step > 1 and log not in found.compacted:
            yield Anomaly(f"{where}{what}-skip", f"{after!r} follows {before!r} by {step}: {one}")


def _between(found: Analysis) -> Iterator[Anomaly]:
    """A process goes on polling where it was, and what it sends later lies behind."""
    last_poll: dict[tuple[tuple[str, int], str], Value] = {}
    last_send: dict[tuple[tuple[str, int], str], Value] = {}
    for one in found.transactions:
        for log, rows in one.polls.items():
            if not rows:
                continue
            if (before := last_poll.get((one.process, log))) is not None:
                yield from _steps(found, "", "poll", log, [before, rows[0][1]], one)
            last_poll[one.process, log] = rows[-1][1]
        for log, sent in one.sends.items() if found.took_place(one) else ():
            before = last_send.get((one.process, log))
            if sent and before is not None and found.step(log, before, sent[0]) < 1:
                yield Anomaly("nonmonotonic-send", f"{sent[0]!r} before {before!r}: {one}")
            if sent:
                last_send[one.process, log] = sent[-1]
