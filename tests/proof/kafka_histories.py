"""Histories of clients of the Kafka protocol, and what violates their properties in them."""

from __future__ import annotations

import json

from tests.proof.history import Commit, History, Part, Record, Write

SECOND = 1002  # the port of the second appliance
WORKER, OUTPUTS = "transformer", ("v", "w")


def _made(source: int) -> Record:
    return Record(json.dumps({"producer": WORKER, "source": source}).encode())


def transform(history: History) -> None:
    """A worker makes records of the first four of `t`, two in each transaction; another one of its
    transactions is aborted."""
    history.transforms[WORKER] = OUTPUTS
    history.gone_home.add(WORKER)
    history.logs |= {topic: [] for topic in OUTPUTS}
    now_s = 800.0
    for source in (0, 2):
        parts = []
        for i, topic in enumerate(OUTPUTS):
            log, record = history.logs[topic], _made(source + i)
            parts.append(Part(topic, (record,)))
            log.append((len(log), record))
        call = Write(WORKER, SECOND, now_s, now_s + 1, "ok", "NONE", tuple(parts))
        history.writes.append(call)
        commit = Commit(WORKER, SECOND, now_s, now_s + 1, "ok", "NONE", WORKER, "t", source + 2)
        history.commits.append(commit)
        now_s += 2
    aborted = Part(OUTPUTS[0], (Record(b'{"producer": "nobody"}'),))
    history.writes.append(Write(WORKER, SECOND, now_s, outcome="refused", parts=(aborted,)))
    look = Commit(WORKER, SECOND, now_s, now_s + 1, "ok", "200", WORKER, "t", 4, "look")
    history.commits.append(look)


def _added(history: History, topic: str, record: Record) -> None:
    """By a transaction whose answer was lost."""
    history.writes.append(Write(WORKER, SECOND, 900.0, parts=(Part(topic, (record,)),)))
    log = history.logs[topic]
    log.append((len(log), record))


def doubled_by_a_transaction(history: History) -> None:
    transform(history)
    again = Record((_made(2).value or b"") + b" ")  # another value, of the same source
    _added(history, OUTPUTS[0], again)


def committed_without_a_record(history: History) -> None:
    transform(history)
    history.commits[-1].offset = 6


def stored_without_its_offset(history: History) -> None:
    transform(history)
    _added(history, OUTPUTS[0], _made(4))


def out_of_order_by_a_transaction(history: History) -> None:
    transform(history)
    log = history.logs[OUTPUTS[1]]
    (_, first), (_, second) = log
    log[:] = [(0, second), (1, first)]
    writes = [write for write in history.writes if write.worker == WORKER]
    for write in writes:  # they were sent together
        write.sent_s, write.answered_s = 800.0, 802.0


def sent_in_flight_and_exchanged(history: History) -> None:
    """P4: both were sent before the first one was acknowledged."""
    log = history.logs["u"]
    for seq in (1, 0):
        record = Record(b"in flight %d" % seq)
        call = Write("producer", SECOND, 990.0, 991.0, "ok", "NONE", sequence=("q", 0, seq))
        call.parts = (Part("u", (record,), len(log)),)
        history.writes.append(call)
        log.append((len(log), record))
