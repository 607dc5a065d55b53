"""Deliveries of a queue against a plain model: a list of records that is searched each time."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from seb_appliance.broker.queues.by_place import Place
from seb_appliance.broker.queues.deliveries import Deliveries
from seb_appliance.broker.queues.progress import Queues
from seb_appliance.formats.operations import QueueProgressed, QueueSet
from seb_appliance.formats.queues.queues import OffsetRange, Ordering, QueueSettings

TOPICS = (1, 2)
LEASE_S = 30
KEYS = st.lists(st.sampled_from([b"a", b"b", None]), min_size=1, max_size=2)
MAX_DELIVERIES = 2


@dataclass
class Record:
    """`state`: new, out, waits, doomed, acked, rejected, lost. `is_stored`: what settled it is in
    the journal."""

    topic_id: int
    offset: int
    key: bytes | None
    state: str = "new"
    attempts: int = 0  # that failed
    lease: int = 0
    ends_s: int = 0
    due_s: int = 0
    is_stored: bool = False

    @property
    def place(self) -> Place:
        return Place(self.topic_id, self.offset)

    @property
    def is_done(self) -> bool:
        return self.state in {"acked", "rejected", "lost"}


class DeliveriesModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[Record] = []
        self.now_s = 1_000
        self.leases = 0
        self.log_start = dict.fromkeys(TOPICS, 0)
        self.old: list[tuple[Place, int]] = []  # leases of once
        self.unstored: list[tuple[Record, bytes | None]] = []

    @initialize(ordering=st.sampled_from(["none", "key"]))
    def begin(self, ordering: Ordering) -> None:
        self.settings = QueueSettings(
            topics=("t",), ordering=ordering, max_deliveries=MAX_DELIVERIES
        )
        self.queues = Queues()
        self.queues.apply(QueueSet(queue="q", settings=self.settings), 0)
        self.deliveries = Deliveries(self.settings, {})

    @property
    def now(self) -> tuple[float, int]:
        return self.now_s, self.now_s * 1_000_000

    def note(self, topic_id: int, **members: list) -> None:
        """What the queue writes into the journal."""
        self.queues.apply(QueueProgressed(queue="q", topic_id=topic_id, **members), 0)

    def log_end(self, topic_id: int) -> int:
        return sum(record.topic_id == topic_id for record in self.records)

    def one(self, place: Place) -> Record:
        return next(record for record in self.records if record.place == place)

    def eligible(self, record: Record) -> bool:
        if record.state not in {"new", "waits"} or record.due_s > self.now_s:
            return False
        if self.settings.ordering == "none" or record.key is None:
            return True
        return not any(
            other.key == record.key and not other.is_stored and other.offset < record.offset
            for other in self.records
            if other.topic_id == record.topic_id
        )

    # --- what happens ---

    @rule(topic_id=st.sampled_from(TOPICS), keys=KEYS)
    def append(self, topic_id: int, keys: list[bytes | None]) -> None:
        for key in keys:
            self.records.append(Record(topic_id, self.log_end(topic_id), key))

    @rule(most=st.integers(1, 5), seconds=st.sampled_from([0, 10, LEASE_S]))
    def take(self, most: int, seconds: int) -> None:
        self.now_s += seconds
        self.catch_up()
        found: list[Place] = []
        for topic_id in TOPICS:
            end = self.log_end(topic_id)
            while (new := self.deliveries.new(topic_id, end)) is not None:
                place = Place(topic_id, new[0])
                self.deliveries.meet(place, self.one(place).key, self.now)
        for place in list(self.deliveries.ready)[:most]:
            self.leases += 1
            out = self.deliveries.hand_out(place, self.leases, self.now_s + LEASE_S, self.now[1])
            found.append(place)
            record = self.one(place)
            assert self.eligible(record), record
            assert out.attempt == record.attempts + 1
            self.old.append((place, self.leases))
        expected = [record for record in self.records if self.eligible(record)]
        # Those that are handed out do not make others of their record key eligible.
        assert len(found) == min(most, len(expected))
        for place in found:
            record = self.one(place)
            record.state, record.lease = "out", self.deliveries.out[place].lease
            record.ends_s = self.now_s + LEASE_S

    def catch_up(self) -> None:
        """As the timer does: leases end, and what waited comes due."""
        for place, out in self.deliveries.ended(self.now_s):
            failure = self.deliveries.fail(place, out, self.now)
            self.note(place.topic_id, failed=[failure])
        list(self.deliveries.come_due(self.now_s))
        for record in self.records:
            if record.state == "out" and record.ends_s <= self.now_s:
                record.attempts += 1
                record.state = "doomed" if record.attempts >= MAX_DELIVERIES else "waits"
                record.due_s = self.now_s
        for record in self.records:  # of what was doomed before a restart
            if record.attempts >= MAX_DELIVERIES and record.state == "waits":
                record.state = "doomed"

    @precondition(lambda self: self.old)
    @rule(newest=st.integers(1, 4), how=st.sampled_from(["retry", "ack", "reject", "extend"]))
    def settle(self, newest: int, how: str) -> None:
        self.catch_up()
        place, lease = self.old[-min(newest, len(self.old))]
        record = self.one(place)
        standing = self.deliveries.standing(place, lease)
        if record.state == "out" and record.lease == lease:
            assert standing == "live"
        else:
            assert standing == ("settled" if record.is_done else "ended")
            return
        if how == "extend":
            self.deliveries.extend(place, self.now_s + 2 * LEASE_S)
            record.ends_s = self.now_s + 2 * LEASE_S
            return
        out = self.deliveries.take_back(place)
        if how == "ack":
            self.deliveries.settle(place, "acked")
            record.state = "acked"
            self.unstored.append((record, out.key))
        elif how == "retry":
            due = (self.now_s + 10, self.now[1] + 10_000_000)
            self.note(place.topic_id, failed=[self.deliveries.fail(place, out, due)])
            record.attempts += 1
            record.due_s = self.now_s + 10
            record.state = "doomed" if record.attempts >= MAX_DELIVERIES else "waits"
        else:
            self.deliveries.doom(place, out, "no use")
            record.state = "doomed"

    @rule()
    def bury(self) -> None:
        for place, aside in list(self.deliveries.doomed.items()):
            self.deliveries.doomed.pop(place)
            self.deliveries.settle(place, "rejected")
            record = self.one(place)
            assert record.state == "doomed", place
            record.state = "rejected"
            self.unstored.append((record, aside.key))

    @rule()
    def store(self) -> None:
        """The window of the acknowledgements and dead letters is in the bucket."""
        for record, key in self.unstored:
            settled = [OffsetRange(record.offset, record.offset + 1)]
            self.note(record.topic_id, **{record.state: settled})
            record.is_stored = True
            if key is not None:
                self.deliveries.release(record.topic_id, key, self.now)
        self.unstored = []

    @rule(topic_id=st.sampled_from(TOPICS), end=st.integers(0, 20))
    def new_records_are_trimmed(self, topic_id: int, end: int) -> None:
        """Only new ones: what was met before is looked for in the log when it is handed out."""
        end = min(end, self.log_end(topic_id))
        gone = self.deliveries.lose(topic_id, end)
        self.note(topic_id, lost=[OffsetRange(*one) for one in gone])
        for begin, until in gone:
            for offset in range(begin, until):
                assert self.one(Place(topic_id, offset)).state in {"new", "waits", "doomed"}
                self.one(Place(topic_id, offset)).state = "lost"
                self.one(Place(topic_id, offset)).is_stored = True

    @rule(really=st.integers(0, 3))
    def restart(self, really: int) -> None:
        if really:  # not often, so that something happens in between
            return
        queue = self.queues.get("q")
        assert queue is not None
        self.deliveries = Deliveries(self.settings, queue.progress)
        self.unstored = []
        for record in self.records:
            if record.state == "out" or (record.is_done and not record.is_stored):
                record.state, record.due_s = ("waits" if record.attempts else "new"), 0
            elif record.state == "doomed":
                # One that was rejected by hand is out again; one that failed too often is not.
                record.state = "waits" if record.attempts else "new"
        self.old = [(place, -lease) for place, lease in self.old]  # no token is valid any more

    # --- what always holds ---

    @invariant()
    def the_journal_knows_what_memory_knows(self) -> None:
        queue = self.queues.get("q") if hasattr(self, "queues") else None
        if queue is None or self.unstored:
            return
        for topic_id, progress in queue.progress.items():
            live = self.deliveries.progress(topic_id)
            assert list(live.settled) == list(progress.settled)
            assert live.failed == progress.failed
            assert (live.acked, live.rejected, live.lost) == (
                progress.acked,
                progress.rejected,
                progress.lost,
            )

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "deliveries"):
            return
        for outcome in ("acked", "rejected", "lost"):
            counted = sum(getattr(self.deliveries.progress(i), outcome) for i in TOPICS)
            assert counted == sum(record.state == outcome for record in self.records)
        found = self.deliveries
        assert len(found) == (
            len(found.out)
            + len(found.waiting)
            + len(found.ready)
            + len(found.doomed)
            + found.parked
        )
        assert found.parked == sum(
            len(behind or ()) for keys in found._keys.values() for behind in keys.values()
        )


DeliveriesModel.TestCase.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None
)
TestDeliveries = DeliveriesModel.TestCase
