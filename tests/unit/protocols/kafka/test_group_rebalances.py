"""How members of a Kafka consumer group come to a generation and its assignment."""

from __future__ import annotations

from typing import Any

import pytest

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import Protocol
from tests.support.fakes import settle
from tests.support.kafka_groups import INITIAL_S, Groups


@pytest.fixture
def groups() -> Groups:
    return Groups()


def protocols(*names: str) -> tuple[Protocol, ...]:
    return tuple(Protocol(name, name.encode()) for name in names)


async def test_a_member_without_an_id_is_given_one_before_it_joins(groups: Groups) -> None:
    asked = groups.join(client_id="app").result()
    assert (asked.error, asked.member_id[:4]) == (ErrorCode.MEMBER_ID_REQUIRED, "app-")
    assert groups.state == "Empty"
    waiting = groups.join(asked.member_id, client_id="app")
    await groups.clock.advance(INITIAL_S)
    assert waiting.result().member_id == asked.member_id


async def test_an_old_client_joins_without_asking_for_an_id(groups: Groups) -> None:
    waiting = groups.join(requires_member_id=False)
    await groups.clock.advance(INITIAL_S)
    assert waiting.result().error == ErrorCode.NONE


async def test_members_of_a_new_group_wait_for_each_other(groups: Groups) -> None:
    waiting = [groups.join_anew() for _ in range(20)]
    await groups.clock.advance(INITIAL_S * 0.9)
    assert not any(future.done() for future in waiting)
    await groups.clock.advance(INITIAL_S * 0.1)
    assert {future.result().generation for future in waiting} == {1}


async def test_a_late_member_prolongs_the_first_wait_but_only_so_far(groups: Groups) -> None:
    begun_s = groups.clock.now_s
    waiting = [groups.join_anew()]
    while not waiting[0].done():
        await groups.clock.advance(INITIAL_S * 0.8)
        waiting.append(groups.join_anew())
    assert len(waiting) > 5
    waited_s = groups.clock.now_s - begun_s
    assert waited_s <= (kafka_limits.REBALANCE_DELAYS_MAX + 1) * INITIAL_S


async def test_a_new_group_waits_as_long_as_the_operator_says_but_no_longer_than_a_member() -> None:
    groups = Groups(rebalance_delay_s=3.0)
    first = groups.join_anew()
    await groups.clock.advance(2.9)
    second = groups.join_anew()
    await groups.clock.advance(2.9)
    assert not first.done()
    await groups.clock.advance(0.1)
    assert first.result().generation == second.result().generation == 1
    waiting = groups.join_anew(group="h", rebalance_timeout_ms=1_000)
    await groups.clock.advance(1.0)
    assert waiting.result().generation == 1


async def test_a_hundred_groups_of_twenty_rebalance_at_once(groups: Groups) -> None:
    named = [f"g{number}" for number in range(100)]
    waiting = [
        groups.join(group=name, requires_member_id=False) for name in named for _ in range(20)
    ]
    await groups.clock.advance(INITIAL_S)
    assert {future.result().generation for future in waiting} == {1}
    assert groups.coordinator.counts == (100, 2_000, 100)


async def test_the_leader_alone_is_told_the_members_and_assigns(groups: Groups) -> None:
    waiting = [groups.join_anew() for _ in range(3)]
    await groups.clock.advance(INITIAL_S)
    leader, *others = [future.result() for future in waiting]
    assert {m.member_id for m in leader.members} == {f.result().member_id for f in waiting}
    assert {m.metadata for m in leader.members} == {b"topics"}
    assert [one.members for one in others] == [(), ()]
    assert {one.leader for one in others} == {leader.member_id}

    synced = [groups.sync(one) for one in others]
    assert not any(future.done() for future in synced)
    groups.sync(leader, {others[0].member_id: b"one", "nobody": b"else"})
    assert [future.result().assignment for future in synced] == [b"one", b""]
    assert groups.state == "Stable"
    assert groups.sync(others[0]).result().assignment == b"one"


async def test_a_join_starts_a_rebalance_that_heartbeats_tell_of(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    third = groups.join_anew()
    assert groups.state == "PreparingRebalance"
    assert groups.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.sync(first).result().error == ErrorCode.REBALANCE_IN_PROGRESS
    again = [groups.join(one.member_id) for one in (first, second)]
    joined = await groups.assigned(*again, third)
    assert {one.generation for one in joined} == {2}
    assert [groups.heartbeat(one) for one in joined] == [ErrorCode.NONE] * 3
    assert groups.heartbeat(first) == ErrorCode.ILLEGAL_GENERATION
    assert groups.sync(first).result().error == ErrorCode.ILLEGAL_GENERATION


async def test_a_rebalance_waits_for_who_has_just_got_a_member_id(groups: Groups) -> None:
    (only,) = await groups.stable({})
    member_id = groups.member_id()
    again = groups.join(only.member_id)
    assert not again.done()
    new = groups.join(member_id)
    assert again.done()
    assert new.done()


async def test_a_rebalance_goes_on_when_a_given_member_id_is_not_used(groups: Groups) -> None:
    (only,) = await groups.stable({})
    member_id = groups.member_id(session_timeout_ms=6_000)
    again = groups.join(only.member_id)
    await groups.clock.advance(6)
    assert again.result().generation == 2
    assert groups.join(member_id).result().error == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_who_does_not_join_again_in_time_is_left_out(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    again = groups.join(second.member_id, protocols=(Protocol("range", b"more"),))
    for _ in range(12):
        assert not again.done()
        assert groups.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
        await groups.clock.advance(5)
    assert [m.member_id for m in again.result().members] == [second.member_id]
    assert groups.heartbeat(first) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_rebalance_takes_as_long_as_its_most_patient_member_allows(groups: Groups) -> None:
    first, second = await groups.stable(
        {"rebalance_timeout_ms": 8_000}, {"rebalance_timeout_ms": -1, "session_timeout_ms": 9_000}
    )
    waiting = groups.join(first.member_id, rebalance_timeout_ms=8_000)
    await groups.clock.advance(5)
    groups.heartbeat(second)
    await groups.clock.advance(3.9)
    assert not waiting.done()
    await groups.clock.advance(0.1)
    assert waiting.done()


async def test_another_leader_is_found_when_the_leader_does_not_join(groups: Groups) -> None:
    leader, other = await groups.stable({}, {})
    waiting = groups.join(other.member_id, protocols=(Protocol("range", b"more"),))
    await groups.clock.advance(9)
    groups.heartbeat(leader)
    await groups.clock.advance(51)
    assert waiting.result().leader == other.member_id
    assert [m.metadata for m in waiting.result().members] == [b"more"]


async def test_who_waits_for_the_assignment_is_told_of_the_next_rebalance(groups: Groups) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S)
    synced = groups.sync(waiting[1].result())
    groups.join_anew()
    assert synced.result().error == ErrorCode.REBALANCE_IN_PROGRESS


async def test_the_time_to_sync_begins_with_each_generation(groups: Groups) -> None:
    first = groups.join_anew()
    await groups.clock.advance(INITIAL_S)
    for _ in range(8):
        assert groups.heartbeat(first.result()) == ErrorCode.NONE
        await groups.clock.advance(5)
    second = groups.join_anew()
    again = groups.join(first.result().member_id)
    for _ in range(8):
        for joined in (again.result(), second.result()):
            assert groups.heartbeat(joined) == ErrorCode.NONE
        await groups.clock.advance(5)
    await groups.assigned(again, second)


async def test_who_waited_long_for_the_assignment_has_a_session_to_join_again(
    groups: Groups,
) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting)
    groups.sync(other)
    for _ in range(4):
        await groups.clock.advance(9)
        groups.heartbeat(leader)
    groups.join(leader.member_id, protocols=(Protocol("range", b"more"),))
    await groups.clock.advance(9)
    assert groups.heartbeat(other) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_members_who_never_sync_are_removed_after_the_rebalance_timeout(
    groups: Groups,
) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting)
    synced = groups.sync(other)
    for _ in range(12):
        assert groups.heartbeat(leader) == ErrorCode.NONE
        await groups.clock.advance(5)
    assert groups.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID
    assert synced.result().error == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.join(other.member_id).result().leader == other.member_id


async def test_a_group_all_of_whose_members_synced_stays_stable(groups: Groups) -> None:
    (only,) = await groups.stable({})
    for _ in range(30):
        await groups.clock.advance(5)
        assert groups.heartbeat(only) == ErrorCode.NONE


async def test_the_protocol_is_the_one_of_most_votes_that_all_support(groups: Groups) -> None:
    waiting = [
        groups.join_anew(protocols=protocols(*names))
        for names in (("a", "b", "c"), ("c", "b"), ("d", "b", "c"))
    ]
    await groups.clock.advance(INITIAL_S)
    assert {future.result().protocol_name for future in waiting} == {"b"}
    assert {m.metadata for m in waiting[0].result().members} == {b"b"}


async def test_an_upgrade_to_another_protocol_takes_two_rolling_restarts(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    both = protocols("cooperative-sticky", "range")
    again = groups.join(second.member_id, protocols=both)
    again_too = groups.join(first.member_id)
    await groups.assigned(again_too, again)
    assert again.result().protocol_name == "range"
    assert again_too.done()
    again = groups.join(first.member_id, protocols=both)
    await groups.assigned(groups.join(second.member_id, protocols=both), again)
    assert again.result().protocol_name == "cooperative-sticky"


@pytest.mark.parametrize(
    "given",
    [{"protocols": protocols("other")}, {"protocol_type": "connect"}, {"protocols": ()}],
)
async def test_who_shares_no_protocol_with_the_group_is_refused(
    groups: Groups, given: dict[str, Any]
) -> None:
    await groups.stable({})
    assert groups.join(**given).result().error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("given", [{"protocols": ()}, {"protocol_type": ""}])
async def test_a_group_has_a_protocol(groups: Groups, given: dict[str, Any]) -> None:
    assert groups.join(**given).result().error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.state == "gone"
    assert groups.held["kafka_groups"] == 0


async def test_a_sync_that_means_another_protocol_is_refused(groups: Groups) -> None:
    (only,) = await groups.stable({})
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "other"}):
        error = groups.sync(only, **wrong).result().error
        assert error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right = groups.sync(only, protocol_type="consumer", protocol_name="range").result()
    assert right.error == ErrorCode.NONE


async def test_a_follower_who_joins_unchanged_gets_its_generation_again(groups: Groups) -> None:
    _, follower = await groups.stable({}, {})
    again = groups.join(follower.member_id).result()
    assert (again.error, again.generation, groups.state) == (ErrorCode.NONE, 1, "Stable")
    groups.join(follower.member_id, protocols=(Protocol("range", b"other topics"),))
    assert groups.state == "PreparingRebalance"


async def test_a_leader_who_joins_again_starts_a_rebalance(groups: Groups) -> None:
    leader, _ = await groups.stable({}, {})
    assert not groups.join(leader.member_id).done()
    assert groups.state == "PreparingRebalance"


async def test_who_lost_the_answer_to_its_join_gets_it_again(groups: Groups) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting)
    again = groups.join(leader.member_id).result()
    assert (again.generation, again.members) == (1, leader.members)
    assert groups.join(other.member_id).result().members == ()
    assert groups.state == "CompletingRebalance"


async def test_a_repeated_request_takes_the_place_of_the_one_that_waits(groups: Groups) -> None:
    member_id = groups.member_id()
    lost = groups.join(member_id)
    waiting = groups.join(member_id)
    assert lost.result().error == ErrorCode.REBALANCE_IN_PROGRESS
    groups.join_anew()
    await groups.clock.advance(INITIAL_S)
    assert waiting.result().error == ErrorCode.NONE


async def test_a_repeated_sync_takes_the_place_of_the_one_that_waits(groups: Groups) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting)
    lost, synced = groups.sync(other), groups.sync(other)
    groups.sync(leader, {other.member_id: b"one"})
    assert lost.result().error == ErrorCode.REBALANCE_IN_PROGRESS
    assert synced.result().assignment == b"one"


async def test_a_request_whose_connection_ended_hinders_nobody(groups: Groups) -> None:
    waiting = [groups.join_anew(), groups.join_anew()]
    waiting[1].cancel()
    await groups.clock.advance(INITIAL_S)
    leader = waiting[0].result()
    synced = groups.sync(leader, {leader.member_id: b"all"})
    await settle()
    assert synced.result().assignment == b"all"


async def test_the_member_of_an_earlier_life_of_the_appliance_joins_anew(groups: Groups) -> None:
    (before,) = await groups.stable({})
    after = Groups()
    assert after.heartbeat(before) == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.sync(before).result().error == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.commit(before) == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.join(before.member_id).result().error == ErrorCode.UNKNOWN_MEMBER_ID
    assert after.state == "gone"
