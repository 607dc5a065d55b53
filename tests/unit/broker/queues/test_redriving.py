"""Dead letters become records again, each once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from seb_appliance.broker.access.audit import THE_APPLIANCE
from seb_appliance.broker.queues.redriving import Redriven, Wanted
from seb_appliance.broker.values import From, NewRecords, ReadRequest, pack_headers
from seb_appliance.errors import BadRequestError, ForbiddenError
from tests.unit.broker.conftest import ADMIN
from tests.unit.broker.queues.conftest import Work

HEADERS = {"seb-dead-queue": b"q", "seb-dead-topic": b"secret", "own": b"1"}


def anything(topic: str) -> None: ...


async def redrive(work: Work, **wanted) -> Redriven:
    redriving = work.queues.redriving.redrive("q", Wanted(**wanted), THE_APPLIANCE, anything)
    return await work.house.done(redriving)


@pytest.fixture
async def dead(work: Work) -> Work:
    """Three dead letters of queue q, of topics t and u."""
    await work.house.appended("t", b"a", b"b")
    await work.house.appended("u", b"c")
    await work.put("t", "u", dead_letter="dead")
    assert await work.reject(*await work.take()) == ["ok"] * 3
    return work


async def test_dead_letters_go_back_once(dead: Work) -> None:
    looked = await redrive(dead, dry_run=True)
    assert (looked.records, looked.before, looked.next_offset) == ({"t": 2, "u": 1}, 0, None)
    assert await redrive(dead) == looked
    assert await dead.house.values("t") == [b"a", b"b", b"a", b"b"]
    assert [(one.value, one.attempt) for one in await dead.take()] == [
        (b"a", 1), (b"b", 1), (b"c", 1)
    ]  # fmt: skip
    for dry_run in (True, False):
        again = await redrive(dead, dry_run=dry_run)
        assert (again.records, again.before) == ({}, 3)
    assert len(await dead.house.values("t")) == 4


async def test_a_restart_and_a_change_of_settings_forget_nothing(dead: Work) -> None:
    await redrive(dead, offsets=[0])
    dead.restart()
    assert (await redrive(dead, dry_run=True)).before == 1
    await dead.put("t", dead_letter="dead")
    assert (await redrive(dead, dry_run=True)).before == 1


async def test_two_at_once_send_nothing_twice(dead: Work) -> None:
    wanted = Wanted()
    both = asyncio.gather(
        *(dead.queues.redriving.redrive("q", wanted, THE_APPLIANCE, anything) for _ in range(2))
    )
    one, other = await dead.house.done(both)
    assert sum(sum(each.records.values()) for each in (one, other)) == 3
    assert len(await dead.house.values("t")) == 4


async def test_a_selection_goes_where_it_is_told_to(dead: Work) -> None:
    assert (await redrive(dead, topic="u", to="other")).records == {"other": 1}
    assert await dead.house.values("other") == [b"c"]
    assert (await redrive(dead, reason="use")).before == 1
    assert (await redrive(dead, reason="else")).records == {}
    assert (await redrive(dead, offsets=[1, 7])).records == {}


async def test_what_is_no_dead_letter_of_the_queue_is_left_alone(work: Work) -> None:
    await work.put("t", dead_letter="dead")
    headers = [HEADERS | {"seb-dead-queue": b"z"}, {}, HEADERS | {"seb-dead-topic": b"no name!"}]
    records = NewRecords([b"1", b"2", b"3"], None, [pack_headers(one) for one in headers])
    reservation = work.house.broker.pending.reserve("", 1)
    append = work.house.broker.appends.append(ADMIN, "dead", records, reservation, None)
    await work.house.done(append)
    assert await redrive(work) == Redriven({}, 0, None)


async def test_a_dead_letter_does_not_go_to_a_topic_that_the_queue_does_not_read(
    work: Work,
) -> None:
    await work.put("t", dead_letter="dead")
    reservation = work.house.broker.pending.reserve("", 1)
    records = NewRecords([b"1"], None, [pack_headers(HEADERS)])
    append = work.house.broker.appends.append(ADMIN, "dead", records, reservation, None)
    await work.house.done(append)
    for dry_run in (True, False):
        assert await redrive(work, dry_run=dry_run) == Redriven({}, 0, None, elsewhere=1)
    assert (await redrive(work, to="elsewhere")).records == {"elsewhere": 1}


async def test_a_forged_dead_letter_needs_the_grant_for_its_topic(work: Work) -> None:
    await work.put("secret", dead_letter="dead")
    records = NewRecords([b"1"], None, [pack_headers(HEADERS)])
    reservation = work.house.broker.pending.reserve("", 1)
    append = work.house.broker.appends.append(ADMIN, "dead", records, reservation, None)
    await work.house.done(append)

    def refuse(topic: str) -> None:
        raise ForbiddenError(f"not {topic}")

    with pytest.raises(ForbiddenError, match="not secret"):
        await work.queues.redriving.redrive("q", Wanted(), THE_APPLIANCE, refuse)
    assert (await redrive(work)).records == {"secret": 1}
    result = await work.house.broker.read("secret", ReadRequest(From(earliest=True)))
    packed = result.slices[0].batch.columns.headers
    assert msgspec.msgpack.decode(packed.get(0)) == {"own": b"1"}


async def test_a_queue_without_dead_letters_says_so(work: Work) -> None:
    await work.put("t")
    with pytest.raises(BadRequestError, match="no topic of dead letters"):
        await redrive(work)
