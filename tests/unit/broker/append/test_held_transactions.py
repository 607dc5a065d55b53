"""Transactions that are gathered in memory: stored in one entry, or nothing of them."""

from __future__ import annotations

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.deduplication import ProducerStamp
from seb_appliance.broker.append.transactions import Held, Transacted, Transaction
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    BadRequestError,
    CommitBackwardError,
    CommitBeyondEndError,
    IdempotencyMismatchError,
    OverloadedError,
    RecordTooLargeError,
    RequestTooLargeError,
    StaleEpochError,
    TopicNotFoundError,
)
from seb_appliance.formats.operations import Append, OffsetsCommitted
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House


def stamp(seq: int, epoch: int = 0) -> ProducerStamp:
    return ProducerStamp("p 1", epoch, seq, counts_records=True)


def begun(house: House) -> Held:
    return Held(Reservation(house.broker.pending, ADMIN.api_key_id))


def hold(
    house: House, held: Held, topic: str, *values: bytes, stamped: ProducerStamp | None = None
) -> None:
    house.broker.appends.hold(ADMIN, held, topic, NewRecords(list(values)), stamped)


async def done(house: House, held: Held) -> Transacted:
    transaction = Transaction({}, held=held)
    return await house.done(house.broker.appends.transact(ADMIN, transaction, held.reservation))


async def refused(house: House, error: type[Exception], held: Held) -> None:
    entries = len(house.journal.entries)
    with pytest.raises(error):
        await done(house, held)
    assert len(house.journal.entries) == entries
    assert house.broker.pending.used == 0


@pytest.fixture
async def ground(house: House) -> House:
    """Topics in and in2 with ten records each."""
    for topic in ("in", "in2"):
        await house.appended(topic, *(b"%d" % n for n in range(10)))
    return house


async def test_all_that_was_gathered_lies_in_one_entry(ground: House) -> None:
    held = begun(ground)
    hold(ground, held, "a", b"1", b"2", stamped=stamp(0))
    hold(ground, held, "b", b"3", stamped=stamp(0))
    hold(ground, held, "a", b"4", stamped=stamp(2))
    held.commit(Commit("g", {"in": 7, "in2": 3}, {"in": "half"}))
    held.commit(Commit("g", {"in": 8}, {"in": "note"}))
    held.commit(Commit("h", {"in": 10}))
    assert ground.broker.pending.used > 0
    answer = await done(ground, held)
    assert {t: (p.offset, p.count) for t, p in answer.produced.items()} == {
        "a": (0, 3),
        "b": (0, 1),
    }
    operations = ground.journal.entries[-1].entry.contents.operations
    kinds = [type(o) for o in operations if isinstance(o, Append | OffsetsCommitted)]
    assert kinds == [Append, Append, OffsetsCommitted, OffsetsCommitted]
    assert await ground.values("a") == [b"1", b"2", b"4"]
    committed = ground.broker.groups.committed_of("g")
    assert {t: (c.offset, c.metadata) for t, c in committed.items()} == {
        "in": (8, "note"),
        "in2": (3, ""),
    }
    assert ground.broker.pending.used == 0


async def test_it_joins_a_window_with_other_records_of_its_topics(ground: House) -> None:
    before = ground.append("a", b"before")
    await settle()
    held = begun(ground)
    hold(ground, held, "a", b"1", b"2")
    answer = await done(ground, held)
    assert ((await before).offset, answer.produced["a"].offset) == (0, 1)
    assert len(ground.journal.entries) == 3  # two are of the ground
    assert await ground.values("a") == [b"before", b"1", b"2"]


async def test_its_requests_are_remembered_with_their_offsets(ground: House) -> None:
    await ground.appended("a", b"before")
    held = begun(ground)
    for seq in range(0, 14, 2):
        hold(ground, held, "a", b"x", b"y", stamped=stamp(seq))
    await done(ground, held)
    (producer,) = ground.broker.topics.producers("a")
    assert (producer.next_seq, producer.counts_records) == (14, True)
    assert [(one.seq, one.offset) for one in producer.recent] == [
        (seq, 1 + seq) for seq in range(4, 14, 2)
    ]


async def test_an_abandoned_one_leaves_nothing_and_its_seqs_may_be_missing(ground: House) -> None:
    held = begun(ground)
    hold(ground, held, "a", b"1", stamped=stamp(0))
    await done(ground, held)
    abandoned = begun(ground)
    hold(ground, abandoned, "a", b"2", stamped=stamp(1))
    abandoned.reservation.release()
    assert ground.broker.pending.used == 0
    held = begun(ground)
    hold(ground, held, "a", b"3", stamped=stamp(2))
    assert (await done(ground, held)).produced["a"].offset == 1
    assert await ground.values("a") == [b"1", b"3"]


async def test_an_offset_may_stay_or_go_back_as_its_commit_says(ground: House) -> None:
    for offset, allow_backward in ((7, False), (7, False), (5, True)):
        held = begun(ground)
        held.commit(Commit("g", {"in": offset}, allow_backward=allow_backward))
        await done(ground, held)
    held = begun(ground)
    held.commit(Commit("g", {"in": 4}))
    await refused(ground, CommitBackwardError, held)
    assert ground.broker.groups.committed_of("g", ["in", "none"])["in"].offset == 5


async def test_a_refused_offset_refuses_all_of_it(ground: House) -> None:
    held = begun(ground)
    hold(ground, held, "a", b"1", stamped=stamp(0))
    held.commit(Commit("g", {"in": 1}))
    held.commit(Commit("h", {"in": 11}))
    await refused(ground, CommitBeyondEndError, held)
    assert ground.broker.groups.committed_of("g") == {}
    assert [topic.name for topic in ground.broker.topics.all()] == ["in", "in2"]


async def test_what_is_stored_before_or_of_an_old_epoch_is_not_gathered(ground: House) -> None:
    held = begun(ground)
    hold(ground, held, "a", b"1", b"2", stamped=stamp(0, epoch=1))
    await done(ground, held)
    with pytest.raises(StaleEpochError):
        hold(ground, begun(ground), "a", b"3", stamped=stamp(2))
    with pytest.raises(IdempotencyMismatchError):
        hold(ground, begun(ground), "a", b"3", stamped=stamp(1, epoch=1))
    assert ground.broker.pending.used == 0


async def test_two_open_ones_of_a_producer_are_not_both_stored(ground: House) -> None:
    one, other, old = begun(ground), begun(ground), begun(ground)
    hold(ground, one, "a", b"1", stamped=stamp(0, epoch=1))
    hold(ground, other, "a", b"1", stamped=stamp(0, epoch=1))
    hold(ground, old, "a", b"0", stamped=stamp(0))
    await done(ground, one)
    for held, error in ((other, IdempotencyMismatchError), (old, StaleEpochError)):
        with pytest.raises(error):
            await done(ground, held)
    assert ground.broker.pending.used == 0
    assert await ground.values("a") == [b"1"]


async def test_a_record_that_is_too_large_is_refused_when_it_is_gathered(ground: House) -> None:
    await ground.topic("small", max_record_bytes=3)
    held = begun(ground)
    hold(ground, held, "small", b"abc", stamped=stamp(0))
    with pytest.raises(RecordTooLargeError):
        hold(ground, held, "small", b"abcd", stamped=stamp(1))
    await done(ground, held)
    assert await ground.values("small") == [b"abc"]


async def test_a_transaction_has_a_limit_of_bytes_topics_groups_and_offsets(
    ground: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 1_000)
    monkeypatch.setattr(limits, "TRANSACTION_TOPICS_MAX", 2)
    monkeypatch.setattr(limits, "HELD_GROUPS_MAX", 2)
    monkeypatch.setattr(limits, "OFFSETS_PER_COMMIT_MAX", 3)
    held = begun(ground)
    hold(ground, held, "a", b"x" * 900)
    with pytest.raises(RequestTooLargeError):
        hold(ground, held, "a", b"x" * 100)
    hold(ground, held, "b", b"1")
    with pytest.raises(BadRequestError):
        hold(ground, held, "c", b"1")
    held.commit(Commit("g", {"in": 1, "in2": 1}))
    with pytest.raises(BadRequestError):
        held.commit(Commit("h", {"in": 1, "in2": 1}))
    held.commit(Commit("h", {"in": 1}))
    with pytest.raises(BadRequestError):
        held.commit(Commit("i", {"in": 1}))
    await done(ground, held)
    assert await ground.values("b") == [b"1"]
    assert {group: len(ground.broker.groups.committed_of(group)) for group in "ghi"} == {
        "g": 2,
        "h": 1,
        "i": 0,
    }


async def test_the_metadata_of_its_commits_has_a_limit(
    ground: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMMIT_BYTES_MAX", 1_000)
    held = begun(ground)
    held.commit(Commit("g", {"in": 1}, {"in": "x" * 600}))
    before = ground.broker.pending.used
    for group, length in (("g", 800), ("h", 300)):
        with pytest.raises(RequestTooLargeError):
            held.commit(Commit(group, {"in": 1}, {"in": "x" * length}))
    held.commit(Commit("g", {"in": 2}, {"in": "y" * 610}))
    assert ground.broker.pending.used == before + 10
    await done(ground, held)
    assert ground.broker.groups.committed_of("g")["in"].metadata == "y" * 610
    assert ground.broker.pending.used == 0


async def test_the_largest_transaction_fits_an_entry(ground: House) -> None:
    held = begun(ground)
    value = b"x" * limits.RECORD_BYTES_DEFAULT
    for _ in range(limits.HELD_BYTES_MAX // (len(value) + 24)):
        hold(ground, held, "a", value)
    with pytest.raises(RequestTooLargeError):
        hold(ground, held, "a", value)
    await ground.appended("b", b"1")
    assert (await done(ground, held)).produced["a"].count == 15


async def test_an_empty_one_is_refused(ground: House) -> None:
    await refused(ground, BadRequestError, begun(ground))


class TestWithLittleMemory:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(linger_ms=10, max_pending_bytes=20_000)

    async def test_memory_is_taken_as_records_come(self, house: House) -> None:
        held = begun(house)
        hold(house, held, "a", b"x" * 8_000)
        with pytest.raises(OverloadedError):
            hold(house, held, "a", b"x" * 12_000)
        assert (await done(house, held)).produced["a"].count == 1
        assert house.broker.pending.used == 0


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(linger_ms=10, auto_create_topics=False)

    async def test_a_topic_that_was_deleted_meanwhile_refuses_all_of_it(self, house: House) -> None:
        for topic in ("a", "b"):
            await house.topic(topic)
        held = begun(house)
        hold(house, held, "a", b"1")
        hold(house, held, "b", b"2")
        await house.done(house.broker.topics.delete("b"))
        with pytest.raises(TopicNotFoundError):
            hold(house, begun(house), "b", b"2")
        with pytest.raises(TopicNotFoundError):
            await done(house, held)
        assert await house.values("a") == []
        assert house.broker.pending.used == 0
