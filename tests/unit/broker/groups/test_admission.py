"""Commits: what is committed, when it is refused, what that rests on, and what it costs."""

from __future__ import annotations

import asyncio

import pytest

from seb_appliance import limits
from seb_appliance.broker.groups.admission import Commit
from seb_appliance.broker.groups.groups import offset_bytes
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import (
    BadNameError,
    BadRequestError,
    CommitBackwardError,
    CommitBeyondEndError,
    GroupNotFoundError,
    OffsetConflictError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from seb_appliance.formats.operations import CommittedOffset, OffsetsCommitted
from tests.support.fakes import settle
from tests.unit.broker.conftest import House

# --- commits ---


async def test_a_commit_moves_the_group_forward(house: House) -> None:
    topic_id = await house.filled("t")
    assert await house.commit("g", {"t": 3}) == (CommittedOffset(topic_id, 3),)
    await house.commit("g", {"t": 10})
    assert await house.stand() == 10


async def test_a_commit_at_the_same_offset_again_is_taken(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3})
    await house.commit("g", {"t": 3})
    assert await house.stand() == 3


async def test_a_commit_leaves_the_other_topics_of_the_group(house: House) -> None:
    await house.filled("t")
    await house.filled("u")
    await house.commit("g", {"t": 3})
    await house.commit("g", {"u": 4})
    assert (await house.stand(topic="t"), await house.stand(topic="u")) == (3, 4)


async def test_a_commit_below_the_committed_offset_is_refused(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3})
    with pytest.raises(CommitBackwardError) as caught:
        await house.commit("g", {"t": 2})
    assert caught.value.data == {"topic": "t", "committed": 3}
    assert caught.value.detail.endswith("Reset the group, or say allow_backward.")
    assert await house.stand() == 3


async def test_a_commit_that_says_so_moves_backward(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3})
    await house.commit("g", {"t": 2}, allow_backward=True)
    assert await house.stand() == 2


async def test_a_strict_commit_must_move_every_offset(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 0}, strictly_forward=True)
    with pytest.raises(CommitBackwardError):
        await house.commit("g", {"t": 0}, strictly_forward=True)
    with pytest.raises(CommitBackwardError):
        await house.commit("g", {"t": 0}, strictly_forward=True, allow_backward=True)
    await house.commit("g", {"t": 1}, strictly_forward=True)


async def test_a_commit_beyond_the_log_end_is_refused(house: House) -> None:
    await house.filled("t", 2)
    with pytest.raises(CommitBeyondEndError) as caught:
        await house.commit("g", {"t": 3})
    assert caught.value.data == {"topic": "t", "log_end_offset": 2}
    assert await house.group_names() == []


async def test_a_commit_up_to_a_record_in_the_same_window_is_taken(house: House) -> None:
    await house.topic("t")
    appended = house.append("t", b"a")
    await settle()
    await house.commit("g", {"t": 1})
    assert (await appended).offset == 0
    assert await house.stand() == 1


async def test_a_commit_of_several_topics_is_all_or_nothing(house: House) -> None:
    await house.filled("t", 2)
    await house.filled("u", 2)
    with pytest.raises(CommitBeyondEndError):
        await house.commit("g", {"t": 1, "u": 3})
    assert await house.group_names() == []


async def test_a_commit_to_a_missing_topic_is_refused(house: House) -> None:
    with pytest.raises(TopicNotFoundError):
        await house.commit("g", {"t": 0})


async def test_metadata_is_kept_with_the_offset_and_goes_with_the_next_commit(
    house: House,
) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3}, metadata={"t": "part 17, ✓"})
    assert (await house.group()).topics[0].metadata == "part 17, ✓"
    await house.commit("g", {"t": 4})
    assert (await house.group()).topics[0].metadata == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"group": "g", "offsets": {}},
        {"group": "g", "offsets": dict.fromkeys(map(str, range(10_001)), 0)},
        {"group": "g", "offsets": {"t": 1}, "metadata": {"u": "x"}},
        {"group": "g", "offsets": {"t": 1}, "expected": {"u": 1}},
        {"group": "g", "offsets": {"t": 1}, "topic_ids": {"u": 1}},
        {"group": "g", "offsets": {"t": 1}, "generation": 0},
        {"group": "g", "offsets": {"t": 1}, "metadata": {"t": "x" * 4097}},
        {"group": "a..b", "offsets": {"t": 1}},
    ],
)
async def test_a_commit_that_makes_no_sense_is_refused(house: House, wrong: dict) -> None:
    await house.filled("t", 2)
    reservation = house.broker.pending.reserve(OPERATOR, 10)
    with pytest.raises((BadRequestError, BadNameError)):
        await house.broker.groups.commit(Commit(**wrong), reservation)
    assert house.broker.pending.used == 0


# --- compare-and-set ---


async def test_a_commit_that_expects_what_is_there_is_taken(house: House) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3}, expected={"t": None})
    await house.commit("g", {"t": 4}, expected={"t": 3})
    assert await house.stand() == 4


@pytest.mark.parametrize("expected", [None, 2, 4])
async def test_a_commit_that_expects_something_else_is_refused(
    house: House, expected: int | None
) -> None:
    await house.filled("t")
    await house.commit("g", {"t": 3})
    with pytest.raises(OffsetConflictError) as caught:
        await house.commit("g", {"t": 5}, expected={"t": expected})
    assert caught.value.data == {"topic": "t", "expected": expected, "committed": 3}
    assert await house.stand() == 3


async def test_a_commit_that_expects_an_offset_where_there_is_none_is_refused(
    house: House,
) -> None:
    await house.filled("t")
    with pytest.raises(OffsetConflictError):
        await house.commit("g", {"t": 5}, expected={"t": 0})


async def test_of_two_conflicting_commits_in_a_window_the_second_waits_for_the_first(
    house: House,
) -> None:
    await house.filled("t")
    house.journal.hold()
    first = house.committing("g", {"t": 3}, expected={"t": None})
    second = house.committing("g", {"t": 4}, expected={"t": None})
    await house.clock.advance(1)
    assert not first.done()
    assert not second.done()
    house.journal.release()
    await house.clock.advance(1)
    await first
    with pytest.raises(OffsetConflictError):
        await second
    assert await house.stand() == 3


async def test_a_refusal_that_rests_on_a_commit_which_is_never_stored_says_try_again(
    house: House,
) -> None:
    await house.filled("t")
    house.journal.hold()
    first = house.committing("g", {"t": 3})
    second = house.committing("g", {"t": 2})
    await house.clock.advance(31)
    with pytest.raises(OutcomeUnknownError):
        await first
    with pytest.raises(StoreUnavailableError):
        await second


# --- topics that come and go ---


async def test_a_commit_that_names_another_topic_id_is_refused(house: House) -> None:
    old_id = await house.filled("t")
    await house.done(house.broker.topics.delete("t"))
    new_id = await house.filled("t")
    with pytest.raises(OffsetConflictError) as caught:
        await house.commit("g", {"t": 3}, topic_ids={"t": old_id})
    assert caught.value.data == {"topic": "t", "topic_id": new_id}
    await house.commit("g", {"t": 3}, topic_ids={"t": new_id})


async def test_deleting_a_topic_takes_its_offsets_along(house: House) -> None:
    await house.filled("t")
    await house.filled("u")
    await house.commit("g", {"t": 3, "u": 3})
    await house.commit("only", {"t": 3})
    await house.done(house.broker.topics.delete("t"))
    assert [topic.topic for topic in (await house.group()).topics] == ["u"]
    assert await house.group_names() == ["g"]
    with pytest.raises(GroupNotFoundError):
        house.broker.groups.topics_of("only")
    with pytest.raises(TopicNotFoundError):
        await house.commit("g", {"t": 4})
    await house.filled("t", 1)
    assert await house.stand() is None


async def test_a_commit_behind_a_deletion_in_the_same_window_is_refused_once_that_is_stored(
    house: House,
) -> None:
    await house.filled("t")
    house.journal.hold()
    deleted = asyncio.ensure_future(house.broker.topics.delete("t"))
    await settle()
    commit = house.committing("g", {"t": 3})
    await house.clock.advance(1)
    assert not commit.done()
    house.journal.release()
    await house.clock.advance(1)
    await deleted
    with pytest.raises(TopicNotFoundError):
        await commit


# --- cost ---


async def test_a_commit_rides_in_the_entry_of_the_records(house: House) -> None:
    await house.filled("t", 1)
    before = len(house.journal.entries)
    appended = house.append("t", b"a")
    commit = house.committing("g", {"t": 1})
    await house.clock.advance(1)
    await asyncio.gather(appended, commit)
    assert len(house.journal.entries) == before + 1
    contents = house.journal.entries[-1].entry.contents
    kinds = [type(operation).__name__ for operation in contents.operations]
    assert kinds == ["Append", "AuditNoted", "OffsetsCommitted"]


async def test_commits_wait_for_linger(house: House) -> None:
    await house.filled("t")
    before = len(house.journal.entries)
    first = house.committing("g", {"t": 1})
    await house.clock.advance(0.009)
    second = house.committing("h", {"t": 2})
    assert len(house.journal.entries) == before
    await house.clock.advance(0.001)
    assert len(house.journal.entries) == before + 1
    await asyncio.gather(first, second)


async def test_a_commit_holds_its_bytes_until_it_is_stored(house: House) -> None:
    await house.filled("t")
    house.journal.hold()
    commit = house.committing("g", {"t": 1})
    await house.clock.advance(31)
    with pytest.raises(OutcomeUnknownError):
        await commit
    assert house.broker.pending.used > limits.PENDING_CALL_BYTES  # the window holds it still
    house.journal.release()
    await settle()
    assert house.broker.pending.used == 0


async def test_nothing_of_a_commit_is_kept_beside_the_group_once_it_is_stored(
    house: House,
) -> None:
    await house.filled("t")
    await asyncio.gather(house.done(house.commit("g", {"t": 1})), house.commit("h", {"t": 2}))
    admission = house.broker.groups._admission
    assert (admission._ahead, admission._changed) == ({}, {})
    assert (admission._makers, admission._taken) == ({}, {})
    groups = house.broker._catalog.groups
    assert (groups.shares.used, groups.offsets_shares.used) == (2, 2 * offset_bytes(""))


async def test_what_is_stored_is_the_result_without_its_conditions(house: House) -> None:
    topic_id = await house.filled("t")
    await house.commit("g", {"t": 3}, expected={"t": None}, topic_ids={"t": topic_id})
    [note, event] = house.journal.entries[-1].entry.contents.operations
    assert (note.action, note.subject) == ("group_created", "g")
    assert event == OffsetsCommitted(group="g", offsets=(CommittedOffset(topic_id, 3),))
