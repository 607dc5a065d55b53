"""P11 to P16: offsets of groups, take-overs, progress, rebuilding, compaction, API keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.proof.check_records import Evidence
from tests.proof.history import NEVER, Commit, History, Record, Write
from tests.proof.violations import Violation, said

PROGRESS_S = 30.0


def check_state(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of P11 to P16."""
    history = evidence.history
    yield from _log_ends_go_forward(evidence)
    yield from _committed_offsets_go_forward(history)
    yield from _fenced_acknowledge_nothing(history)
    yield from _progress(history)
    yield from _rebuilt(history)
    for topic in sorted(history.compacted & history.logs.keys()):
        yield from _newest_of_each_key(history, topic)
    yield from _revoked_stays_revoked(evidence)


def _log_ends_go_forward(evidence: Evidence) -> Iterator[Violation]:
    """P11. Of two answers the later one is not behind, if it was asked for after the first."""
    current = [read for read in evidence.history.reads if evidence.current(read)]
    answered = sorted(current, key=lambda read: read.answered_s)
    ends: dict[str, int] = defaultdict(int)
    at = 0
    for read in sorted(current, key=lambda read: read.sent_s):
        while answered[at].answered_s < read.sent_s:
            before = answered[at]
            ends[before.topic] = max(ends[before.topic], before.log_end_offset)
            at += 1
        if read.log_end_offset < ends[read.topic]:
            yield said("P11", f"{read.topic} ended at {ends[read.topic]}, and {read.worker} "
                              f"was told {read.log_end_offset} later")  # fmt: skip


def _committed_offsets_go_forward(history: History) -> Iterator[Violation]:
    """P11. Only commits that were sent when every reset before a look had been answered say
    anything about it; a reset whose answer was lost may happen at any later time."""
    in_force_until_s = {over.old_port: over.served_s for over in history.take_overs}
    places: dict[tuple[str, str], list[Commit]] = defaultdict(list)
    for commit in history.commits:
        places[commit.group, commit.topic].append(commit)
    for (group, topic), calls in places.items():
        resets = [call for call in calls if call.kind == "reset" and call.outcome != "refused"]
        resets.sort(key=lambda call: call.sent_s, reverse=True)
        told = [call for call in calls if call.kind != "reset" and call.outcome == "ok"]
        answered = sorted(told, key=lambda call: call.answered_s, reverse=True)
        floor, since_s = 0, -NEVER
        # Who was taken over may answer from memory until it hears of it.
        looks = (
            call
            for call in told
            if call.kind == "look" and call.answered_s <= in_force_until_s.get(call.port, NEVER)
        )
        for look in sorted(looks, key=lambda call: call.sent_s):
            while answered[-1].answered_s < look.sent_s:
                call = answered.pop()
                floor = max(floor, call.offset) if call.sent_s > since_s else floor
            while resets and resets[-1].sent_s < look.answered_s:
                floor, since_s = 0, max(since_s, resets.pop().answered_s)
            if look.offset < floor:
                yield said("P11", f"{group} had committed {floor} of {topic}, "
                                  f"and was found at {look.offset} later")  # fmt: skip


def _fenced_acknowledge_nothing(history: History) -> Iterator[Violation]:
    """P12. A repeat of a request that it stored before is nothing new: P10 looks at its offset."""
    since_s = {over.old_port: over.served_s for over in history.take_overs}
    late = [
        call
        for call in [*history.writes, *history.commits]
        if call.outcome == "ok" and call.sent_s > since_s.get(call.port, NEVER)
    ]
    before = {
        (write.port, write.sequence)
        for write in history.writes
        if write.sequence is not None and write.sent_s <= since_s.get(write.port, NEVER)
    }
    for call in late:
        looks = isinstance(call, Commit) and call.kind == "look"
        repeats = isinstance(call, Write) and (call.port, call.sequence) in before
        if not looks and not repeats:
            yield said("P12", f"the appliance on port {call.port} acknowledged {call.worker} "
                              "after the next one had")  # fmt: skip


def _progress(history: History) -> Iterator[Violation]:
    """P13."""
    if history.calm_s is None:
        return
    until_s = history.calm_s + PROGRESS_S
    workers, progressed = set(), set()
    for call in history.calls:
        workers.add(call.worker)
        if call.outcome == "ok" and history.calm_s < call.answered_s <= until_s:
            progressed.add(call.worker)
    for worker in sorted(workers - progressed - history.gone_home):
        yield said("P13", f"{worker} made no progress within {PROGRESS_S:.0f} s of the last fault")


def _rebuilt(history: History) -> Iterator[Violation]:
    """P14."""
    for both in history.rebuilt:
        if both.live != both.rebuilt:
            yield said("P14", f"{both.what}: {both.live} was there, {both.rebuilt} was rebuilt")


def _newest_of_each_key(history: History, topic: str) -> Iterator[Violation]:
    """P15. `perhaps`: what an unknown write may have put behind the newest acknowledged one."""
    newest: dict[str, tuple[int, Record]] = {}
    perhaps: dict[str, set[bytes | None]] = defaultdict(set)
    for write in history.writes:
        for part in write.parts if write.outcome != "refused" else ():
            for n, record in enumerate(part.records if part.topic == topic else ()):
                assert record.key is not None, "records of a compacted topic have record keys"
                if write.outcome == "unknown":
                    perhaps[record.key].add(record.value)
                elif record.key not in newest or newest[record.key][0] < part.offset + n:
                    newest[record.key] = (part.offset + n, record)
    visible = {record.key: (offset, record) for offset, record in history.logs[topic]}
    for key, (offset, record) in newest.items():
        found = visible.get(key)
        if found is None:
            if record.value is not None and None not in perhaps[key]:
                yield said("P15", f"{record} at {offset} of {topic} is the newest, and is gone")
        elif found[0] < offset:
            what = "was deleted" if record.value is None else f"has {record}"
            yield said("P15", f"{key} of {topic} {what} at {offset}, and {found[1]} at "
                              f"{found[0]} is what is left")  # fmt: skip
        elif found[1].value != record.value and found[1].value not in perhaps[key]:
            yield said("P15", f"{key} of {topic} has {found[1]} at {found[0]}, not {record}")


def _revoked_stays_revoked(evidence: Evidence) -> Iterator[Violation]:
    """P16. Who was taken over may not know it yet, nor what the next one has revoked."""
    revoked_s: dict[str, float] = {}
    for call in evidence.history.key_calls:
        if call.kind == "revoke" and call.outcome == "ok":
            revoked_s[call.api_key_id] = call.answered_s
    for call in evidence.history.key_calls:
        since_s = revoked_s.get(call.api_key_id, NEVER)
        is_old = call.answered_s >= evidence.claimed_s.get(call.port, NEVER)
        if call.kind == "use" and call.outcome == "ok" and call.sent_s > since_s and not is_old:
            yield said("P16", f"API key {call.api_key_id} was revoked, and let in later")
