"""When a member of a Kafka consumer group is gone: sessions, leaving, and the end of all."""

from __future__ import annotations

import pytest

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import Protocol
from tests.support.kafka_groups import INITIAL_S, Groups


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.mark.parametrize(
    "session_ms", [kafka_limits.SESSION_MS_MIN - 1, kafka_limits.SESSION_MS_MAX + 1]
)
async def test_a_session_lasts_neither_too_short_nor_too_long(
    groups: Groups, session_ms: int
) -> None:
    refused = groups.join(session_timeout_ms=session_ms).result()
    assert refused.error == ErrorCode.INVALID_SESSION_TIMEOUT
    nearest = min(max(session_ms, kafka_limits.SESSION_MS_MIN), kafka_limits.SESSION_MS_MAX)
    assert groups.member_id(session_timeout_ms=nearest)


async def test_a_member_that_is_silent_for_its_session_is_gone(groups: Groups) -> None:
    silent, other = await groups.stable({"session_timeout_ms": 6_000}, {})
    await groups.clock.advance(5.9)
    assert groups.heartbeat(other) == ErrorCode.NONE
    await groups.clock.advance(0.1)
    assert groups.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(silent) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(other.member_id).result().leader == other.member_id


@pytest.mark.parametrize("way", ["heartbeat", "commit", "sync", "join"])
async def test_what_a_member_asks_keeps_its_session(groups: Groups, way: str) -> None:
    leader, follower = await groups.stable({}, {})
    for _ in range(5):
        await groups.clock.advance(9)
        groups.heartbeat(leader)
        if way == "heartbeat":
            assert groups.heartbeat(follower) == ErrorCode.NONE
        elif way == "commit":
            assert groups.commit(follower) == ErrorCode.NONE
        elif way == "sync":
            assert groups.sync(follower).result().error == ErrorCode.NONE
        else:
            assert groups.join(follower.member_id).result().error == ErrorCode.NONE
    await groups.clock.advance(10)
    assert groups.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_shorter_session_counts_from_when_it_is_asked_for(groups: Groups) -> None:
    leader, other = await groups.stable({"session_timeout_ms": 600_000}, {})
    waiting = groups.join(leader.member_id, session_timeout_ms=6_000)
    groups.join(other.member_id)
    joined = waiting.result()
    await groups.clock.advance(5.9)
    assert groups.member_ids == [joined.member_id, other.member_id]
    await groups.clock.advance(0.1)
    assert groups.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_who_waits_needs_no_heartbeat(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    waiting = groups.join(second.member_id, protocols=(Protocol("range", b"more"),))
    for _ in range(6):
        await groups.clock.advance(9)
        assert groups.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    again = groups.join(first.member_id)
    synced = groups.sync(waiting.result())
    for _ in range(6):
        await groups.clock.advance(9)
        assert groups.heartbeat(again.result()) == ErrorCode.NONE
    groups.sync(again.result(), {second.member_id: b"one"})
    assert synced.result().assignment == b"one"
    # Its session begins now.
    await groups.clock.advance(9)
    assert groups.heartbeat(waiting.result()) == ErrorCode.NONE


async def test_the_session_of_a_new_member_begins_with_its_generation(groups: Groups) -> None:
    (old,) = await groups.stable({})
    new = groups.join_anew()
    for _ in range(3):
        await groups.clock.advance(5)
        groups.heartbeat(old)
    first = groups.join(old.member_id).result()
    await groups.clock.advance(9.9)
    assert groups.heartbeat(first) == ErrorCode.NONE
    await groups.clock.advance(0.1)
    assert groups.heartbeat(new.result()) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_new_member_waits_five_minutes_at_most(groups: Groups) -> None:
    (old,) = await groups.stable({"rebalance_timeout_ms": 3_600_000})
    new = groups.join_anew()
    while not new.done():
        assert groups.heartbeat(old) == ErrorCode.REBALANCE_IN_PROGRESS
        await groups.clock.advance(5)
    assert new.result().error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.clock.now_s == pytest.approx(1000 + kafka_limits.NEW_MEMBER_S_MAX, abs=6)


async def test_a_rebalance_timeout_has_a_bound(groups: Groups) -> None:
    first, second = await groups.stable(
        {}, {"rebalance_timeout_ms": 2**31 - 1, "session_timeout_ms": 1_800_000}
    )
    waiting = groups.join(first.member_id)
    for _ in range(kafka_limits.REBALANCE_MS_MAX // 1_200_000):
        assert not waiting.done()
        assert groups.heartbeat(second) == ErrorCode.REBALANCE_IN_PROGRESS
        await groups.clock.advance(1_200)
    assert waiting.result().error == ErrorCode.NONE


async def test_a_member_that_leaves_is_gone_at_once(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    assert groups.leave(second.member_id) == (second.member_id, None, ErrorCode.NONE)
    assert groups.leave(second.member_id).error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = groups.join(first.member_id).result()
    assert (joined.generation, len(joined.members)) == (2, 1)


async def test_a_member_may_leave_while_it_waits(groups: Groups) -> None:
    waiting = [groups.join_anew(), groups.join_anew(), groups.join_anew()]
    leaving = groups.member_ids[0]
    groups.leave(leaving)
    assert waiting[0].result().error == ErrorCode.UNKNOWN_MEMBER_ID
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting[1:])
    synced = groups.sync(other)
    groups.leave(other.member_id)
    assert synced.result().error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_given_member_id_can_be_left_unused(groups: Groups) -> None:
    member_id = groups.member_id()
    assert groups.leave(member_id).error == ErrorCode.NONE
    assert groups.state == "gone"
    assert groups.leave(member_id).error == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("way", ["leave", "session", "pending", "forming", "late", "close"])
async def test_nothing_is_held_for_a_group_that_all_have_left(groups: Groups, way: str) -> None:
    if way == "pending":
        groups.member_id()
    elif way == "forming":
        groups.join_anew().cancel()
        groups.leave(groups.member_ids[0])
    elif way == "late":
        groups.join(requires_member_id=False, rebalance_timeout_ms=1_000)
        await groups.clock.advance(2)
    else:
        first, second = await groups.stable({}, {"group_instance_id": "one"})
        assert groups.held["kafka_groups"] == 1
        if way == "leave":
            groups.leave(first.member_id)
            groups.leave(second.member_id)
        elif way == "close":
            groups.join_anew()
            groups.member_id()
            groups.coordinator.close()
    await groups.clock.advance(0 if way in ("leave", "close", "forming") else 10)
    assert groups.state == "gone"
    assert groups.held == {"kafka_groups": 0, "kafka_members": 0}
    assert groups.clock.armed == 0


async def test_who_waits_when_the_appliance_stops_looks_for_the_coordinator_again(
    groups: Groups,
) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S / 2)
    forming = groups.join_anew(group="another")
    await groups.clock.advance(INITIAL_S / 2)
    leader, other = (future.result() for future in waiting)
    synced = groups.sync(other)
    groups.coordinator.close()
    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert forming.result().error == gone
    assert synced.result().error == gone
    assert groups.heartbeat(leader) == gone
    assert groups.commit(leader) == gone
    assert groups.join().result().error == gone
    assert groups.sync(leader).result().error == gone
    assert groups.leave(leader.member_id).error == gone
    assert groups.coordinator.check_commit("g", -1, "") == gone
    assert groups.coordinator.check_commit("g", -1, "", is_transactional=True) == gone
    assert groups.coordinator.delete("g") == gone
