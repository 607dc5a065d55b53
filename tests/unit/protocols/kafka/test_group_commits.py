"""Who may commit offsets for a Kafka consumer group, what is shown of groups, and their limits."""

from __future__ import annotations

import pytest

from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import ListedGroup, Protocol, State
from tests.support.kafka_groups import INITIAL_S, RANGE, Groups


@pytest.fixture
def groups() -> Groups:
    return Groups()


async def test_a_member_commits_in_its_generation_alone(groups: Groups) -> None:
    first, second = await groups.stable({}, {})
    assert groups.commit(first) == ErrorCode.NONE
    groups.leave(second.member_id)
    # A rebalance is under way: what was processed before it may still be committed.
    assert groups.commit(first) == ErrorCode.NONE
    groups.join(first.member_id)
    assert groups.commit(first) == ErrorCode.ILLEGAL_GENERATION
    assert groups.commit(second) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_member_without_its_assignment_may_not_commit(groups: Groups) -> None:
    waiting = groups.join_anew()
    await groups.clock.advance(INITIAL_S)
    joined = waiting.result()
    assert groups.commit(joined) == ErrorCode.REBALANCE_IN_PROGRESS
    in_transaction = groups.coordinator.check_commit(
        "g", joined.generation, joined.member_id, is_transactional=True
    )
    assert in_transaction == ErrorCode.NONE


async def test_who_is_no_member_commits_only_while_there_are_none(groups: Groups) -> None:
    check = groups.coordinator.check_commit
    assert check("g", -1, "") == ErrorCode.NONE
    (only,) = await groups.stable({})
    assert check("g", -1, "") == ErrorCode.UNKNOWN_MEMBER_ID
    assert check("g", -1, "", "one") == ErrorCode.UNKNOWN_MEMBER_ID
    assert check("g", -1, only.member_id) == ErrorCode.ILLEGAL_GENERATION
    # A transaction may belong to a consumer that is in no group of ours.
    assert check("g", -1, "", is_transactional=True) == ErrorCode.NONE
    assert check("g", 7, "x", is_transactional=True) == ErrorCode.UNKNOWN_MEMBER_ID
    groups.leave(only.member_id)
    assert check("g", -1, "") == ErrorCode.NONE


async def test_a_stable_group_shows_what_its_members_have(groups: Groups) -> None:
    joined, _ = await groups.stable({"group_instance_id": "one", "owner": "other key"}, {})
    described = groups.coordinator.describe("g")
    assert described is not None
    assert described[:5] == ("g", State.STABLE, 1, "consumer", "range")
    member = joined.member_id
    assigned = b"for " + member.encode()
    assert described.members[0] == (
        member, "one", "c", "/127.0.0.1", "other key", b"topics", assigned
    )  # fmt: skip
    assert list(groups.coordinator.described()) == [described]
    groups.join_anew()
    described = groups.coordinator.describe("g")
    assert described is not None
    assert described.protocol_name == ""
    assert {(m.metadata, m.assignment) for m in described.members} == {(b"", b"")}


async def test_groups_are_listed_by_state(groups: Groups) -> None:
    await groups.stable({})
    groups.join_anew(group="h", protocol_type="connect")
    stable = ListedGroup("g", State.STABLE, "consumer")
    preparing = ListedGroup("h", State.PREPARING, "connect")
    assert groups.coordinator.listed() == [stable, preparing]
    assert groups.coordinator.counts == (2, 2, 1)


async def test_a_group_with_members_is_not_deleted(groups: Groups) -> None:
    (only,) = await groups.stable({})
    assert groups.coordinator.delete("g") == ErrorCode.NON_EMPTY_GROUP
    groups.leave(only.member_id)
    assert groups.coordinator.delete("g") == ErrorCode.NONE
    member_id = groups.member_id()
    assert groups.coordinator.delete("g") == ErrorCode.NONE
    assert groups.join(member_id).result().error == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.held == {"kafka_groups": 0, "kafka_members": 0}


async def test_a_group_has_so_many_members_and_no_more(groups: Groups) -> None:
    for _ in range(kafka_limits.GROUP_MEMBERS_MAX - 1):
        groups.join_anew()
    member_id = groups.member_id()
    assert groups.join().result().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    last = groups.join(member_id)
    assert groups.join(group_instance_id="one").result().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    await groups.clock.advance(INITIAL_S)
    assert last.result().error == ErrorCode.NONE


async def test_a_member_says_so_much_and_no_more(groups: Groups) -> None:
    most = (Protocol("range", bytes(kafka_limits.METADATA_BYTES_MAX)),)
    member_id = groups.member_id(protocols=most)
    more = (Protocol("range", most[0].metadata + b"."),)
    assert groups.join(member_id, protocols=more).result().error == ErrorCode.MESSAGE_TOO_LARGE
    named = [Protocol(f"p{n}", b"") for n in range(kafka_limits.GROUP_PROTOCOLS_MAX + 1)]
    assert groups.join(member_id, protocols=tuple(named[:-1])).done() is False
    assert groups.join(protocols=tuple(named)).result().error == ErrorCode.INVALID_REQUEST


async def test_an_assignment_is_so_long_and_no_longer(groups: Groups) -> None:
    waiting = groups.join_anew()
    await groups.clock.advance(INITIAL_S)
    leader = waiting.result()
    most = bytes(kafka_limits.ASSIGNMENT_BYTES_MAX)
    refused = groups.sync(leader, {leader.member_id: most + b"."}).result()
    assert refused.error == ErrorCode.MESSAGE_TOO_LARGE
    assert groups.sync(leader, {leader.member_id: most}).result().assignment == most


async def test_one_api_key_takes_no_more_than_its_share_of_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_limits, "GROUPS_MAX", 4)
    groups = Groups()
    assert groups.member_id(group="a")
    assert groups.member_id(group="b")
    assert groups.join(group="c").result().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.member_id(group="c", owner="another key")


async def test_one_api_key_takes_no_more_than_its_share_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_limits, "MEMBERS_BYTES_MAX", kafka_limits.MEMBER_BYTES * 15 // 2)
    groups = Groups()
    small, large = RANGE, (Protocol("range", bytes(kafka_limits.MEMBER_BYTES)),)
    waiting = [groups.join_anew(), groups.join_anew(protocols=large)]
    await groups.clock.advance(INITIAL_S)
    leader, other = (future.result() for future in waiting)
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.join(protocols=large).result().error == full
    assert groups.join(leader.member_id, protocols=large).result().error == full
    much = {leader.member_id: large[0].metadata * 2}
    assert groups.sync(leader, much).result().error == full
    assert groups.member_id(owner="another key")
    # What a member no longer says, others may use.
    groups.join(other.member_id, protocols=small)
    assert groups.member_id()
    assert groups.coordinator.counts.members == 2
