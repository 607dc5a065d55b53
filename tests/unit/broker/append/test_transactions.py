"""Transactions: records to several topics and a group's offsets, whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.deduplication import RequestStamp
from seb_appliance.broker.append.transactions import Transacted, Transaction
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    BadNameError,
    BadRequestError,
    CommitBackwardError,
    CommitBeyondEndError,
    FencedError,
    IdempotencyMismatchError,
    OffsetConflictError,
    OutcomeUnknownError,
    RecordTooLargeError,
    StaleGenerationError,
    TopicNotFoundError,
)
from seb_appliance.formats.operations import Append, AuditNoted, OffsetsCommitted, TopicCreated
from tests.unit.broker.conftest import ADMIN, House

TOO_LARGE = b"x" * (limits.RECORD_BYTES_DEFAULT + 1)


def transaction(
    produce: dict[str, list[bytes]] | None = None,
    commit: dict[str, int] | None = None,
    key: str = "",
    body: str = "b",
    **more,
) -> Transaction:
    """`more`: members of the commit of group g."""
    return Transaction(
        {topic: NewRecords(list(values)) for topic, values in (produce or {}).items()},
        None if commit is None else Commit("g", commit, **more),
        RequestStamp(key.encode().ljust(16), bytes(16), body.encode().ljust(16)) if key else None,
    )


def begun(
    house: House, asked: Transaction, timeout_ms: int | None = None
) -> asyncio.Task[Transacted]:
    reservation = house.broker.pending.reserve(OPERATOR, 100)
    return asyncio.ensure_future(
        house.broker.appends.transact(ADMIN, asked, reservation, timeout_ms)
    )


async def done(house: House, *args, **members) -> Transacted:
    task = begun(house, transaction(*args, **members))
    await house.clock.advance(1)
    return await task


async def refused(house: House, error: type[Exception], *args, **members):
    """`error`, and not a trace of the transaction."""
    entries, topics = len(house.journal.entries), house.broker.topics.all()
    with pytest.raises(error) as raised:
        await done(house, *args, **members)
    await house.clock.advance(10)
    assert len(house.journal.entries) == entries
    assert house.broker.topics.all() == topics
    assert house.broker.pending.used == 0
    return raised.value


def committed(house: House, topic: str = "in") -> int | None:
    group = house.broker._catalog.groups.get("g")
    topic_id = house.broker.topics.get(topic).topic_id
    found = group.offsets.get(topic_id) if group is not None else None
    return found.offset if found is not None else None


@pytest.fixture
async def ground(house: House) -> House:
    """Topic in with ten records."""
    await house.appended("in", *(b"%d" % n for n in range(10)))
    return house


async def test_everything_lies_in_one_entry(ground: House) -> None:
    answer = await done(ground, {"a": [b"1", b"2"], "b": [b"3"]}, {"in": 7})
    kinds = [type(o) for o in ground.journal.entries[-1].entry.contents.operations]
    made = [TopicCreated, Append, AuditNoted]
    assert kinds == [*made, *made, AuditNoted, OffsetsCommitted]
    assert {t: (p.offset, p.count) for t, p in answer.produced.items()} == {
        "a": (0, 2),
        "b": (0, 1),
    }
    assert (answer.committed, answer.replayed) == ({"in": 7}, False)
    assert await ground.values("a") == [b"1", b"2"]
    assert committed(ground) == 7
    assert ground.broker.pending.used == 0


async def test_the_topics_that_a_transaction_makes_are_noted_with_who_and_where(
    ground: House,
) -> None:
    asked = transaction({"in": [b"1"], "a": [b"2"], "b": [b"3"]})
    reservation = ground.broker.pending.reserve(OPERATOR, 100)
    await ground.done(
        ground.broker.appends.transact(ADMIN, asked, reservation, address="192.0.2.7")
    )
    operations = ground.journal.entries[-1].entry.contents.operations
    noted = [o for o in operations if isinstance(o, AuditNoted)]
    assert [(n.action, n.subject) for n in noted] == [
        ("topic_created", "a"),
        ("topic_created", "b"),
    ]
    assert {(n.actor, n.address) for n in noted} == {(ADMIN.api_key_id, "192.0.2.7")}


async def test_a_transaction_may_only_produce_or_only_commit(ground: House) -> None:
    assert (await done(ground, {"a": [b"1"]})).committed == {}
    assert (await done(ground, None, {"in": 3})).produced == {}
    assert committed(ground) == 3


async def test_a_transaction_of_nothing_is_refused(ground: House) -> None:
    await refused(ground, BadRequestError)


async def test_one_record_that_is_too_large_refuses_all_of_it(ground: House) -> None:
    await refused(ground, RecordTooLargeError, {"a": [b"1"], "b": [b"ok", TOO_LARGE]}, {"in": 7})
    assert committed(ground) is None


async def test_one_bad_topic_name_refuses_all_of_it(ground: House) -> None:
    await refused(ground, BadNameError, {"a": [b"1"], "b..c": [b"2"]}, {"in": 7})


async def test_one_refused_offset_refuses_all_of_it(ground: House) -> None:
    await refused(ground, TopicNotFoundError, {"a": [b"1"]}, {"in": 7, "gone": 0})
    await refused(ground, CommitBeyondEndError, {"a": [b"1"]}, {"in": 11})
    await refused(ground, BadRequestError, {"a": [b"1"]}, {})
    await refused(ground, BadRequestError, {"a": [b"1"]}, {"in": 7}, metadata={"x": ""})
    await refused(ground, StaleGenerationError, {"a": [b"1"]}, {"in": 7}, generation=3)
    await refused(ground, OffsetConflictError, {"a": [b"1"]}, {"in": 7}, expected={"in": 5})
    await refused(ground, OffsetConflictError, {"a": [b"1"]}, {"in": 7}, topic_ids={"in": 99})


async def test_a_commit_to_a_topic_that_is_deleted_is_refused(ground: House) -> None:
    await ground.done(ground.broker.topics.delete("in"))
    await refused(ground, TopicNotFoundError, {"a": [b"1"]}, {"in": 7})


async def test_a_transaction_writes_to_100_topics_at_most(ground: House) -> None:
    many = {f"t{n}": [b"x"] for n in range(limits.TRANSACTION_TOPICS_MAX + 1)}
    await refused(ground, BadRequestError, many)
    del many["t0"]
    assert len((await done(ground, many)).produced) == limits.TRANSACTION_TOPICS_MAX


async def test_a_transaction_that_has_room_for_some_of_its_topics_makes_none(ground: House) -> None:
    shares = ground.broker._writes.admission._shares
    shares.limit = shares.used + 2
    await refused(ground, BadRequestError, {"a": [b"1"], "b": [b"2"], "c": [b"3"]})
    await done(ground, {"a": [b"1"]})


async def test_every_offset_goes_strictly_forward(ground: House) -> None:
    await ground.appended("in2", b"x", b"y")
    await done(ground, {"a": [b"1"]}, {"in": 7, "in2": 1})
    for again in ({"in": 7}, {"in": 6}, {"in": 8, "in2": 1}):
        error = await refused(ground, CommitBackwardError, {"a": [b"2"]}, again)
        assert error.data["committed"] in (7, 1)
        assert error.detail.endswith("if this step was done already, read on from there.")
    await refused(ground, CommitBackwardError, {"a": [b"2"]}, {"in": 7}, allow_backward=True)
    assert await ground.values("a") == [b"1"]


async def test_a_blind_retry_of_a_step_cannot_double_it(ground: House) -> None:
    tasks = [begun(ground, transaction({"out": [b"step"]}, {"in": 1})) for _ in range(4)]
    await ground.clock.advance(1)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers[0], Transacted)
    assert [type(answer) for answer in answers[1:]] == [CommitBackwardError] * 3
    assert await ground.values("out") == [b"step"]


async def test_expected_null_means_that_nothing_was_committed(ground: House) -> None:
    await done(ground, {"a": [b"1"]}, {"in": 1}, expected={"in": None})
    await refused(ground, OffsetConflictError, {"a": [b"1"]}, {"in": 2}, expected={"in": None})
    await done(ground, {"a": [b"2"]}, {"in": 2}, expected={"in": 1})


async def test_a_zombie_whose_lease_was_taken_over_changes_nothing(ground: House) -> None:
    old = await ground.done(ground.broker.groups.take_lease("g", "zombie", 1_000))
    await ground.clock.advance(2)
    new = await ground.done(ground.broker.groups.take_lease("g", "heir", 60_000))
    for generation in (old.generation, None):
        await refused(ground, StaleGenerationError, {"a": [b"z"]}, {"in": 1}, generation=generation)
    await done(ground, {"a": [b"h"]}, {"in": 1}, generation=new.generation)
    assert await ground.values("a") == [b"h"]


async def test_a_repeated_transaction_gets_the_first_answer(ground: House) -> None:
    asked = {"a": [b"1"], "b": [b"2", b"3"]}
    await ground.appended("b", b"before")
    first = await done(ground, asked, {"in": 4}, key="k")
    again = await done(ground, asked, {"in": 4}, key="k")
    assert (first.replayed, again.replayed) == (False, True)
    assert (again.produced, again.committed) == (first.produced, first.committed)
    assert await ground.values("b") == [b"before", b"2", b"3"]


async def test_a_repeat_in_flight_waits_and_gets_the_first_answer(ground: House) -> None:
    ground.journal.hold()
    asked = transaction({"a": [b"1"]}, {"in": 4}, key="k")
    first = begun(ground, asked)
    await ground.clock.advance(0.01)
    again = begun(ground, asked)
    late = begun(ground, asked, timeout_ms=100)
    await ground.clock.advance(1)
    assert not first.done()
    assert not again.done()
    with pytest.raises(OutcomeUnknownError):
        await late
    ground.journal.release()
    await ground.clock.advance(1)
    assert (await again).produced == (await first).produced
    assert ground.broker.pending.used == 0


async def test_another_transaction_under_the_same_key_is_refused(ground: House) -> None:
    await done(ground, {"a": [b"1"]}, key="k", body="one")
    await refused(ground, IdempotencyMismatchError, {"b": [b"1"]}, key="k", body="two")
    await refused(ground, IdempotencyMismatchError, {"a": [b"2"]}, key="k", body="two")


async def test_a_repeat_after_one_of_its_topics_was_deleted_is_refused(ground: House) -> None:
    asked = {"a": [b"1"], "b": [b"2"]}
    await done(ground, asked, key="k")
    await ground.done(ground.broker.topics.delete("a"))
    await refused(ground, IdempotencyMismatchError, asked, key="k")
    assert await ground.values("b") == [b"2"]


async def test_a_fenced_transaction_fails_whole_and_frees_its_bytes(ground: House) -> None:
    ground.journal.hold()
    asked = transaction({"a": [b"1"]}, {"in": 4}, key="k")
    tasks = [begun(ground, asked) for _ in range(2)]
    await ground.clock.advance(0.01)
    ground.journal.fenced = True
    ground.journal.release()
    await ground.clock.advance(1)
    for task in tasks:
        with pytest.raises(FencedError):
            await task
    assert committed(ground) is None
    assert ground.broker.pending.used == 0


async def test_a_transaction_waits_for_the_shortest_linger_of_its_topics(ground: House) -> None:
    await ground.topic("slow", linger_ms=5_000)
    await ground.topic("fast", linger_ms=20)
    task = begun(ground, transaction({"slow": [b"1"], "fast": [b"2"]}))
    await ground.clock.advance(0.019)
    assert not task.done()
    await ground.clock.advance(0.001)
    await task


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_topics=False)

    async def test_one_missing_topic_refuses_all_of_it(self, house: House) -> None:
        await house.topic("a")
        await refused(house, TopicNotFoundError, {"a": [b"1"], "none": [b"2"]})
        assert await house.values("a") == []
