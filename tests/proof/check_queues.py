"""P18: what the workers of a queue were handed out, and what they were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.proof.check_records import Evidence
from tests.proof.history import NEVER, QueueCall
from tests.proof.queues import LEASE_S
from tests.proof.violations import Violation, said

Place = tuple[str, int]  # topic and offset
_SETTLING = ("ack", "reject")


class _Calls:
    """The calls about each record, in order of their beginnings."""

    def __init__(self, evidence: Evidence) -> None:
        self.takes: dict[Place, list[QueueCall]] = defaultdict(list)
        self.ends: dict[Place, list[tuple[QueueCall, str]]] = defaultdict(list)
        self.key_of: dict[Place, str | None] = {}
        for call in sorted(evidence.history.queue_calls, key=lambda call: call.sent_s):
            claimed_s = evidence.claimed_s.get(call.port, NEVER)
            results = call.results or [""] * len(call.records)
            for (topic, offset, key), result in zip(call.records, results, strict=True):
                place = topic, offset
                self.key_of[place] = key
                if call.kind != "take":
                    self.ends[place].append((call, result))
                elif call.answered_s < claimed_s:  # who was taken over does not know it yet
                    self.takes[place].append(call)

    def settled_s(self, place: Place) -> float:
        """When it was surely done."""
        answers = (call.answered_s for call, result in self.ends[place]
                   if call.kind in _SETTLING and result == "ok")  # fmt: skip
        return min(answers, default=NEVER)

    def may_be_settled_s(self, place: Place) -> float:
        """Before that it was surely not done."""
        sent = (call.sent_s for call, _ in self.ends[place] if call.kind in _SETTLING)
        return min(sent, default=NEVER)


def check_queues(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of P18."""
    if not evidence.history.queue_calls:
        return
    calls = _Calls(evidence)
    for place, takes in calls.takes.items():
        settled_s = calls.settled_s(place)
        if any(take.sent_s > settled_s for take in takes):
            yield said("P18", f"{place} was handed out after it was settled")
        yield from _one_lease(place, takes, calls)
        yield from _kept_its_word(place, takes, calls)
    for place, ends in calls.ends.items():
        if sum(result == "ok" and call.kind in _SETTLING for call, result in ends) > 1:
            yield said("P18", f"{place} was settled twice")
    yield from _none_lost(evidence, calls)
    yield from _in_order(evidence, calls)
    yield from _dead_letters(evidence, calls)


def _one_lease(place: Place, takes: list[QueueCall], calls: _Calls) -> Iterator[Violation]:
    """While a worker of one appliance has a record, nobody else gets it from there."""
    # By their answers: a take that was sent first may have waited until a record came back.
    for first, second in pairwise(sorted(takes, key=lambda take: take.answered_s)):
        if first.port != second.port or second.answered_s >= first.sent_s + LEASE_S:
            continue
        if not any(first.sent_s <= call.sent_s < second.answered_s
                     for call, _ in calls.ends[place]):  # fmt: skip
            yield said("P18", f"{place} was handed out again while its lease was live")


def _kept_its_word(place: Place, takes: list[QueueCall], calls: _Calls) -> Iterator[Violation]:
    """A worker that ends its delivery in time, at the same appliance, was not too late. What it
    sent before, to whichever appliance, may have ended it."""
    for take in takes:
        mine = [(call, result) for call, result in calls.ends[place]
                if call.worker == take.worker and call.sent_s >= take.answered_s]  # fmt: skip
        if not mine:
            continue
        first, result = min(mine, key=lambda end: end[0].sent_s)
        in_time = first.port == take.port and first.answered_s < take.sent_s + LEASE_S
        if result == "lease_ended" and in_time:
            yield said("P18", f"the lease of {place} ended before its time")


def _none_lost(evidence: Evidence, calls: _Calls) -> Iterator[Violation]:
    others = {topic for outputs in evidence.history.transforms.values() for topic in outputs}
    for topic, log in evidence.history.logs.items():
        if topic in others:
            continue  # it is not a topic of the queue
        if not evidence.whole(topic):
            continue  # a compaction may be faster than the workers
        for offset, _ in log:
            if calls.may_be_settled_s((topic, offset)) == NEVER:
                yield said("P18", f"{(topic, offset)} is in no worker's hands and not waiting")
                break


def _in_order(evidence: Evidence, calls: _Calls) -> Iterator[Violation]:
    """Of one record key: a later record goes out when the earlier ones are settled, and none of
    them comes again. What a compaction has removed meanwhile does not count."""
    earlier: dict[tuple[str, str], float] = {}
    for place in sorted(calls.key_of):
        topic, offset = place
        key = calls.key_of[place]
        if key is None or offset not in evidence.rows.get(topic, {}):
            continue
        before_s = earlier.get((topic, key), 0.0)
        if any(take.answered_s < before_s for take in calls.takes[place]):
            yield said("P18", f"{place} was handed out before an earlier record of {key!r} was "
                              "settled")  # fmt: skip
        last_asked_s = max((take.sent_s for take in calls.takes[place]), default=0.0)
        earlier[topic, key] = max(before_s, calls.may_be_settled_s(place), last_asked_s)


def _dead_letters(evidence: Evidence, calls: _Calls) -> Iterator[Violation]:
    dead = Counter(evidence.history.dead_letters)
    for place, count in dead.items():
        if count > 1:
            yield said("P18", f"there are {count} dead letters of {place}")
        if not any(call.kind == "reject" for call, _ in calls.ends[place]):
            yield said("P18", f"there is a dead letter of {place}, which nobody rejected")
    for place, ends in calls.ends.items():
        rejected = any(call.kind == "reject" and result == "ok" for call, result in ends)
        if rejected and place not in dead:
            yield said("P18", f"{place} was rejected, and there is no dead letter of it")
