"""The checker finds each kind of violation, and only that, in a history that is good without it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.proof.checker import require, violations
from tests.proof.history import (
    Commit,
    History,
    KeyCall,
    Part,
    Read,
    Rebuilt,
    Record,
    TableSeen,
    TakeOver,
    Write,
)
from tests.proof.kafka_histories import (
    committed_without_a_record,
    doubled_by_a_transaction,
    out_of_order_by_a_transaction,
    sent_in_flight_and_exchanged,
    stored_without_its_offset,
    transform,
)
from tests.proof.queue_histories import (
    came_again_behind_the_next_of_its_key,
    dead_letter_of_what_was_acknowledged,
    dead_letter_twice,
    look_at_a_queue,
    never_taken,
    out_of_the_order_of_its_key,
    settled_twice,
    taken_after_it_was_settled,
    taken_by_two,
    told_too_early_that_a_lease_has_ended,
    without_its_dead_letter,
)
from tests.proof.violations import PROPERTIES

FIRST, SECOND = 1001, 1002


class Ideal:
    """A broker without faults, one call after the other, and the history of its callers."""

    def __init__(self) -> None:
        self.history = History(logs={"t": [], "u": [], "keyed": []}, compacted={"keyed"})
        self.port = FIRST
        self._now_s = 0.0

    def tick(self) -> float:
        self._now_s += 1.0
        return self._now_s

    def write(
        self,
        *parts: tuple[str, str, bytes | None],
        outcome: str = "ok",
        landed: bool = True,
        sequence: tuple[str, int, int] | None = None,
    ) -> Write:
        """Parts are (topic, record key, value)."""
        call = Write("producer", self.port, self.tick(), sequence=sequence)
        made = []
        for topic, key, value in parts:
            log, record = self.history.logs[topic], Record(value, key)
            made.append(Part(topic, (record,), len(log) if outcome == "ok" else -1))
            if landed:
                self.history.durable_s[topic, len(log)] = self.tick()
                log.append((len(log), record))
        call.parts, call.outcome = tuple(made), outcome  # type: ignore[assignment]
        if outcome != "unknown":
            call.answered_s = self.tick()
        self.history.writes.append(call)
        return call

    def read(self, topic: str, offset: int, reader: str = "consumer") -> Read:
        log = self.history.logs[topic]
        found = Read(reader, self.port, self.tick(), topic=topic, offset=offset)
        found.records, found.outcome = tuple(log[offset:]), "ok"
        found.next_offset = found.log_end_offset = len(log)
        found.answered_s = self.tick()
        self.history.reads.append(found)
        return found

    def commit(self, offset: int, kind: str = "commit") -> Commit:
        sent_s = self.tick()
        call = Commit("committer", self.port, sent_s, self.tick(), "ok", "200", "g", "t", offset)
        call.kind = kind  # type: ignore[assignment]
        self.history.commits.append(call)
        return call

    def use(self, kind: str, outcome: str) -> KeyCall:
        call = KeyCall("security", self.port, self.tick(), self.tick(), outcome)  # type: ignore[arg-type]
        call.api_key_id, call.kind = "k1", kind  # type: ignore[assignment]
        self.history.key_calls.append(call)
        return call


def good() -> History:
    """All kinds of calls, by two appliances, the second of which takes over."""
    ideal = Ideal()
    for n in range(4):
        ideal.write(("t", "", b"a%d" % n))
    ideal.write(("t", "", b"lost answer"), outcome="unknown")
    ideal.write(("t", "", b"lost request"), outcome="unknown", landed=False)
    ideal.write(("t", "", b"refused"), outcome="refused", landed=False)
    ideal.read("t", 0)
    for key, value in (("x", b"old"), ("y", b"deleted"), ("x", b"new"), ("y", None)):
        ideal.write(("keyed", key, value))
    del ideal.history.logs["keyed"][:2]  # compacted
    ideal.commit(3)
    ideal.commit(3, "look")
    ideal.commit(1, "reset")
    ideal.commit(1, "look")
    ideal.commit(2)
    ideal.commit(2, "look")
    ideal.use("use", "ok")
    ideal.use("revoke", "ok")
    ideal.use("use", "refused")
    claimed_s = ideal.tick()
    ideal.port = SECOND
    again = ideal.write(("t", "", b"idempotent"), outcome="unknown", sequence=("p", 0, 0))
    known = replace(again, sent_s=ideal.tick(), answered_s=ideal.tick(), outcome="ok")
    known.parts = (Part("t", again.parts[0].records, 5),)
    ideal.history.writes.append(known)
    ideal.history.take_overs.append(TakeOver(FIRST, claimed_s, ideal.tick()))
    ideal.write(("t", "", b"in both"), ("u", "", b"and here"))
    ideal.write(("t", "", b"torn"), ("u", "", b"not torn"), outcome="unknown")
    ideal.read("t", 5)
    ideal.read("u", 0)
    ideal.history.rebuilt.append(Rebuilt("state", "abc", "abc"))
    ideal.history.calm_s = ideal.tick()
    ideal.write(("u", "", b"progress"))
    ideal.read("u", 2)
    ideal.commit(3)
    ideal.use("use", "refused")
    ideal.use("use", "ok").api_key_id = "another"
    look_at_tables(ideal.history)
    # A file of a compacted topic that is not written anew yet, and has a hole.
    table_of(ideal.history, "keyed").rows.insert(0, (1, Record(b"deleted", "y")))
    return ideal.history


def look_at_tables(history: History) -> None:
    """Tables that follow the logs, whatever these hold: before the last record, and after it."""
    history.tables.clear()
    for topic, log in history.logs.items():
        for rows in (log[:-1], list(log)):
            end = rows[-1][0] + 1 if rows else 0
            history.tables.append(TableSeen(topic, "reader", end, rows, is_last=rows == log))


def table_of(history: History, topic: str) -> TableSeen:
    return next(seen for seen in history.tables if seen.topic == topic)


def write_of(history: History, value: bytes) -> Write:
    """The last call that sent it."""
    return next(w for w in reversed(history.writes) if w.parts[0].records[0].value == value)


def moved(history: History, topic: str, offset: int, by: int) -> None:
    """Everybody agrees that the records from `offset` on are `by` further."""
    history.logs[topic] = [(o + by * (o >= offset), r) for o, r in history.logs[topic]]
    for write in history.writes:
        for part in write.parts:
            if part.topic == topic and part.offset >= offset:
                part.offset += by
    for read in history.reads:
        if read.topic == topic and read.next_offset > offset:
            read.records = tuple((o + by * (o >= offset), r) for o, r in read.records)
            read.offset += by * (read.offset >= offset)
            read.next_offset += by
            read.log_end_offset += by
    for (name, at), durable_s in sorted(history.durable_s.items(), reverse=True):
        if name == topic and at >= offset:
            history.durable_s[topic, at + by] = durable_s


def lost(history: History) -> None:
    """P1: acknowledged last, read by nobody, and gone."""
    write = write_of(history, b"in both")
    history.logs["t"] = history.logs["t"][:6]
    for read in history.reads:
        if read.topic == "t":
            read.records = tuple(row for row in read.records if row[0] < 6)
    history.writes = [w for w in history.writes if w.parts[0].records[0].value != b"torn"]
    history.logs["u"] = [history.logs["u"][0], *((o - 1, r) for o, r in history.logs["u"][2:])]
    for read in history.reads:
        if read.topic == "u":
            read.records = ()
            read.offset = 0
    write_of(history, b"progress").parts[0].offset = 1
    assert write.outcome == "ok"


def doubled(history: History) -> None:
    """P1: an acknowledged record is there again, at the end."""
    record = write_of(history, b"a1").parts[0].records[0]
    history.logs["t"].append((len(history.logs["t"]), record))


def too_early(history: History) -> None:
    """P1: acknowledged before it was durable."""
    write = write_of(history, b"a1")
    history.durable_s["t", 1] = write.answered_s + 0.5


def offset_twice(history: History) -> None:
    """P2: two records at one offset."""
    read = next(read for read in history.reads if read.topic == "t")
    read.records = (*read.records[:4], (4, Record(b"a3", "")))


def gap(history: History) -> None:
    moved(history, "t", 6, by=1)


def skipped(history: History) -> None:
    """P3: a read leaves a record out."""
    read = next(read for read in history.reads if read.topic == "t")
    read.records = read.records[:1] + read.records[2:]


def out_of_order(history: History) -> None:
    first, second = write_of(history, b"a1"), write_of(history, b"a2")
    log = history.logs["t"]
    log[1], log[2] = (1, log[2][1]), (2, log[1][1])
    first.parts[0].offset, second.parts[0].offset = 2, 1
    history.durable_s["t", 2] = history.durable_s["t", 1] = 0.0
    read = next(read for read in history.reads if read.topic == "t")
    read.records = tuple(log[:5])


def offset_zero(history: History) -> None:
    write_of(history, b"a3").parts[0].offset = 0


def not_seen(history: History) -> None:
    """P6: the first read ends before the last acknowledgement."""
    read = next(read for read in history.reads if read.topic == "t")
    read.records, read.next_offset, read.log_end_offset = read.records[:3], 3, 3


def vanished(history: History) -> None:
    """P7: a record that nobody was told of was served, and is gone."""
    history.logs["u"].append((3, Record(b"shown", "")))
    call = replace(write_of(history, b"torn"), parts=(Part("u", (Record(b"shown", ""),)),))
    history.writes.append(call)
    last = [read for read in history.reads if read.topic == "u"][-1]
    last.records = (*last.records, (3, Record(b"shown", "")))
    history.logs["u"].pop()


def backwards(history: History) -> None:
    """P7: a reader gets what it had."""
    last = history.reads[-1]
    again = replace(last, sent_s=last.answered_s + 0.1, answered_s=last.answered_s + 0.2)
    history.reads.append(replace(again, offset=0, records=tuple(history.logs["u"])))


def phantom(history: History) -> None:
    history.logs["t"].append((len(history.logs["t"]), Record(b"nobody", "")))


def served_early(history: History) -> None:
    """P8: an unknown record was served before the bucket had it."""
    history.durable_s["t", 4] = history.reads[0].answered_s + 0.5


def refused_there(history: History) -> None:
    history.logs["t"].append((len(history.logs["t"]), Record(b"refused", "")))


def torn(history: History) -> None:
    """P9: of an unknown transaction one part is there."""
    history.logs["t"].pop()
    for read in history.reads:
        if read.topic == "t" and read.port == SECOND:
            read.records = read.records[:-1]


def repeated_elsewhere(history: History) -> None:
    """P10: the second answer tells another offset."""
    write = write_of(history, b"idempotent")
    other = replace(write, parts=(Part("t", write.parts[0].records, 6),))
    history.writes.append(other)


def repeated_there(history: History) -> None:
    """P10: there are two copies."""
    history.logs["t"].append((len(history.logs["t"]), Record(b"idempotent", "")))


def end_went_back(history: History) -> None:
    """P11: what an unknown write had put there is not told any more; no record was shown."""
    for read in history.reads:
        if read.topic == "t" and read.port == FIRST:
            read.log_end_offset = 9


def commit_went_back(history: History) -> None:
    history.commits[-2].offset = 1


def fenced_spoke(history: History) -> None:
    write_of(history, b"in both").port = FIRST


def fenced_repeated(history: History) -> None:
    """P12: the request that is repeated was never sent to it before."""
    ok = next(w for w in history.writes if w.sequence == ("p", 0, 0) and w.outcome == "ok")
    served_s = history.take_overs[0].served_s
    history.writes.append(replace(ok, port=FIRST, sent_s=served_s + 0.1, answered_s=served_s + 0.2))


def stuck(history: History) -> None:
    """P13: the consumer reads nothing in the end."""
    assert history.reads.pop().sent_s > (history.calm_s or 0)


def rebuilt_otherwise(history: History) -> None:
    history.rebuilt[0].rebuilt = "abd"


def newest_removed(history: History) -> None:
    history.logs["keyed"] = [row for row in history.logs["keyed"] if row[1].key != "x"]


def brought_back(history: History) -> None:
    """P15: the tombstone has gone, and what it deleted is there."""
    history.logs["keyed"] = [(1, Record(b"deleted", "y")), (2, Record(b"new", "x"))]


def let_in(history: History) -> None:
    history.key_calls[-2].outcome = "ok"


def row_missing(history: History) -> None:
    del table_of(history, "t").rows[2]


def row_twice(history: History) -> None:
    seen = table_of(history, "t")
    seen.rows.insert(3, seen.rows[2])


def row_beyond_its_end(history: History) -> None:
    table_of(history, "t").next_offset -= 1


def row_of_another_value(history: History) -> None:
    table_of(history, "t").rows[0] = (0, Record(b"a1", ""))


def table_behind_in_the_end(history: History) -> None:
    seen = history.tables[1]
    seen.rows.pop()
    seen.next_offset -= 1


def table_cannot_be_read(history: History) -> None:
    table_of(history, "t").failure = "a file is not there"


def newest_not_in_the_table(history: History) -> None:
    table_of(history, "keyed").rows.pop()


def nobody_sent_a_row(history: History) -> None:
    table_of(history, "keyed").rows.insert(0, (0, Record(b"nobody", "z")))


def compacted_row_differs(history: History) -> None:
    table_of(history, "keyed").rows[1] = (2, Record(b"old", "x"))


SEEDED: list[tuple[str, Callable[[History], None]]] = [
    *((law, seed) for law, seeds in {
        "P1": (lost, doubled, too_early), "P2": (offset_twice,), "P3": (gap, skipped),
        "P4": (out_of_order, sent_in_flight_and_exchanged), "P5": (offset_zero,), "P6": (not_seen,),
        "P7": (vanished, backwards), "P8": (phantom, served_early),
        "P9": (refused_there, torn), "P10": (repeated_elsewhere, repeated_there),
        "P11": (end_went_back, commit_went_back), "P12": (fenced_spoke, fenced_repeated),
        "P13": (stuck,),
        "P14": (rebuilt_otherwise,), "P15": (newest_removed, brought_back), "P16": (let_in,),
        "P17": (row_missing, row_twice, row_beyond_its_end, row_of_another_value,
                table_behind_in_the_end, table_cannot_be_read, newest_not_in_the_table,
                nobody_sent_a_row, compacted_row_differs),
        "P18": (taken_after_it_was_settled, taken_by_two, settled_twice, never_taken,
                told_too_early_that_a_lease_has_ended,
                out_of_the_order_of_its_key, came_again_behind_the_next_of_its_key,
                without_its_dead_letter, dead_letter_twice, dead_letter_of_what_was_acknowledged),
        "P20": (doubled_by_a_transaction, committed_without_a_record, stored_without_its_offset,
                out_of_order_by_a_transaction),
    }.items() for seed in seeds),
]  # fmt: skip


def planted(law: str, seed: Callable[[History], None]) -> History:
    """A history with this violation, and no other."""
    history = good()
    seed(history)
    if law != "P17":
        look_at_tables(history)
    return history


def test_a_good_history_has_no_violation() -> None:
    require(good())
    history = good()
    look_at_a_queue(history)
    require(history)
    history = good()
    transform(history)
    require(history)


def test_who_waits_may_get_what_another_one_gave_back() -> None:
    history = good()
    look_at_a_queue(history)
    take, end = history.queue_calls[0], history.queue_calls[1]
    quick = replace(take, sent_s=900.2, answered_s=900.3)
    back = replace(end, kind="retry", sent_s=900.4, answered_s=900.5)
    history.queue_calls[1:1] = [quick, back]
    require(history)


def test_whoever_gave_a_record_back_at_another_appliance_may_be_told_that_its_lease_has_ended() -> (
    None
):
    history = good()
    told_too_early_that_a_lease_has_ended(history)
    end = history.queue_calls[3]
    before = replace(end, kind="retry", port=FIRST, sent_s=end.sent_s - 0.1, results=("ok",))
    history.queue_calls.insert(3, before)
    require(history)


@pytest.mark.parametrize("taken_over", [True, False])
def test_only_who_was_taken_over_may_let_a_revoked_key_in(taken_over: bool) -> None:
    history = good()
    let_in(history)
    use = history.key_calls[-2]
    if taken_over:
        history.take_overs.append(TakeOver(use.port, use.sent_s - 1, use.answered_s))
    assert {found.law for found in violations(history)} == (set() if taken_over else {"P16"})


def test_who_is_stuck_is_told_before_the_logs_are_read() -> None:
    history = good()
    transform(history)
    stuck(history)
    history.logs.clear()
    assert {found.law for found in violations(history)} == {"P13"}


def test_a_writer_that_was_taken_over_may_answer_a_repeat_of_what_it_stored() -> None:
    history = good()
    fenced_repeated(history)
    first = replace(history.writes[-1], sent_s=0.1, answered_s=0.2, outcome="unknown")
    history.writes.insert(0, first)
    require(history)


def name_of(one: str | Callable[[History], None]) -> str:
    return one if isinstance(one, str) else one.__name__


@pytest.mark.parametrize(("law", "seed"), SEEDED, ids=name_of)
def test_a_violation_is_found_and_no_other(law: str, seed: Callable[[History], None]) -> None:
    assert {found.law for found in violations(planted(law, seed))} == {law}


def test_every_property_has_a_violation_that_was_seeded() -> None:
    assert {law for law, _ in SEEDED} == set(PROPERTIES)


def test_a_history_four_times_as_long_takes_about_four_times_as_long() -> None:
    def seconds(writes: int) -> Iterator[float]:
        ideal = Ideal()
        for n in range(writes):
            ideal.write(("t", "", b"%d" % n))
            ideal.read("t", n, reader=f"consumer {n}")
            ideal.commit(n)
            ideal.commit(n, "look")
        for _ in range(3):
            began_s = time.process_time()
            require(ideal.history)
            yield time.process_time() - began_s

    assert min(seconds(8_000)) < 12 * min(seconds(2_000))
