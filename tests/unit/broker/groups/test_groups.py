"""Consumer groups: where they stand, how far they are behind, resets and deletions."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.groups import groups as groups_module
from seb_appliance.broker.groups.consumer_groups import everybody
from seb_appliance.broker.groups.groups import Groups, ResetRow, offset_bytes
from seb_appliance.broker.ports import GroupOffsetRow
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import (
    BadRequestError,
    CommitBackwardError,
    GroupNotFoundError,
    OffsetConflictError,
)
from seb_appliance.formats.operations import AuditNoted, CommittedOffset, GroupReset
from tests.support.fakes import settle
from tests.unit.broker.conftest import House

EVERYTHING = From(earliest=True)


async def reset(house: House, to: From | None = None, shift: int = 0) -> list[ResetRow]:
    rows = await house.broker.groups.plan_reset("g", ["t"], to, shift)
    await house.done(house.broker.groups.reset("g", rows))
    return rows


# --- looking ---


async def test_lag_is_counted_in_records_bytes_and_seconds(house: House) -> None:
    await house.filled("t", 4)
    committed_us = house.clock.wall_us()
    await house.commit("g", {"t": 2})
    now_us = house.clock.wall_us()
    view = await house.group()
    [topic] = view.topics
    assert (topic.lag.records, topic.log_end_offset) == (2, 4)
    index = house.broker._catalog.topic("t").index
    assert topic.lag.bytes == sum(index.lengths[2:])
    assert topic.lag.seconds == (now_us - index.created_us[2]) / 1_000_000 > 0
    assert view.lag == topic.lag
    assert committed_us < topic.committed_us == view.committed_us


async def test_a_group_at_the_log_end_has_no_lag(house: House) -> None:
    await house.filled("t", 4)
    await house.commit("g", {"t": 4})
    await house.clock.advance(100)
    lag = (await house.group()).lag
    assert (lag.records, lag.bytes, lag.seconds) == (0, 0, 0.0)


async def test_the_total_lag_adds_records_up_and_takes_the_oldest(house: House) -> None:
    await house.filled("t", 4)
    await house.filled("u", 4)
    await house.commit("g", {"t": 1, "u": 2})
    view = await house.group()
    t, u = view.topics
    assert view.lag.records == 5
    assert view.lag.bytes == t.lag.bytes + u.lag.bytes
    assert view.lag.seconds == t.lag.seconds > u.lag.seconds


async def test_a_group_reads_on_from_its_offset(house: House) -> None:
    await house.filled("t", 4)
    request = ReadRequest(EVERYTHING)
    none = await house.broker.groups.read("g", "t", request, default=From(latest=True))
    assert (none.committed_offset, none.lag.records, none.result.next_offset) == (None, 0, 4)
    first = await house.broker.groups.read("g", "t", request, default=EVERYTHING)
    assert (first.committed_offset, first.lag.records) == (None, 4)
    await house.commit("g", {"t": 3})
    read = await house.broker.groups.read("g", "t", request, default=EVERYTHING)
    assert (read.committed_offset, read.lag.records, read.result.next_offset) == (3, 1, 4)


async def test_groups_are_paged_in_order_of_their_names(house: House) -> None:
    await house.filled("t", 1)
    for group in ("c", "a", "d", "b"):
        await house.commit(group, {"t": 1})
    for begin, expected in (("", (["a", "b", "c"], "c")), ("c", (["d"], None)), ("d", ([], None))):
        views, after = await house.broker.groups.page(begin, 3, lambda *_: True, everybody)
        assert ([view.group for view in views], after) == expected
    await house.done(house.broker.groups.delete("b"))
    assert await house.group_names() == ["a", "c", "d"]


async def test_a_page_goes_on_after_a_group_that_may_be_seen(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GROUPS_PER_PAGE_LOOKED_AT", 2)
    await house.filled("t", 1)
    for group in "abcdefg":
        await house.commit(group, {"t": 1})
    for begin, expected in (("", (["b"], "b")), ("b", (["f"], None))):
        views, after = await house.broker.groups.page(
            begin, 1, lambda group, _: group in "bf", everybody
        )
        assert ([view.group for view in views], after) == expected


async def test_a_group_with_nothing_to_be_seen_is_not_there(house: House) -> None:
    await house.filled("t", 1)
    await house.commit("g", {"t": 1})
    with pytest.raises(GroupNotFoundError):
        await house.broker.groups.describe("g", lambda _, topic: topic is None, everybody)
    with pytest.raises(GroupNotFoundError):
        await house.group("none")


# --- resets, deletions ---


async def test_a_plan_changes_nothing_and_a_reset_puts_it_in_force(house: House) -> None:
    topic_id = await house.filled("t")
    await house.commit("g", {"t": 7}, metadata={"t": "note"})
    rows = await house.broker.groups.plan_reset("g", ["t"], EVERYTHING, 0)
    assert rows == [ResetRow("t", topic_id, 7, 0, 0)]
    assert await house.stand() == 7
    await house.done(house.broker.groups.reset("g", rows))
    assert await house.stand() == 0
    event, noted = house.journal.entries[-1].entry.contents.operations
    assert event == GroupReset(group="g", offsets=(CommittedOffset(topic_id, 0),))
    assert (noted.action, noted.subject) == ("group_reset", "g")


async def test_a_reset_to_a_time_finds_the_record_of_that_time(house: House) -> None:
    await house.filled("t", 5)
    await house.commit("g", {"t": 5})
    at_us = house.broker._catalog.topic("t").index.newest_us[2]
    [row] = await reset(house, From(timestamp_us=at_us))
    assert (row.before, row.after) == (5, 2)


async def test_a_shift_stays_within_what_can_be_read(house: House) -> None:
    await house.filled("t", 5)
    await house.commit("g", {"t": 3})
    assert [(await reset(house, shift=n))[0].after for n in (-1, 2, 9, -9)] == [2, 4, 5, 0]


async def test_a_topic_without_an_offset_is_not_shifted(house: House) -> None:
    await house.filled("t", 5)
    assert await reset(house, shift=1) == []
    assert await house.group_names() == []


async def test_a_reset_makes_an_offset_where_there_was_none(house: House) -> None:
    await house.filled("t", 5)
    [row] = await reset(house, From(latest=True))
    assert (row.before, row.after) == (None, 5)
    assert await house.stand() == 5


async def test_a_reset_of_a_topic_made_anew_since_the_plan_is_refused(house: House) -> None:
    await house.filled("t", 5)
    rows = await house.broker.groups.plan_reset("g", ["t"], From(latest=True), 0)
    await house.done(house.broker.topics.delete("t"))
    await house.filled("t", 1)
    with pytest.raises(OffsetConflictError):
        await house.broker.groups.reset("g", rows)


async def test_a_commit_that_passed_a_reset_in_the_window_is_decided_after_it(
    house: House,
) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3})
    rows = await house.broker.groups.plan_reset("g", ["t"], From(latest=True), 0)
    resetting = asyncio.ensure_future(house.broker.groups.reset("g", rows))
    await settle()
    commit = house.committing("g", {"t": 4})
    await house.clock.advance(1)
    await resetting
    with pytest.raises(CommitBackwardError):
        await commit


async def test_a_reset_notes_where_commits_under_way_had_put_the_group(house: House) -> None:
    """They are admitted, and not stored when the plan is made."""
    await house.filled("t")
    await house.commit("g", {"t": 3})
    committing = house.committing("g", {"t": 7})
    await settle()
    groups = house.broker.groups
    [planned] = await groups.plan_reset("g", ["t"], From(earliest=True), 0)
    [done] = await house.done(groups.reset("g", [planned]))
    await committing
    assert (planned.before, done.before, done.after) == (3, 7, 0)
    noted = house.journal.entries[-1].entry.contents.operations[-1]
    assert isinstance(noted, AuditNoted)
    assert (noted.action, noted.before) == ("group_reset", '{"offsets":{"t":7}}')


async def test_a_deletion_notes_where_commits_under_way_had_put_the_group(house: House) -> None:
    await house.filled("t")
    committing = house.committing("g", {"t": 7})
    await settle()
    await house.done(house.broker.groups.delete("g"))
    await committing
    noted = house.journal.entries[-1].entry.contents.operations[-1]
    assert isinstance(noted, AuditNoted)
    assert (noted.action, noted.before) == ("group_deleted", '{"offsets":{"t":7}}')


# --- deleted topics ---


@pytest.fixture
def slices_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "_LOOKED_AT_IN_A_SLICE", 2)


async def test_what_a_deleted_topic_leaves_behind_goes_in_slices_and_is_never_seen(
    house: House, slices_of_two: None
) -> None:
    await house.filled("t")
    await house.filled("u")
    for name in "abcdefg":
        await house.commit(name, {"t": 1, "u": 2} if name in "bg" else {"t": 1})
    await house.done(house.broker.groups.take_lease("f", "worker", 60_000))
    kept = house.broker._catalog.groups
    house.broker._forgetting = asyncio.get_running_loop().call_later(9, print)  # held
    await house.done(house.broker.topics.delete("t"))
    assert await house.group_names() == ["b", "f", "g"]
    assert (await house.group("f")).topics == []
    assert [topic.topic for topic in (await house.group("b")).topics] == ["u"]
    with pytest.raises(GroupNotFoundError):
        await house.group("c")
    house.broker._forgetting.cancel()
    house.broker._forget_some()
    await settle()
    assert house.broker.groups.count == 3
    assert kept.names("", 9) == ["b", "f", "g"]
    assert not kept._gone
    assert kept.offsets_shares.used == 2 * offset_bytes("")


async def test_a_topic_that_is_deleted_during_a_pass_gets_one_of_its_own(
    slices_of_two: None,
) -> None:
    rows = [GroupOffsetRow(name, topic, 1, "", 0) for name in "abcdef" for topic in (1, 2, 3)]
    groups = Groups(rows, [], {}, 0)
    groups.forget_topic(1)
    assert groups.forget_some()
    groups.forget_topic(2)
    while groups.forget_some():
        pass
    assert all(set(groups._by_name[name].offsets) == {3} for name in "abcdef")


async def test_a_group_that_a_deleted_topic_leaves_behind_takes_no_room(
    house: House,
) -> None:
    house.broker._catalog.groups.shares.limit = 2
    await house.filled("t")
    await house.filled("u")
    for name in "ab":
        await house.commit(name, {"t": 1})
    house.broker._forgetting = asyncio.get_running_loop().call_later(9, print)  # held
    await house.done(house.broker.topics.delete("t"))
    assert house.broker.groups.count == 2
    await house.commit("c", {"u": 1})
    assert house.broker.groups.count == 1
    house.broker._forgetting.cancel()


async def test_offsets_take_no_more_than_their_bytes(
    house: House,
) -> None:
    for topic in "tuv":
        await house.filled(topic)
    house.broker._catalog.groups.offsets_shares.limit = 2 * offset_bytes("") + 10
    committing = [house.committing("g", {"t": 1}), house.committing("h", {"u": 1})]
    await settle()  # neither is stored yet, and both count
    with pytest.raises(BadRequestError, match="bytes of committed offsets"):
        await house.commit("g", {"v": 1})
    await asyncio.gather(*committing)
    with pytest.raises(BadRequestError, match="bytes of committed offsets"):
        await house.commit("h", {"u": 2}, metadata={"u": "eleven chars"})
    await house.commit("g", {"t": 2}, metadata={"t": "ten chars."})
    await house.commit("g", {"t": 3}, metadata={"t": "ten others"})
    rows = await house.broker.groups.plan_reset("h", ["v"], EVERYTHING, 0)
    with pytest.raises(BadRequestError, match="bytes of committed offsets"):
        await house.broker.groups.reset("h", rows)
    await house.done(house.broker.groups.delete("h"))
    await house.commit("g", {"v": 1})


async def test_a_deleted_group_begins_anew(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 7})
    await house.done(house.broker.groups.delete("g"))
    assert await house.group_names() == []
    with pytest.raises(GroupNotFoundError):
        await house.broker.groups.delete("g")
    await house.commit("g", {"t": 1}, expected={"t": None})
    assert await house.stand() == 1


async def test_a_commit_behind_a_deletion_of_the_group_in_one_window_begins_anew(
    house: House,
) -> None:
    await house.filled("t")
    await house.filled("u")
    await house.commit("g", {"t": 7, "u": 7})
    deleting = asyncio.ensure_future(house.broker.groups.delete("g"))
    await settle()
    again = asyncio.ensure_future(house.broker.groups.delete("g"))
    await settle()
    commit = house.committing("g", {"t": 1})
    await house.clock.advance(1)
    await asyncio.gather(deleting, commit)
    with pytest.raises(GroupNotFoundError):
        await again
    assert (await house.stand(), await house.stand(topic="u")) == (1, None)


# --- limits ---


async def test_groups_that_are_not_stored_yet_count_against_their_limit(
    house: House,
) -> None:
    house.broker._catalog.groups.shares.limit = 3
    await house.filled("t")
    await house.commit("a", {"t": 1})
    two = [house.committing(group, {"t": 1}) for group in ("b", "c")]
    await settle()
    with pytest.raises(BadRequestError, match="3 of 3 groups are in use"):
        await house.commit("d", {"t": 1})
    with pytest.raises(BadRequestError):
        await house.broker.groups.take_lease("d", "x", 1000)
    with pytest.raises(BadRequestError):
        await house.broker.groups.reset("d", [ResetRow("t", 1, None, 0, 0)])
    await house.commit("a", {"t": 2})
    await asyncio.gather(*two)
    await house.done(house.broker.groups.delete("b"))
    await house.commit("d", {"t": 1})
