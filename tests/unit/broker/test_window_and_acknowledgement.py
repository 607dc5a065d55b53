"""Window, seal, one PUT in flight, apply, acknowledge."""

import asyncio
from itertools import permutations

import pytest

from seb_appliance import limits
from seb_appliance.broker.append.sealing import seal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.settings import BrokerSettings
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, NewRecords, ReadRequest
from seb_appliance.errors import (
    FencedError,
    InternalError,
    OutcomeUnknownError,
    OverloadedError,
    RecordTooLargeError,
    SebError,
    ShuttingDownError,
    TopicNotFoundError,
)
from seb_appliance.formats.operations import (
    Append,
    AuditNoted,
    TopicCreated,
    TopicDeleted,
    TopicSettings,
)
from tests.support.fakes import settle
from tests.unit.broker.conftest import ADMIN, House


async def test_nothing_is_acknowledged_before_linger_has_passed(house: House) -> None:
    waiting = house.append("t", b"a")
    await house.clock.advance(0.009)
    assert not waiting.done()
    await house.clock.advance(0.001)
    assert (await waiting).offset == 0


async def test_appends_of_one_window_share_one_entry_and_one_batch(house: House) -> None:
    tasks = [house.append("t", b"a"), house.append("t", b"b", b"c"), house.append("u", b"d")]
    await house.clock.advance(0.01)
    assert [(await t).offset for t in tasks] == [0, 1, 0]
    (encoded,) = house.journal.entries
    kinds = [type(operation) for operation in encoded.entry.contents.operations]
    assert kinds == [TopicCreated, Append, AuditNoted, TopicCreated, Append, AuditNoted]
    assert [s.record_count for s in encoded.entry.contents.sections] == [3, 1]


async def test_while_one_entry_is_in_flight_the_next_window_fills(house: House) -> None:
    house.journal.hold()
    first = house.append("t", b"a")
    await house.clock.advance(0.01)
    later = [house.append("t", b"b"), house.append("t", b"c")]
    await house.clock.advance(5)
    assert not first.done()
    assert not any(t.done() for t in later)
    house.journal.release()
    await house.clock.advance(0.01)
    assert [(await t).offset for t in [first, *later]] == [0, 1, 2]
    assert len(house.journal.entries) == 2


async def test_an_idle_broker_arms_no_timer_and_writes_nothing(house: House) -> None:
    await house.appended("t", b"a")
    entries = len(house.journal.entries)
    assert house.clock.armed == 0
    await house.clock.advance(3600)
    assert len(house.journal.entries) == entries


async def test_a_full_window_closes_without_waiting_for_linger(house: House) -> None:
    await house.topic("t", linger_ms=10_000)
    waiting = [house.append("t", b"x" * 1_000_000) for _ in range(9)]
    answers = await asyncio.gather(*waiting)  # sealing a large window takes a thread
    assert [answer.offset for answer in answers] == list(range(9))


async def test_a_window_closes_at_the_earliest_linger_of_its_topics(house: House) -> None:
    await house.topic("slow", linger_ms=5_000)
    await house.topic("fast", linger_ms=20)
    slow = house.append("slow", b"a")
    await house.clock.advance(1)
    assert not slow.done()
    fast = house.append("fast", b"b")
    await house.clock.advance(0.02)
    assert slow.done()
    assert fast.done()
    assert house.clock.armed == 0, "nothing is left to ring at the later one"


@pytest.mark.parametrize(
    ("settings", "wait_s"),
    [(BrokerSettings(linger_ms=400), 0.05), (BrokerSettings(linger_ms=20), 0.02)],
)
async def test_an_operators_event_waits_for_company_but_not_for_long(
    house: House, wait_s: float
) -> None:
    events = [
        asyncio.ensure_future(house.broker.topics.create(name, TopicSettings())) for name in "ab"
    ]
    await house.clock.advance(wait_s - 0.001)
    assert house.journal.entries == []
    await house.clock.advance(0.001)
    assert [(await event)[0].name for event in events] == ["a", "b"]
    assert len(house.journal.entries) == 1


async def test_early_flush_closes_the_window_of_a_lone_caller_at_once(house: House) -> None:
    await house.topic("t", linger_ms=1_000, early_flush=True)
    alone = house.append("t", b"a")
    await settle()
    assert alone.done()


async def test_early_flush_waits_when_others_wait_too(house: House) -> None:
    await house.topic("t", linger_ms=1_000, early_flush=True)
    house.journal.hold()
    first, second = house.append("t", b"a"), house.append("t", b"b")
    await house.clock.advance(0.5)
    house.journal.release()
    await settle()
    assert first.done()
    third = house.append("t", b"c")
    await house.clock.advance(1)
    assert (await second).offset == 1
    assert (await third).offset == 2


async def test_a_caller_whose_time_is_up_is_told_unknown_and_the_record_stays(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a", timeout_ms=200)
    await house.clock.advance(0.2)
    with pytest.raises(OutcomeUnknownError):
        await waiting
    house.journal.release()
    await house.clock.advance(1)
    assert await house.values("t") == [b"a"]
    assert house.broker.pending.used == 0


async def test_a_fenced_writer_acknowledges_nothing_any_more(house: House) -> None:
    await house.appended("t", b"a")
    house.journal.hold()
    in_flight = house.append("t", b"b")
    await house.clock.advance(0.01)
    behind = house.append("t", b"c")
    house.journal.fenced = True
    house.journal.release()
    await house.clock.advance(1)
    for task in (in_flight, behind, house.append("t", b"d")):
        with pytest.raises(FencedError):
            await task
    assert await house.values("t") == [b"a"]
    assert house.broker.pending.used == 0


async def test_an_append_over_the_pending_budget_is_refused(house: House) -> None:
    house.broker.pending.limit = limits.PENDING_CALL_BYTES + limits.PENDING_RECORD_BYTES + 10
    house.journal.hold()
    waiting = house.append("t", b"12345678")
    await settle()
    with pytest.raises(OverloadedError):
        house.broker.pending.reserve(OPERATOR, 8)
    house.journal.release()
    await house.clock.advance(1)
    await waiting
    house.broker.pending.reserve(OPERATOR, 8).release()


async def test_no_append_is_taken_while_sqlite_is_too_far_behind(house: House) -> None:
    house.state.is_far_behind = True
    with pytest.raises(OverloadedError):
        await house.append("t", b"a")
    house.state.is_far_behind = False
    assert (await house.appended("t", b"a")).offset == 0


async def test_stopping_seals_what_is_open_and_refuses_what_comes(house: House) -> None:
    await house.topic("t", linger_ms=10_000)
    waiting = house.append("t", b"a")
    await settle()
    house.broker.stop_accepting()
    refused = house.append("t", b"b")
    drained = asyncio.ensure_future(house.broker.drain(5))
    await house.clock.advance(1)
    assert (await waiting).offset == 0
    assert await drained
    with pytest.raises(ShuttingDownError):
        await refused


async def test_an_open_window_is_drained_when_there_is_nothing_in_it(house: House) -> None:
    await house.topic("t")
    await house.done(house.broker.topics.trim("t", 0))  # which adds nothing
    assert await house.broker.drain(0)
    waiting = house.append("t", b"a")
    await settle()
    assert not await house.broker.drain(0)
    await house.clock.advance(1)
    assert (await waiting).offset == 0
    assert await house.broker.drain(0)


async def test_what_could_not_be_drained_is_told_unknown(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a")
    await house.clock.advance(1)
    house.broker.stop_accepting()
    drained = asyncio.ensure_future(house.broker.drain(5))
    await house.clock.advance(6)
    assert not await drained
    await house.broker.stop()
    with pytest.raises(OutcomeUnknownError):
        await waiting
    assert house.broker.pending.used == 0


async def test_a_refused_append_leaves_no_topic_and_no_reservation(house: House) -> None:
    with pytest.raises(RecordTooLargeError):
        await house.append("new", b"x" * (1 << 20) + b"x")
    await house.clock.advance(10)
    assert house.broker.topics.all() == []
    assert house.journal.entries == []
    assert house.broker.pending.used == 0


class TestWithoutAutoCreate:
    @pytest.fixture
    def settings(self) -> BrokerSettings:
        return BrokerSettings(auto_create_topics=False)

    async def test_an_append_to_a_missing_topic_is_refused(self, house: House) -> None:
        with pytest.raises(TopicNotFoundError):
            await house.append("t", b"a")

    async def test_a_refusal_that_rests_on_a_pending_deletion_waits_for_it(
        self, house: House
    ) -> None:
        await house.topic("t")
        house.journal.hold()
        deletion = asyncio.ensure_future(house.broker.topics.delete("t"))
        await settle()
        refused = house.append("t", b"a")
        await house.clock.advance(1)
        assert not refused.done()
        house.journal.release()
        await house.clock.advance(1)
        await deletion
        with pytest.raises(TopicNotFoundError):
            await refused


async def test_timestamps_of_the_appliance_never_go_back(house: House) -> None:
    first = await house.appended("t", b"a")
    house.clock.wall_offset_us = -3600 * 1_000_000
    second = await house.appended("t", b"b")
    assert second.timestamp_us >= first.timestamp_us
    created = [e.entry.header.created_us for e in house.journal.entries]
    assert created == sorted(created)


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


@pytest.mark.parametrize("times_us", [[0], [3, 1, 2]])
def test_a_section_tells_the_latest_of_its_records_times(times_us: list[int]) -> None:
    window = Window()
    for time_us in times_us:
        window.add_value(1, 0, None, b"a", time_us, 1)
    (section,) = seal(window, 9).contents.sections
    assert section.largest_timestamp_us == max(times_us)


class Nobody:
    """Who is told of an append, and does not listen."""

    def stored(self, admitted: object, window_s: float, put_s: float) -> None: ...

    def failed(self, error: SebError) -> None: ...


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


async def test_an_event_that_no_start_could_read_stops_the_writer_and_is_not_stored(
    house: House,
) -> None:
    entries = len(house.journal.entries)
    event = TopicDeleted(topic_id=2**53)
    storing = asyncio.ensure_future(
        house.broker._writes.operate(lambda window: window.add_event(event))
    )
    await house.clock.advance(1)
    with pytest.raises(InternalError):
        await storing
    assert len(house.journal.entries) == entries


async def test_what_adds_nothing_to_a_window_is_answered_and_holds_nobody_up(house: House) -> None:
    empty = asyncio.ensure_future(house.broker._writes.operate(lambda _: None))
    await house.clock.advance(0.001)
    joins = house.append("t", b"a")  # into the same window
    await house.clock.advance(1)
    assert joins.done()
    assert empty.result()
    alone = asyncio.ensure_future(house.broker._writes.operate(lambda _: None))
    await house.clock.advance(1)
    assert alone.result()
    assert len(house.journal.entries) == 1
    later = house.append("t", b"b")
    await house.clock.advance(1)
    assert later.done()
    assert house.clock.armed == 0


async def test_an_early_flush_of_nothing_holds_nobody_up(house: House) -> None:
    sequencer = house.broker._sequencer
    sequencer.close_within(sequencer.open_window(), 10.0, early=True)
    await settle()
    later = house.append("t", b"a")
    await house.clock.advance(1)
    assert later.done()


async def test_readiness_tells_of_a_window_past_its_deadline(house: House) -> None:
    sequencer = house.broker._sequencer
    waiting = house.append("t", b"a")
    await settle()
    sequencer._timer.cancel()  # a wake-up is lost
    await house.clock.advance(4)
    assert (await house.broker.readiness()).problems == []
    await house.clock.advance(2)
    (problem,) = (await house.broker.readiness()).problems
    assert "past its deadline" in problem
    sequencer.flush()
    await settle()
    assert waiting.done()
    assert (await house.broker.readiness()).problems == []


async def test_readiness_tells_of_a_window_in_flight_once_its_callers_gave_up(house: House) -> None:
    house.journal.hold()
    waiting = house.append("t", b"a")
    await house.clock.advance(6)
    assert (await house.broker.readiness()).problems == []
    await house.clock.advance(25)
    assert any("deadline" in problem for problem in (await house.broker.readiness()).problems)
    with pytest.raises(OutcomeUnknownError):
        await waiting


class _Told:
    def __init__(self, *, raises: bool = False) -> None:
        self.heard: list[object] = []
        self._raises = raises

    def stored(self, admitted: object, window_s: float, put_s: float) -> None:
        self._hear("stored")

    def failed(self, error: SebError) -> None:
        self._hear(type(error))

    def _hear(self, what: object) -> None:
        self.heard.append(what)
        if self._raises:
            raise RuntimeError("a bug of ours")


async def _told(house: House, *, raises: bool = False) -> _Told:
    told = _Told(raises=raises)
    assert house.broker.appends.append_nowait(ADMIN, "t", b"x", 1, told)
    await settle()
    return told


async def test_who_joins_a_window_after_its_first_gave_up_gives_up_in_time_too(
    house: House,
) -> None:
    await house.topic("t")
    house.journal.hold()
    blocking = house.append("t", b"in flight")
    await house.clock.advance(0.1)
    first = await _told(house)
    await house.clock.advance(30)
    assert first.heard == [OutcomeUnknownError]
    second = await _told(house)
    await house.clock.advance(29)
    assert second.heard == []
    await house.clock.advance(1)
    assert second.heard == [OutcomeUnknownError]
    with pytest.raises(OutcomeUnknownError):
        await blocking


@pytest.mark.parametrize("end", ["stored", "failed", "late"])
async def test_one_who_raises_when_told_keeps_no_other_from_being_told_once(
    house: House, end: str
) -> None:
    await house.topic("t")
    house.journal.hold()
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    raising, other = await _told(house, raises=True), await _told(house)
    window = house.broker._sequencer.open_window()
    window.when_done(lambda _: 1 / 0, lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    behind = house.append("t", b"x")
    await settle()
    if end == "late":
        await house.clock.advance(31)
    house.journal.fenced = end == "failed"
    house.journal.release()
    await house.clock.advance(1)
    expected = {"stored": "stored", "failed": FencedError, "late": OutcomeUnknownError}[end]
    assert raising.heard == other.heard == [expected]
    assert [type(error) for error in seen].count(ZeroDivisionError) == 1
    assert [type(error) for error in seen].count(RuntimeError) == 1
    if end == "stored":
        assert (await behind).offset == 2
        assert house.broker.failure is None
    else:
        with pytest.raises(SebError):
            await behind
    assert house.broker.pending.used == 0
