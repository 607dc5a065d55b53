"""A history as registers: objects whose operations a linearizability checker can order, one at a
time.

An operation has the time of its call and that of its return, in nanoseconds; one whose outcome is
unknown returns at the end of time. The models of the registers are in `porcupine/`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from tests.proof.check_records import Evidence, Told
from tests.proof.contending import LEASE_S as LEASE_OF_GROUP_S
from tests.proof.history import NEVER, Call, Commit, QueueCall, Record, RegisterCall
from tests.proof.queues import FORGOTTEN_MS, LEASE_S

END_NS: Final = 1 << 62
"""Of time: no operation begins then."""
Model = Literal["log", "offset", "key", "queue", "topic", "lease"]


class Operation(msgspec.Struct, rename="camel", omit_defaults=True):
    """`rows`: of an append the numbers of its values; of a read the offset and the number of the
    value of each record, in turn. `end`: the log end that a read was told, -1 if none. `next`: the
    offset after those that a read looked at. `place`: of a queue's record among those of its
    register. `take`: the number of a take, which what ends it names. `result`: what a worker was
    told of its delivery. `dead`: dead letters."""

    call: int
    back: int
    kind: str
    unknown: bool = False
    offset: int = -1
    end: int = -1
    next: int = -1
    rows: list[int] = []
    place: int = 0
    take: int = 0
    who: str = ""
    port: int = 0
    result: str = ""
    dead: int = 0


class Register(msgspec.Struct, omit_defaults=True):
    """`keys`: the record key of each number of a value, and whether that is a tombstone, of a
    compacted log. `removed`: places whose record a compaction removed."""

    name: str
    model: Model
    operations: list[Operation]
    compacted: bool = False
    keys: list[tuple[str, bool]] = []
    removed: list[int] = []


def registers_of(evidence: Evidence) -> Iterator[Register]:
    """All that a history is about, except what no client sees: when the bucket had what, the
    rebuilt state, and who may still acknowledge."""
    for topic in evidence.history.logs:
        yield _Log(evidence, topic).register()
    yield from _committed_offsets(evidence)
    yield from _api_keys(evidence)
    yield from _contended(evidence)
    yield from _queues(evidence)


def _ns(seconds: float) -> int:
    return END_NS if seconds == NEVER else max(0, int(seconds * 1e9))


def _times(call: Call) -> tuple[int, int]:
    return _ns(call.sent_s), _ns(NEVER if call.outcome == "unknown" else call.answered_s)


# --- logs ---


class _Log:
    """Of one topic. Every value has a number; a tombstone has that of its record key."""

    def __init__(self, evidence: Evidence, topic: str) -> None:
        self._evidence, self._topic = evidence, topic
        self._numbers: dict[bytes | tuple[str, str], int] = {}
        self._keys: list[tuple[str, bool]] = []

    def register(self) -> Register:
        history = self._evidence.history
        found = [*self._appends(), *self._reads(), *self._tables()]
        log = history.logs[self._topic]
        end = log[-1][0] + 1 if log else 0
        last = Operation(END_NS - 2, END_NS - 1, "final", rows=self._rows(log), offset=0, next=end)
        compacted = self._topic in history.compacted
        keys = self._keys if compacted else []
        return Register(f"log {self._topic}", "log", [*found, last], compacted, keys)

    def _number(self, record: Record) -> int:
        own = record.value if record.value is not None else ("tombstone", record.key or "")
        number = self._numbers.setdefault(own, len(self._numbers))
        if number == len(self._keys):
            self._keys.append((record.key or "", record.value is None))
        return number

    def _rows(self, records: Iterable[tuple[int, Record]]) -> list[int]:
        return [n for offset, record in records for n in (offset, self._number(record))]

    def _appends(self) -> Iterator[Operation]:
        for told in self._evidence.told:
            for i, part in enumerate(told.calls[0].parts):
                if part.topic == self._topic and told.outcome != "refused":
                    yield from self._append(told, i)

    def _append(self, told: Told, part: int) -> Iterator[Operation]:
        """A request that is repeated appends once; each further answer is a read of its place."""
        numbers = [self._number(record) for record in told.calls[0].parts[part].records]
        answers = [call for call in told.calls if call.outcome == "ok"]
        offsets = [call.parts[part].offset for call in answers]
        yield Operation(
            _ns(told.sent_s), _ns(told.answered_s), "append", not answers,
            offset=max(offsets[:1], default=-1), rows=numbers,
        )  # fmt: skip
        for call, offset in zip(answers[1:], offsets[1:], strict=True):
            if offset >= 0:
                rows = [n for i, number in enumerate(numbers) for n in (offset + i, number)]
                end = offset + len(numbers)
                yield Operation(*_times(call), "read", offset=offset, rows=rows, next=end)

    def _reads(self) -> Iterator[Operation]:
        """What an appliance that is taken over says may be old: this is a read of the end, without
        a log end. Among the others, Porcupine would have to try where it belongs."""
        for read in self._evidence.history.reads:
            if read.topic != self._topic or read.outcome != "ok":
                continue
            call, back = _times(read)
            end, rows = read.log_end_offset, self._rows(read.records)
            if not self._evidence.current(read):
                call, back, end = END_NS - 2, END_NS, -1
            yield Operation(
                call, back, "read", offset=read.offset, end=end, next=read.next_offset, rows=rows
            )

    def _tables(self) -> Iterator[Operation]:
        """A table is a copy of the log's beginning. When it was read does not matter, unless it is
        the last one."""
        for seen in self._evidence.history.tables:
            if seen.topic != self._topic or seen.failure:
                continue
            end = seen.next_offset if seen.is_last else -1
            yield Operation(
                END_NS - 2, END_NS, "table", offset=0, end=end, next=seen.next_offset,
                rows=self._rows(seen.rows),
            )  # fmt: skip


# --- groups and API keys ---


_CONFLICT: Final = "offset_conflict"


def _committed_offsets(evidence: Evidence) -> Iterator[Register]:
    """What an appliance that is taken over says of an offset is left out: it may be old. So is a
    call with an unknown outcome whose offset nobody found later."""
    places: dict[tuple[str, str], list[Commit]] = defaultdict(list)
    for commit in evidence.history.commits:
        places[commit.group, commit.topic].append(commit)
    for (group, topic), calls in places.items():
        current = [c for c in calls if c.outcome == "ok" and (
            c.kind != "look" or _in_force(evidence, c))]  # fmt: skip
        found_s: dict[int, float] = {}
        for call in current:
            if call.kind == "look":
                found_s[call.offset] = max(call.answered_s, found_s.get(call.offset, -NEVER))
        perhaps = [c for c in calls if c.outcome == "unknown" and c.kind != "look" and (
            c.expected is not None or c.sent_s < found_s.get(c.offset, -NEVER))]  # fmt: skip
        differs = [c for c in calls if c.answer == _CONFLICT and _in_force(evidence, c)]
        operations = [
            Operation(
                *_times(c),
                kind="differs" if c.answer == _CONFLICT else c.kind,
                unknown=c.outcome == "unknown",
                offset=c.offset,
                end=-1 if c.expected is None else c.expected,
            )
            for c in [*current, *perhaps, *differs]
        ]
        yield Register(f"offset of {group} on {topic}", "offset", operations)


def _api_keys(evidence: Evidence) -> Iterator[Register]:
    """A use that was refused says nothing: there are other reasons for that. Nor does one at an
    appliance that was taken over."""
    calls: dict[str, list[Operation]] = defaultdict(list)
    for call in evidence.history.key_calls:
        told = call.kind != "use" or _in_force(evidence, call)
        if call.outcome == "ok" and call.api_key_id and told:
            calls[call.api_key_id].append(Operation(*_times(call), call.kind))
    for api_key_id, operations in calls.items():
        yield Register(f"API key {api_key_id}", "key", operations)


_REFUSALS: Final = {"topic_not_found", "lease_held", "stale_generation"}


def _contended(evidence: Evidence) -> Iterator[Register]:
    """Topics and leases. A refusal says what is there; but a lease that was told as ended, because
    its time was over, is there again after a restart, which begins its time anew."""
    found: dict[str, list[Operation]] = defaultdict(list)
    granted_s: dict[tuple[str, int], float] = {}
    for number, call in enumerate(evidence.history.register_calls):
        refused = call.outcome == "refused"
        given = call.register, call.number
        renewed = call.kind == "take" and given in granted_s
        over = call.answered_s >= granted_s.get(given, NEVER) + LEASE_OF_GROUP_S
        if call.kind == "take":
            granted_s[given] = call.sent_s
        if refused and (
            call.answer not in _REFUSALS or (call.answer == "stale_generation" and over)
        ):
            continue
        if not _in_force(evidence, call) and (refused or renewed or _wrote_nothing(call)):
            continue
        unknown = call.outcome == "unknown"
        told = call.answer if refused or call.kind == "create" else ""
        found[call.register].append(Operation(
            *_times(call), call.kind, unknown, call.number, take=number, who=call.worker,
            result=told,
        ))  # fmt: skip
        if call.kind == "take" and not refused:
            ends_ns = _ns(call.sent_s + LEASE_OF_GROUP_S)
            found[call.register].append(Operation(ends_ns, END_NS, "expire", take=number))
    for register, operations in found.items():
        yield Register(register, "topic" if register.startswith("topic") else "lease", operations)


def _wrote_nothing(call: RegisterCall) -> bool:
    return call.kind == "show" or (call.kind == "create" and call.answer != "201")


def _in_force(evidence: Evidence, call: Call) -> bool:
    """What an appliance answers after another one has begun to take its place may be old, unless
    it has written: what it acknowledges until it is fenced is stored."""
    claimed_s = evidence.claimed_s.get(call.port, NEVER)
    return call.outcome == "unknown" or call.answered_s < claimed_s


# --- queues ---


def _queues(evidence: Evidence) -> Iterator[Register]:
    """One register for the records of a record key, and for each record without one. What was
    compacted away has no place in the order of its key."""
    history = evidence.history
    if not history.queue_calls:
        return
    outputs = {topic for topics in history.transforms.values() for topic in topics}
    key_of = {(t, o): key for call in history.queue_calls for t, o, key in call.records}
    for topic, log in history.logs.items():
        if topic not in outputs and evidence.whole(topic):
            for offset, record in log:
                key_of.setdefault((topic, offset), record.key)
    named: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for place in sorted(key_of):
        topic, offset = place
        ordered = key_of[place] is not None and offset in evidence.rows.get(topic, {})
        named[f"{topic} key {key_of[place]}" if ordered else f"{topic} at {offset}"].append(place)
    of_place, dead_letters = _queue_operations(evidence), Counter(history.dead_letters)
    for name, places in named.items():
        operations = []
        for number, place in enumerate(places):
            dead = dead_letters[place]
            done = Operation(END_NS - 2, END_NS - 1, "done", place=number, dead=dead)
            for operation in [*of_place[place], done]:
                operation.place = number
                operations.append(operation)
        removed = [
            n for n, (t, offset) in enumerate(places) if offset not in evidence.rows.get(t, {})
        ]
        yield Register(f"queue {name}", "queue", operations, removed=removed)


def _queue_operations(evidence: Evidence) -> dict[tuple[str, int], list[Operation]]:
    """By the place of the record. A lease may end as soon as its time is over; whoever was taken
    over hands out what is not its own any more."""
    found: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for number, call in enumerate(evidence.history.queue_calls):
        if call.outcome == "refused":
            continue
        if call.kind == "take" and call.answered_s >= evidence.claimed_s.get(call.port, NEVER):
            continue
        results = call.results or [""] * len(call.records)
        for (topic, offset, _), result in zip(call.records, results, strict=True):
            found[topic, offset] += _of_delivery(call, number, result)
    return found


def _of_delivery(call: QueueCall, number: int, result: str) -> Iterator[Operation]:
    unknown = call.outcome == "unknown"
    yield Operation(
        *_times(call),
        call.kind,
        unknown,
        take=number,
        who=call.worker,
        port=call.port,
        result=result,
    )
    if call.kind == "take":
        ends_ns = _ns(call.sent_s + LEASE_S)
        yield Operation(ends_ns, END_NS, "expire", take=number, who=call.worker, port=call.port)
    elif call.kind == "forget" and (unknown or result == "ok"):
        ends_ns = _ns(call.sent_s + FORGOTTEN_MS / 1000)
        yield Operation(ends_ns, END_NS, "expire", take=-1, who=call.worker, port=call.port)
