"""Static members of a Kafka consumer group: those with a `group.instance.id`."""

from __future__ import annotations

import pytest

from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import Protocol
from tests.support.kafka_groups import INITIAL_S, Groups

ONE = {"group_instance_id": "one"}
TWO = {"group_instance_id": "two"}


@pytest.fixture
def groups() -> Groups:
    return Groups()


async def test_a_static_member_joins_without_asking_for_an_id(groups: Groups) -> None:
    waiting = groups.join(**ONE)
    await groups.clock.advance(INITIAL_S)
    joined = waiting.result()
    assert joined.member_id.startswith("one-")
    assert [m.group_instance_id for m in joined.members] == ["one"]


async def test_a_static_member_that_restarts_disturbs_nobody(groups: Groups) -> None:
    leader, follower = await groups.stable(ONE, TWO)
    again = groups.join(**TWO).result()
    assert again.member_id != follower.member_id
    assert (again.generation, again.leader, groups.state) == (1, leader.member_id, "Stable")
    assert groups.sync(again).result().assignment == b"for " + follower.member_id.encode()
    assert groups.heartbeat(leader) == ErrorCode.NONE


async def test_a_static_leader_that_restarts_skips_the_assignment(groups: Groups) -> None:
    leader, follower = await groups.stable(ONE, TWO)
    again = groups.join(**ONE, may_skip_assignment=True).result()
    assert again.skip_assignment
    assert again.leader == again.member_id != leader.member_id
    assert {m.member_id for m in again.members} == {again.member_id, follower.member_id}
    assert groups.sync(again).result().assignment == b"for " + leader.member_id.encode()


async def test_an_older_static_leader_that_restarts_is_told_it_does_not_lead(
    groups: Groups,
) -> None:
    leader, _ = await groups.stable(ONE, TWO)
    again = groups.join(**ONE).result()
    assert (again.leader, again.members, again.skip_assignment) == (leader.member_id, (), False)
    # It leads nevertheless: when it joins once more, all do.
    assert not groups.join(again.member_id, **ONE).done()
    assert groups.state == "PreparingRebalance"


async def test_the_replaced_member_is_fenced_in_all_it_asks(groups: Groups) -> None:
    old, _ = await groups.stable(ONE, TWO)
    groups.join(**ONE)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert groups.heartbeat(old, "one") == fenced
    assert groups.sync(old, instance_id="one").result().error == fenced
    assert groups.commit(old, "one") == fenced
    assert groups.join(old.member_id, **ONE).result().error == fenced
    assert groups.leave(old.member_id, "one").error == fenced
    assert groups.heartbeat(old) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_request_of_the_replaced_member_that_waits_is_fenced(groups: Groups) -> None:
    old = groups.join(**ONE)
    new = groups.join(**ONE)
    assert old.result().error == ErrorCode.FENCED_INSTANCE_ID
    await groups.clock.advance(INITIAL_S)
    assert [m.member_id for m in new.result().members] == [new.result().member_id]


async def test_the_session_of_a_static_member_that_restarted_is_its_own(groups: Groups) -> None:
    leader, _ = await groups.stable(ONE, TWO)
    again = groups.join(**TWO).result()
    await groups.clock.advance(9.9)
    assert groups.heartbeat(leader, "one") == ErrorCode.NONE
    assert groups.member_ids == [leader.member_id, again.member_id]
    await groups.clock.advance(0.1)
    assert groups.member_ids == [leader.member_id]


async def test_a_static_member_that_restarts_still_has_to_ask_for_its_assignment(
    groups: Groups,
) -> None:
    waiting = [groups.join(**ONE), groups.join(**TWO)]
    await groups.clock.advance(INITIAL_S)
    leader = waiting[0].result()
    groups.sync(leader)
    again = groups.join(**TWO).result()
    for _ in range(12):
        assert groups.heartbeat(leader) == ErrorCode.NONE
        assert groups.heartbeat(again, "two") == ErrorCode.NONE
        await groups.clock.advance(5)
    assert groups.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(again, "two") == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_that_restarts_before_the_assignment_starts_a_rebalance(
    groups: Groups,
) -> None:
    waiting = [groups.join(**ONE), groups.join(**TWO)]
    await groups.clock.advance(INITIAL_S)
    leader, old = (future.result() for future in waiting)
    synced = groups.sync(old, instance_id="two")
    again = groups.join(**TWO)
    assert synced.result().error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.sync(leader).result().error == ErrorCode.REBALANCE_IN_PROGRESS
    groups.join(leader.member_id, **ONE)
    assert again.result().generation == 2


async def test_a_static_member_that_changes_the_choice_of_protocol_starts_a_rebalance(
    groups: Groups,
) -> None:
    both = (Protocol("range", b""), Protocol("sticky", b""))
    await groups.stable({**ONE, "protocols": both})
    waiting = groups.join(**ONE, protocols=both[::-1])
    assert waiting.result().protocol_name == "sticky"
    assert waiting.result().generation == 2


async def test_a_static_member_who_is_away_stays_until_its_session_is_over(
    groups: Groups,
) -> None:
    away, other = await groups.stable({**ONE, "session_timeout_ms": 600_000}, {})
    again = groups.join(other.member_id, protocols=(Protocol("range", b"more"),))
    await groups.clock.advance(60)
    joined = again.result()
    assert joined.leader == other.member_id
    assert {m.member_id for m in joined.members} == {away.member_id, other.member_id}
    groups.sync(joined, {away.member_id: b"kept for it"})
    for _ in range(20):  # longer than it has to join or sync
        assert groups.heartbeat(joined) == ErrorCode.NONE
        await groups.clock.advance(5)
    back = groups.join(**ONE).result()
    assert groups.sync(back, instance_id="one").result().assignment == b"kept for it"


async def test_a_rebalance_waits_while_only_static_members_are_left_and_away(
    groups: Groups,
) -> None:
    first, _ = await groups.stable(
        {**ONE, "session_timeout_ms": 150_000}, {**TWO, "session_timeout_ms": 150_000}
    )
    new = groups.join_anew()
    groups.leave(groups.member_ids[-1])
    assert new.result().error == ErrorCode.UNKNOWN_MEMBER_ID
    await groups.clock.advance(100)
    assert groups.state == "PreparingRebalance"
    back = groups.join(first.member_id, **ONE)
    assert not back.done()
    await groups.clock.advance(20)  # a rebalance timeout after the one in which nobody joined
    assert [m.group_instance_id for m in back.result().members] == ["one", "two"]


async def test_an_operator_removes_a_static_member_by_its_instance_id(groups: Groups) -> None:
    leader, _ = await groups.stable(ONE, TWO)
    assert groups.leave("", "two") == ("", "two", ErrorCode.NONE)
    assert groups.leave("", "two").error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(leader.member_id, **ONE).result().generation == 2


async def test_an_instance_id_that_nobody_has_is_unknown(groups: Groups) -> None:
    (only,) = await groups.stable({})
    assert groups.heartbeat(only, "one") == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(groups.member_id(), **ONE).result().error == ErrorCode.UNKNOWN_MEMBER_ID
