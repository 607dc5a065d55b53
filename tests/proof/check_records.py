"""P1 to P10: what must hold between what callers were told, what was served, and the final logs.

Linear but for sorting by time: the appliance gives the offsets, so they are the witness, and
nothing has to be searched. A topic that is compacted is left to P15.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.proof.history import NEVER, History, Outcome, Read, Record, Write, offsets
from tests.proof.violations import Violation, said


@dataclass
class Told:
    """One write, however often it was sent: an idempotent producer repeats it."""

    calls: list[Write] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        outcomes = {call.outcome for call in self.calls}
        if "ok" in outcomes:
            return "ok"
        return "refused" if outcomes == {"refused"} else "unknown"

    @property
    def repeated(self) -> bool:
        return self.calls[0].sequence is not None

    @property
    def sent_s(self) -> float:
        return min(call.sent_s for call in self.calls)

    @property
    def answered_s(self) -> float:
        return min((c.answered_s for c in self.calls if c.outcome == "ok"), default=NEVER)

    def offsets_told(self, part: int) -> set[int]:
        """A repetition that lies further back is acknowledged without one."""
        found = {call.parts[part].offset for call in self.calls if call.outcome == "ok"}
        return found - {-1}


class Evidence:
    """A history, looked up by value: every value was sent by one write only."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.told: list[Told] = []
        self.sent: dict[tuple[str, bytes], Told] = {}
        self.places: dict[tuple[str, bytes], list[int]] = defaultdict(list)
        self.rows: dict[str, dict[int, Record]] = {}
        self.claimed_s = {over.old_port: over.claimed_s for over in history.take_overs}
        by_sequence: dict[tuple[str, int, int], Told] = {}
        for call in history.writes:
            told = Told() if call.sequence is None else by_sequence.get(call.sequence) or Told()
            if call.sequence is not None:
                by_sequence[call.sequence] = told
            if not told.calls:
                self.told.append(told)
            told.calls.append(call)
            for part in call.parts:
                for record in part.records:
                    if record.value is not None:
                        self.sent[part.topic, record.value] = told
        for topic, log in history.logs.items():
            self.rows[topic] = dict(log)
            for offset, record in log:
                if record.value is not None:
                    self.places[topic, record.value].append(offset)

    def whole(self, topic: str) -> bool:
        """Whether every record must be there."""
        return topic in self.history.logs and topic not in self.history.compacted

    def current(self, read: Read) -> bool:
        """Whether the answer came from who was in force: one that was taken over may serve what
        it has until it looks (docs/GUARANTEES.md)."""
        return read.outcome == "ok" and read.answered_s < self.claimed_s.get(read.port, NEVER)


def check_records(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of P1 to P10."""
    history = evidence.history
    for told in evidence.told:
        yield from _as_told(evidence, told)
    for topic, log in history.logs.items():
        yield from _each_offset_once_without_gaps(evidence, topic)
        yield from _only_what_was_sent(evidence, topic, log)
        if evidence.whole(topic):
            yield from _real_time_order(evidence, topic, log)
            yield from _order_of_producers(evidence, topic, log)
    yield from _served(evidence)
    yield from _acknowledged_is_seen(evidence)


def _as_told(evidence: Evidence, told: Told) -> Iterator[Violation]:
    """P1, P5, P9, P10."""
    outcome, there, missing = told.outcome, 0, 0
    for i, part in enumerate(told.calls[0].parts):
        if not evidence.whole(part.topic):
            continue
        places = [evidence.places.get((part.topic, r.value or b""), []) for r in part.records]
        there += sum(map(bool, places))
        missing += sum(not found for found in places)
        for record, found in zip(part.records, places, strict=True):
            if len(found) > 1:
                law = "P10" if told.repeated else "P1" if outcome == "ok" else "P9"
                yield said(law, f"{record} ({outcome}) is there more than once: at {found}")
            elif outcome == "ok" and not found:
                yield said("P1", f"{record} was acknowledged in {part.topic}, and is lost")
            elif outcome == "refused" and found:
                yield said("P9", f"{record} was refused, and is at {found}")
        yield from _offset_told(evidence, told, i, places)
    if outcome == "unknown" and there and missing:
        yield said("P9", f"of {told.calls[0].parts[0].records[0]} and others of its call "
                         f"{there} are there, and {missing} are not")  # fmt: skip


def _offset_told(
    evidence: Evidence, told: Told, part_number: int, places: list[list[int]]
) -> Iterator[Violation]:
    part, answers = told.calls[0].parts[part_number], told.offsets_told(part_number)
    if len(answers) > 1:
        yield said("P10", f"{part.records[0]} was acknowledged at {sorted(answers)}")
        return
    for first in answers:
        for told_offset, found in zip(offsets(first, len(places)), places, strict=True):
            if len(found) == 1 and found[0] != told_offset:
                yield said("P5", f"{part.records[0]} was acknowledged at {told_offset}, "
                                 f"and is at {found[0]}")  # fmt: skip
            durable_s = evidence.history.durable_s.get((part.topic, told_offset), -NEVER)
            if told.answered_s < durable_s:
                yield said("P1", f"offset {told_offset} of {part.topic} was acknowledged "
                                 "before the bucket had it")  # fmt: skip


def _each_offset_once_without_gaps(evidence: Evidence, topic: str) -> Iterator[Violation]:
    """P2 and P3, in the final log."""
    before = -1
    for offset, record in evidence.history.logs[topic]:
        if offset <= before:
            yield said("P2", f"offset {offset} of {topic} comes after {before}: {record}")
        elif offset > before + 1 and evidence.whole(topic):
            yield said("P3", f"offsets {before + 1} to {offset - 1} of {topic} are missing")
        before = max(before, offset)


def _only_what_was_sent(
    evidence: Evidence, topic: str, log: list[tuple[int, Record]] | tuple[tuple[int, Record], ...]
) -> Iterator[Violation]:
    """P8."""
    for offset, record in log:
        if record.value is not None and (topic, record.value) not in evidence.sent:
            yield said("P8", f"nobody sent {record}, which {topic} has at {offset}")


def _real_time_order(
    evidence: Evidence, topic: str, log: list[tuple[int, Record]]
) -> Iterator[Violation]:
    """P4: what was sent after an acknowledgement lies behind what was acknowledged. This holds the
    order of a producer as well if it sends when its last call was answered."""
    earliest_answer_s = NEVER
    for offset, record in sorted(log, key=lambda row: row[0], reverse=True):
        told = evidence.sent.get((topic, record.value or b""))
        if told is None or evidence.places[topic, record.value or b""][0] != offset:
            continue  # of a record that is there twice, the second is another property's affair
        if told.sent_s > earliest_answer_s:
            yield said("P4", f"{record} at {offset} of {topic} was sent after one behind it "
                             "was acknowledged")  # fmt: skip
        earliest_answer_s = min(earliest_answer_s, told.answered_s)


def _order_of_producers(
    evidence: Evidence, topic: str, log: list[tuple[int, Record]]
) -> Iterator[Violation]:
    """P4, of idempotent producers: they may have several requests in flight."""
    furthest: dict[tuple[str, int], int] = {}
    for offset, record in sorted(log, key=lambda row: row[0]):
        told = evidence.sent.get((topic, record.value or b""))
        if told is None or evidence.places[topic, record.value or b""][0] != offset:
            continue
        if (sequence := told.calls[0].sequence) is None:
            continue
        producer, epoch, seq = sequence
        if seq < furthest.get((producer, epoch), 0):
            yield said("P4", f"{record} at {offset} of {topic} lies behind later ones of "
                             f"{producer}")  # fmt: skip
        furthest[producer, epoch] = max(seq, furthest.get((producer, epoch), 0))


def _served(evidence: Evidence) -> Iterator[Violation]:
    """P2, P3, P7 and P8, of every answer to a reader."""
    furthest: dict[tuple[str, str, int], int] = {}
    for read in evidence.history.reads:
        if read.outcome != "ok":
            continue
        yield from _only_what_was_sent(evidence, read.topic, read.records)
        whole, rows = evidence.whole(read.topic), evidence.rows.get(read.topic, {})
        expected = read.offset
        journey = (read.worker, read.topic, read.journey)
        for offset, record in read.records:
            if whole and offset != expected:
                yield said("P3", f"{read.worker} asked {read.topic} from {read.offset} on, and "
                                 f"got {offset} where {expected} should be")  # fmt: skip
            expected = offset + 1
            if offset <= furthest.get(journey, -1):
                yield said("P7", f"{read.worker} was served {offset} of {read.topic} again")
            furthest[journey] = offset
            if whole and offset not in rows:
                yield said("P7", f"{record} was served at {offset} of {read.topic}, "
                                 "which is not there any more")  # fmt: skip
            elif offset in rows and rows[offset].value != record.value:
                yield said("P2", f"{read.topic} had {record} at {offset}, and has {rows[offset]}")
            if read.answered_s < evidence.history.durable_s.get((read.topic, offset), -NEVER):
                yield said("P8", f"{record} at {offset} of {read.topic} was served before "
                                 "the bucket had it")  # fmt: skip


def _acknowledged_is_seen(evidence: Evidence) -> Iterator[Violation]:
    """P6: a read that began after an acknowledgement knows of it."""
    acks = sorted(
        (call.answered_s, part.topic, part.offset + len(part.records))
        for call in evidence.history.writes
        if call.outcome == "ok"
        for part in call.parts
        if part.offset >= 0
    )
    ends: dict[str, int] = defaultdict(int)
    at = 0
    for read in sorted(filter(evidence.current, evidence.history.reads), key=lambda r: r.sent_s):
        while at < len(acks) and acks[at][0] < read.sent_s:
            _, topic, end = acks[at]
            ends[topic] = max(ends[topic], end)
            at += 1
        if read.log_end_offset < ends[read.topic]:
            yield said("P6", f"{read.worker} was told that {read.topic} ends at "
                             f"{read.log_end_offset}, when {ends[read.topic]} offsets "
                             "were acknowledged")  # fmt: skip
