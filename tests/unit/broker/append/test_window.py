"""What a window holds, and how long it stays open."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.window import Linger, Window
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.formats.operations import TopicDeleted
from seb_appliance.formats.topic_settings import TopicSettings
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House, Nobody

PLAIN = NewRecords([b"plain"])


KEYED = NewRecords([None], keys=[b"record key"])


HEADED = NewRecords([b"headed"], headers=[b"\x80"])


BOTH = NewRecords([b"a", b"b"], keys=[b"x", None], headers=[b"", b"\x80"])


@pytest.mark.parametrize("count", range(5))
async def test_records_come_out_with_the_keys_and_headers_that_they_went_in_with(
    house: House, count: int
) -> None:
    """Whatever came before and after them in the same batch."""
    await house.topic("t")
    for records in permutations([PLAIN, KEYED, HEADED, BOTH], count):
        appends = []
        for one in records:
            reservation = house.broker.pending.reserve(OPERATOR, 1)
            append = house.broker.appends.append(ADMIN, "t", one, reservation)
            appends.append(asyncio.ensure_future(append))
        await house.clock.advance(1)
        placed = [await append for append in appends]
        went_in = [
            (
                value,
                one.keys[n] if one.keys else None,
                one.headers[n] if one.headers else b"",
            )
            for one in records
            for n, value in enumerate(one.values)
        ]
        start = From(offset=placed[0].offset) if placed else From(latest=True)
        assert await came_out(house, start) == went_in


async def came_out(house: House, start: From) -> list[tuple[bytes | None, bytes | None, bytes]]:
    result = await house.broker.read("t", ReadRequest(start))
    found = []
    for piece in result.slices:
        columns = piece.batch.columns
        for n in range(piece.begin, piece.end):
            record_key = columns.keys.get(n) if columns.keys is not None else None
            headers = columns.headers.get(n) if columns.headers is not None else b""
            found.append((columns.values.get(n), record_key, headers or b""))
    return found


@pytest.mark.parametrize("first", [KEYED, HEADED, BOTH])
async def test_a_plain_value_behind_keys_and_headers_has_neither(
    house: House, first: NewRecords
) -> None:
    await house.topic("t")
    reservation = house.broker.pending.reserve(OPERATOR, 1)
    appended = asyncio.ensure_future(house.broker.appends.append(ADMIN, "t", first, reservation))
    await settle()
    assert house.broker.appends.append_nowait(ADMIN, "t", b"plain", 5, Nobody())
    await house.clock.advance(1)
    after = (await appended).offset + len(first.values)
    assert await came_out(house, From(offset=after)) == [(b"plain", None, b"")]
    assert len(house.journal.entries) == 2


@pytest.mark.parametrize("end", ["resolve", "fail"])
async def test_a_window_that_is_done_holds_nothing(end: str) -> None:
    """A topic and a group remember the window that changed them last, for as long as they live."""
    window = Window()
    told: list[object] = []
    window.when_done(told.append, told.append)
    window.add_event(TopicDeleted(topic_id=1))
    getattr(window, end)(0.5)
    assert told == [0.5]
    assert window.is_done
    assert window.steps == window._on_stored == window._on_failed == []


async def test_a_stretched_window_holds_what_comes_meanwhile(house):
    house.broker.linger.default_ms = 5_000
    first = house.append("t", b"1")
    await house.clock.advance(4.9)
    second = house.append("t", b"2")
    await house.clock.advance(0.05)
    assert not first.done()
    await house.clock.advance(0.1)
    assert first.done()
    assert second.done()
    assert house.broker.counters.entries == 1
    assert house.broker.counters.open_seconds == 5.0
    assert house.broker.counters.writes == 2
    assert house.broker.topics.get("t").effective.linger_ms == 5_000


async def test_a_stretched_window_closes_at_the_usual_linger_if_it_holds_enough(house):
    await house.topic("t")
    house.broker.linger.default_ms, house.broker.linger.enough = 5_000, 10
    burst = [house.append("t", b"1") for _ in range(10)]
    await house.clock.advance(0.009)
    assert not burst[0].done()
    await house.clock.advance(0.002)
    assert all(one.done() for one in burst)


async def test_a_stretched_window_with_few_records_waits_no_longer_than_its_linger(house):
    await house.topic("t")
    house.broker.linger.default_ms, house.broker.linger.enough = 5_000, 10
    few = [house.append("t", b"1") for _ in range(9)]
    await house.clock.advance(4.99)
    assert not few[0].done()
    await house.clock.advance(0.02)
    assert all(one.done() for one in few)
    assert house.clock.armed == 0, "nothing is left to ring"


async def test_a_burst_into_an_old_window_waits_for_one_usual_linger_at_most(house):
    await house.topic("t")
    house.broker.linger.default_ms, house.broker.linger.enough = 5_000, 10
    first = house.append("t", b"1")
    await house.clock.advance(2)
    rest = [house.append("t", b"1") for _ in range(9)]
    await house.clock.advance(0.011)
    assert first.done()
    assert all(one.done() for one in rest)


@pytest.mark.parametrize(
    ("patience_ms", "linger_ms"),
    [
        (60_000, 28_000),
        (30_000, 28_000),
        (10_000, 8_000),
        (4_000, 2_000),
        (3_000, 1_500),
        (0, 1_000),
    ],
)
def test_a_stretched_window_leaves_the_bucket_time_before_its_caller_gives_up(
    patience_ms: int, linger_ms: int
) -> None:
    linger = Linger(1_000)
    linger.default_ms = 28_000
    assert linger.within(28_000, patience_ms) == linger_ms
    assert linger.within(10_000, patience_ms) == 10_000, "a linger of a topic's own is kept"
    assert Linger(10_000).within(10_000, patience_ms) == 10_000, "and that of the settings"


def test_a_stretch_is_what_the_budget_adds_and_no_factor_where_enough_records_end_it() -> None:
    linger = Linger(1_000)
    assert (linger.stretched_s, linger.stretch) == (0.0, 1.0)
    linger.default_ms = 28_000
    assert (linger.stretched_s, linger.stretch) == (27.0, 28.0)
    linger.enough = 10
    assert (linger.stretched_s, linger.stretch) == (27.0, 1.0)
    linger = Linger(0)
    assert (linger.stretched_s, linger.stretch) == (0.0, 1.0)


def test_records_of_all_topics_count_and_so_does_each_second_request() -> None:
    window = Window()
    for topic_id in (1, 2):
        for offset in range(3):
            window.add_value(topic_id, offset + 7, None, b"v", 0, 1)
    assert window.holds(6)
    assert not window.holds(7)
    for _ in range(14):
        window.join(0.0, 1.0)
    assert window.holds(7)


async def test_a_topic_with_a_linger_of_its_own_keeps_it(house):
    await house.topic("own", linger_ms=20)
    house.broker.linger.default_ms = 5_000
    appended = house.append("own", b"1")
    await house.clock.advance(0.03)
    assert appended.done()
    assert house.broker.topics.get("own").effective.linger_ms == 20


async def test_a_commit_waits_as_long_as_records_do(house):
    await house.filled("t", 3)
    house.broker.linger.default_ms = 5_000
    committing = house.committing("g", {"t": 2})
    await house.clock.advance(4)
    assert not committing.done()
    await house.clock.advance(1.1)
    await asyncio.wait_for(committing, 60)


async def test_an_operator_does_not_wait_for_a_stretched_window(house):
    house.broker.linger.default_ms = 5_000
    creating = asyncio.ensure_future(house.broker.topics.create("t", TopicSettings()))
    await house.clock.advance(0.06)
    assert creating.done()


def test_the_first_caller_opens_a_window_and_the_most_urgent_one_closes_it() -> None:
    window = Window()
    assert window.join(1.0, 9.0)
    assert not window.join(2.0, 10.0)
    assert window.join(3.0, 5.0)
    assert (window.opened_s, window.deadline_s, window.callers) == (1.0, 5.0, 3)


def test_a_full_window_closes_at_once() -> None:
    window = Window()
    window.add_value(1, 0, None, b"a", 0, limits.WINDOW_BYTES_MAX)
    assert not window.is_full
    assert window.join(1.0, 9.0)
    assert (window.is_full, window.deadline_s) == (True, 1.0)
