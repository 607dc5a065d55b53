"""Members of a Kafka consumer group that come, stall, die and restart in any order."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.values import JoinResult, Protocol, State, SyncResult
from tests.support.kafka_groups import Groups

HISTORIES = 200
STEPS = 40
OFFERS = [
    (Protocol("range", b"1"),),
    (Protocol("range", b"2"), Protocol("sticky", b"2")),
    (Protocol("sticky", b"3"), Protocol("range", b"3")),
]


class Client:
    """A consumer that does what the protocol asks, one step at each `act`."""

    def __init__(self, groups: Groups, instance_id: str | None, offer: int, short: bool) -> None:
        self.groups = groups
        self.instance_id = instance_id
        self.offer = offer
        self.session_ms = 6_000 if short else 30_000
        self.is_old = short  # and knows neither member ids before a join nor skipped assignments
        self.member_id = ""
        self.joining: asyncio.Future[JoinResult] | None = None
        self.syncing: asyncio.Future[SyncResult] | None = None
        self.joined: JoinResult | None = None
        self.assignment: bytes | None = None
        self.is_fenced = False

    def join(self) -> None:
        self.joined = self.assignment = None
        self.drop_connection()
        self.joining = self.groups.join(
            self.member_id,
            group_instance_id=self.instance_id,
            protocols=OFFERS[self.offer],
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=20_000,
            requires_member_id=not self.is_old,
            may_skip_assignment=not self.is_old,
        )

    def drop_connection(self) -> None:
        for future in (self.joining, self.syncing):
            if future is not None:
                future.cancel()
        self.joining = self.syncing = None

    def act(self) -> None:
        if self.is_fenced or any(f is not None and not f.done() for f in self.waits):
            return
        if self.joining is not None:
            self._has_joined(self.joining.result())
        elif self.syncing is not None:
            synced, self.syncing = self.syncing.result(), None
            if synced.error:
                self._is_told(synced.error)
            else:
                self.assignment = synced.assignment
        elif self.joined is None:
            self.join()
        elif self.assignment is None:
            self.sync()
        else:
            self._is_told(self.groups.heartbeat(self.joined, self.instance_id))

    @property
    def waits(self) -> tuple[asyncio.Future[JoinResult] | None, asyncio.Future[SyncResult] | None]:
        return self.joining, self.syncing

    @property
    def is_waiting(self) -> bool:
        return any(future is not None and not future.done() for future in self.waits)

    def sync(self) -> None:
        assert self.joined is not None
        assignments = {}
        if self.joined.leader == self.joined.member_id and not self.joined.skip_assignment:
            told = self.joined
            assignments = {m.member_id: purpose(told, m.member_id) for m in told.members}
        self.syncing = self.groups.sync(self.joined, assignments, self.instance_id)

    def _has_joined(self, result: JoinResult) -> None:
        self.joining = None
        if result.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif result.error:
            self._is_told(result.error)
        else:
            self.member_id = result.member_id
            self.joined = result

    def _is_told(self, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            return
        self.joined = self.assignment = None
        if error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True
        elif error != ErrorCode.REBALANCE_IN_PROGRESS:
            assert error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION), error
            self.member_id = ""


def purpose(joined: JoinResult, member_id: str) -> bytes:
    """What a leader assigns to a member in that generation."""
    return f"{joined.generation} {joined.leader} {member_id}".encode()


class Consumers(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.groups = Groups()
        self.clients: list[Client] = []
        self.past: list[tuple[JoinResult, str | None]] = []  # what clients once were

    @rule(
        instance_id=st.sampled_from([None, None, "x", "y"]),
        offer=st.integers(0, 2),
        short=st.booleans(),
    )
    def consumer_starts(self, instance_id: str | None, offer: int, short: bool) -> None:
        """A static one takes the place of the one that has its instance id."""
        new = Client(self.groups, instance_id, offer, short)
        for old in tuple(self.clients):
            if instance_id is not None and old.instance_id == instance_id:
                self.clients.remove(old)
        self.clients.append(new)
        self.play(new.act, new.act)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def one_acts(self, number: int) -> None:
        self.play(self.pick(number).act)

    @rule()
    def all_act(self) -> None:
        self.play(*(client.act for client in self.clients))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9), offer=st.integers(0, 2))
    def one_subscribes_anew(self, number: int, offer: int) -> None:
        client = self.pick(number)
        if not client.is_fenced:
            client.offer = offer
            self.play(client.join)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def one_loses_its_connection(self, number: int) -> None:
        self.play(self.pick(number).drop_connection)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def one_dies(self, number: int) -> None:
        self.clients.remove(self.pick(number))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 9))
    def one_leaves(self, number: int) -> None:
        client = self.pick(number)
        if client.member_id:
            self.play(lambda: self.groups.leave(client.member_id, client.instance_id))
        self.clients.remove(client)

    @rule(seconds=st.sampled_from([0.05, 1, 5.9, 6, 20, 31]))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(self.groups.clock.advance(seconds))

    @precondition(lambda self: self.clients)
    @rule()
    def peace_comes(self) -> None:
        """Who is left acts as it should: all come to one generation, each with its assignment."""
        for _ in range(60):
            self.all_act()
            self.time_passes(2)
        alive = [client for client in self.clients if not client.is_fenced]
        described = self.groups.coordinator.describe("g")
        if not alive:
            assert described is None
            return
        assert described is not None
        assert described.state is State.STABLE
        assert sorted(self.groups.member_ids) == sorted(client.member_id for client in alive)
        metadata = {member.member_id: member.metadata for member in described.members}
        for client in alive:
            assert metadata[client.member_id] == OFFERS[client.offer][0].metadata
            assert client.joined is not None
            assert client.joined.generation == described.generation
            assert self.play(lambda c=client: self.groups.commit(c.joined, c.instance_id)) == [0]

    def pick(self, number: int) -> Client:
        return self.clients[number % len(self.clients)]

    def play(self, *steps: object) -> list[object]:
        async def played() -> list[object]:
            results = [step() for step in steps]  # type: ignore[operator]
            await asyncio.sleep(0)
            return results

        return self.loop.run_until_complete(played())

    @invariant()
    def only_the_present_generation_is_served(self) -> None:
        described = self.groups.coordinator.describe("g")
        for client in self.clients:
            if client.assignment:
                generation, leader, member_id = client.assignment.decode().split()
                # One leader assigned in a generation, and each got what was meant for it, or for
                # whom it took the place of.
                assert client.joined is not None
                assert int(generation) == client.joined.generation
                if client.instance_id is None:
                    assert member_id == client.member_id
                else:
                    assert member_id.startswith(f"{client.instance_id}-")
                assert leader
        if described is not None and described.state is State.STABLE:
            tags = [m.assignment.decode().split() for m in described.members if m.assignment]
            assert len({(tag[0], tag[1]) for tag in tags}) <= 1
            assert all(int(tag[0]) == described.generation for tag in tags)

    @invariant()
    def who_was_replaced_or_is_late_gets_nothing(self) -> None:
        described = self.groups.coordinator.describe("g")
        present = (
            {(described.generation, m.member_id) for m in described.members} if described else set()
        )
        for joined, instance_id in self.past:
            if (joined.generation, joined.member_id) not in present:
                for given in (instance_id, None):
                    assert self.groups.heartbeat(joined, given)
                    assert self.groups.commit(joined, given)
        for client in self.clients:
            if client.joined is not None and (client.joined, client.instance_id) not in self.past:
                self.past = [*self.past[-20:], (client.joined, client.instance_id)]

    @invariant()
    def who_waits_is_a_member(self) -> None:
        for client in self.clients:
            if client.is_waiting:
                assert any(
                    future in (member.joining, member.syncing)
                    for group in self.groups.coordinator._groups.values()
                    for member in group.members.values()
                    for future in client.waits
                    if future is not None
                )

    @invariant()
    def the_books_are_right(self) -> None:
        coordinator = self.groups.coordinator
        held = armed = 0
        for group in coordinator._groups.values():
            members = group.members
            assert members or group.pending
            assert group.waiting == sum(m.joining is not None for m in members.values())
            assert group.unsynced <= members.keys()
            if group.state is State.PREPARING and not group.is_forming:
                assert not group.has_all_joined
            if group.state in (State.STABLE, State.COMPLETING):
                assert group.leader in members
            assert (group.state is State.EMPTY) == (not members)
            assert set(group.static_members.values()) <= set(members.values())
            names = Counter(n for m in members.values() for n in m.protocol_names)
            assert names == group._supporting
            rooms = [m.room for m in members.values()] + [p.room for p in group.pending.values()]
            rooms += [group.assignments_room] if group.assignments_room else []
            held += sum(room.held for room in rooms)
            armed += len(members) + len(group.pending) + (group.timer is not None)
        assert self.groups.held == {
            "kafka_groups": len(coordinator._groups),
            "kafka_members": held,
        }
        assert self.groups.clock.armed == armed

    def teardown(self) -> None:
        """Everybody dies: in the end, nobody waits and nothing is held."""
        if hasattr(self, "loop"):
            self.time_passes(1_000)
            assert not any(client.is_waiting for client in self.clients)
            assert self.groups.coordinator.describe("g") is None
            self.the_books_are_right()
            self.loop.close()


@pytest.mark.slow
def test_whatever_members_do_the_group_comes_to_one_generation() -> None:
    run_state_machine_as_test(
        Consumers, settings=settings(max_examples=HISTORIES, stateful_step_count=STEPS)
    )
