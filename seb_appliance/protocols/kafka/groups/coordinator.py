"""Who is in which consumer group, in which generation, and with which assignment.

All of it is in memory, on the event loop. `join` and `sync` return futures, because their answers
wait for other members; everything else is answered at once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from seb_appliance.broker.shares import AllShares, Reservation, Shares
from seb_appliance.clock import Clock
from seb_appliance.errors import OverloadedError, ShareExceededError
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.group import Group, PendingMember
from seb_appliance.protocols.kafka.groups.member import Member, size_bytes
from seb_appliance.protocols.kafka.groups.rebalancing import Rebalancing
from seb_appliance.protocols.kafka.groups.values import (
    DescribedGroup,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    ListedGroup,
    State,
    SyncRequest,
    SyncResult,
)

Joining = asyncio.Future[JoinResult]
Syncing = asyncio.Future[SyncResult]


class RefusedError(Exception):
    """Answered with a code of the protocol. `member_id`: given out with it."""

    def __init__(self, code: ErrorCode, member_id: str = "") -> None:
        super().__init__(code.name)
        self.code = code
        self.member_id = member_id


class Counts(NamedTuple):
    """`generations`: that began since the start."""

    groups: int
    members: int
    generations: int


class Coordinator:
    """`rebalance_delay_s`: how long a new group waits for more members after each one."""

    def __init__(
        self,
        clock: Clock,
        shares: AllShares,
        random_bytes: Callable[[int], bytes],
        rebalance_delay_s: float,
    ) -> None:
        self._clock = clock
        self._random_bytes = random_bytes
        self._groups = dict[str, Group]()
        self._room_of_groups = shares.declare(
            "kafka_groups", kafka_limits.GROUPS_MAX, "Kafka consumer groups with members"
        )
        self._room_of_members = shares.declare(
            "kafka_members",
            kafka_limits.MEMBERS_BYTES_MAX,
            "bytes of members of Kafka consumer groups",
        )
        self._rebalancing = Rebalancing(clock, rebalance_delay_s, self._forget_if_unused)
        self._is_closed = False

    # Members

    def join(self, request: JoinRequest) -> Joining:
        """Answered once the next generation begins, or at once if the member is in it or may not
        be."""
        future: Joining = asyncio.get_running_loop().create_future()
        try:
            self._join(request, future)
        except RefusedError as refused:
            member_id = refused.member_id or request.member_id
            future.set_result(JoinResult(refused.code, member_id))
        return future

    def sync(self, request: SyncRequest) -> Syncing:
        """Answered once the leader's assignment is there, or the next rebalance begins."""
        future: Syncing = asyncio.get_running_loop().create_future()
        try:
            self._sync(request, future)
        except RefusedError as refused:
            future.set_result(SyncResult(refused.code))
        return future

    def heartbeat(
        self, group: str, generation: int, member_id: str, instance_id: str | None = None
    ) -> ErrorCode:
        try:
            found, member = self._member(group, generation, member_id, instance_id)
        except RefusedError as refused:
            return refused.code
        self._rebalancing.hear(member)
        is_preparing = found.state is State.PREPARING
        return ErrorCode.REBALANCE_IN_PROGRESS if is_preparing else ErrorCode.NONE

    def leave(self, group: str, members: Iterable[LeavingMember]) -> list[LeaveResult]:
        """In the order of `members`."""
        return [LeaveResult(*one, self._leave(group, *one)) for one in members]

    def check_commit(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str | None = None,
        *,
        is_transactional: bool = False,
    ) -> ErrorCode:
        """Whether offsets may be committed. Without a generation and a member id: only while the
        group has no members, or in a transaction."""
        found = self._groups.get(group)
        has_members = found is not None and bool(found.members)
        if generation < 0 and not has_members and not self._is_closed:
            return ErrorCode.NONE
        if generation < 0 and not member_id and instance_id is None and is_transactional:
            return self._closed()
        try:
            found, member = self._member(group, generation, member_id, instance_id)
        except RefusedError as refused:
            return refused.code
        if not is_transactional:
            if found.state is State.COMPLETING:
                return ErrorCode.REBALANCE_IN_PROGRESS
            self._rebalancing.hear(member)
        return ErrorCode.NONE

    def session_ms(self, group: str, member_id: str) -> int | None:
        """For how long the member may be silent, as its client is that waits for an answer; None:
        there is no such member."""
        found = self._groups.get(group)
        member = None if found is None else found.members.get(member_id)
        return None if member is None else round(member.session_s * 1000)

    # Groups

    def describe(self, group: str) -> DescribedGroup | None:
        """None: it has no members. It is then Empty or Dead (see `State`)."""
        found = self._groups.get(group)
        return None if found is None else found.described()

    def described(self) -> Iterator[DescribedGroup]:
        """All groups that have members, or are about to."""
        for group in tuple(self._groups.values()):
            yield group.described()

    def listed(self) -> list[ListedGroup]:
        return [group.listed() for group in self._groups.values()]

    def delete(self, group: str) -> ErrorCode:
        """NONE if the group has no members, so that its offsets may be deleted."""
        found = self._groups.get(group)
        if found is None:
            return self._closed()
        if found.members:
            return ErrorCode.NON_EMPTY_GROUP
        for member_id in tuple(found.pending):
            found.forget_pending(member_id)
        self._forget_if_unused(found)
        return ErrorCode.NONE

    def owners(self, group: str) -> list[tuple[str, bytes]]:
        """Of those who are in the group, or about to be: the API key, and what the member says of
        itself."""
        found = self._groups.get(group)
        return [] if found is None else found.owners()

    def with_members(self) -> list[str]:
        return [name for name, group in self._groups.items() if group.members]

    def members_of(self, group: str) -> int:
        found = self._groups.get(group)
        return 0 if found is None else len(found.members)

    @property
    def counts(self) -> Counts:
        members = sum(len(group.members) for group in self._groups.values())
        return Counts(len(self._groups), members, self._rebalancing.generations)

    def close(self) -> None:
        """Everyone who waits is told to look for the coordinator again. Nobody joins any more."""
        self._is_closed = True
        for group in self._groups.values():
            group.stop_timer()
            group.drop_assignments()
            for member in tuple(group.members.values()):
                group.drop(member, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            for member_id in tuple(group.pending):
                group.forget_pending(member_id)
            group.room.release()
        self._groups.clear()

    # Joining

    def _join(self, request: JoinRequest, future: Joining) -> None:
        self._check(request)
        group = self._groups.get(request.group)
        if group is None:
            room = self._reserve(self._room_of_groups, request.owner, 1)
            group = self._groups[request.group] = Group(request.group, room)
        try:
            if not group.supports(request.protocol_type, request.protocols):
                raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if request.member_id:
                self._join_again(group, request, future)
            else:
                self._join_first(group, request, future)
        finally:
            self._forget_if_unused(group)

    def _check(self, request: JoinRequest) -> None:
        """What may be said without a look at the group."""
        if self._is_closed:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        session_ms = request.session_timeout_ms
        if not kafka_limits.SESSION_MS_MIN <= session_ms <= kafka_limits.SESSION_MS_MAX:
            raise RefusedError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if len(request.protocols) > kafka_limits.GROUP_PROTOCOLS_MAX:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        if any(len(p.metadata) > kafka_limits.METADATA_BYTES_MAX for p in request.protocols):
            raise RefusedError(ErrorCode.MESSAGE_TOO_LARGE)

    def _join_first(self, group: Group, request: JoinRequest, future: Joining) -> None:
        prefix = request.group_instance_id or request.client_id
        unique = uuid.UUID(bytes=self._random_bytes(16), version=4)
        member_id = f"{prefix}-{unique}"
        if request.group_instance_id is not None:
            old = group.static_members.get(request.group_instance_id)
            if old is not None:
                self._replace(group, old, member_id, request, future)
                return
        if len(group.members) + len(group.pending) >= kafka_limits.GROUP_MEMBERS_MAX:
            raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        room = self._reserve(self._room_of_members, request.owner, size_bytes(request))
        if request.requires_member_id and request.group_instance_id is None:
            timer = self._clock.call_later(
                request.session_timeout_ms / 1_000, partial(self._pending_is_late, group, member_id)
            )
            group.pending[member_id] = PendingMember(room, timer, request.protocols[0].metadata)
            raise RefusedError(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        self._add(group, Member(member_id, request, room, self._now_s), request, future)

    def _join_again(self, group: Group, request: JoinRequest, future: Joining) -> None:
        """With a member id."""
        member_id = request.member_id
        pending = group.pending.get(member_id)
        if pending is not None and request.group_instance_id is None:
            self._resize(pending.room, request)
            room = pending.room.handed_over()
            group.forget_pending(member_id)
            self._add(group, Member(member_id, request, room, self._now_s), request, future)
            return
        error = group.identity_error(member_id, request.group_instance_id)
        if error:
            raise RefusedError(error)
        member = group.members[member_id]
        is_same = member.has_protocols(request.protocols)
        leads = group.leader == member_id
        if is_same and group.state is State.COMPLETING:
            # Its answer was lost, perhaps.
            self._rebalancing.hear(member)
            future.set_result(group.joined(member, group.joined_members() if leads else ()))
        elif is_same and group.state is State.STABLE and not leads:
            self._rebalancing.hear(member)
            future.set_result(group.joined(member))
        else:
            # A leader joins again because what it assigns has changed, such as topics.
            self._resize(member.room, request)
            was_s = member.session_s
            group.update(member, request)
            if member.session_s < was_s:
                self._rebalancing.watch(group, member)
            self._wait(group, member, future)

    def _replace(
        self, group: Group, old: Member, member_id: str, request: JoinRequest, future: Joining
    ) -> None:
        """A static member has come back. Nobody else notices while the group is stable."""
        room = self._reserve(self._room_of_members, request.owner, size_bytes(request))
        told_leader = group.leader
        member = Member(member_id, request, room, self._now_s)
        group.replace(old, member)
        self._rebalancing.watch(group, member)
        if group.state is State.STABLE and group.protocol_name == group.select_protocol():
            if request.may_skip_assignment and group.leader == member_id:
                everybody = group.joined_members()
                future.set_result(group.joined(member, everybody, skip_assignment=True))
            else:
                # A leader who cannot skip the assignment is told of its old id as leader, so that
                # it assigns nothing that nobody would be told of.
                future.set_result(group.joined(member, leader=told_leader))
        else:
            self._wait(group, member, future)

    def _add(self, group: Group, member: Member, request: JoinRequest, future: Joining) -> None:
        group.add(member, request.protocol_type)
        group.newest_s = self._now_s
        self._rebalancing.watch(group, member)
        self._wait(group, member, future)

    def _wait(self, group: Group, member: Member, future: Joining) -> None:
        group.wait_to_join(member, future)
        self._rebalancing.begin(group)
        self._rebalancing.go_on(group)

    # Assigning

    def _sync(self, request: SyncRequest, future: Syncing) -> None:
        group, member = self._member(
            request.group, request.generation, request.member_id, request.group_instance_id
        )
        for said, chosen in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if said is not None and said != chosen:
                raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is State.PREPARING:
            raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is State.STABLE:
            self._rebalancing.hear(member)
            future.set_result(self._rebalancing.synced(group, member))
        else:
            assigned = self._assigned(group, member, request)
            member.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)  # of a connection that ended
            member.syncing = future
            if assigned is not None:
                self._rebalancing.assign(group, assigned)
        self._rebalancing.has_synced(group, member)

    def _assigned(
        self, group: Group, member: Member, request: SyncRequest
    ) -> dict[str, bytes] | None:
        """The assignment of the generation, if the leader sends it, for members alone."""
        if group.leader != member.member_id:
            return None
        given = request.assignments
        assigned = {member_id: given.get(member_id, b"") for member_id in group.members}
        if any(len(one) > kafka_limits.ASSIGNMENT_BYTES_MAX for one in assigned.values()):
            raise RefusedError(ErrorCode.MESSAGE_TOO_LARGE)
        group.assignments_room = self._reserve(
            self._room_of_members, member.room.owner, sum(map(len, assigned.values()))
        )
        return assigned

    # Others

    @property
    def _now_s(self) -> float:
        return self._clock.monotonic_s()

    def _closed(self) -> ErrorCode:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if self._is_closed else ErrorCode.NONE

    def _member(
        self, name: str, generation: int, member_id: str, instance_id: str | None
    ) -> tuple[Group, Member]:
        """Raises RefusedError if that is no member of this generation."""
        group = self._groups.get(name)
        if group is None:
            raise RefusedError(self._closed() or ErrorCode.UNKNOWN_MEMBER_ID)
        error = group.identity_error(member_id, instance_id)
        if error:
            raise RefusedError(error)
        if generation != group.generation:
            raise RefusedError(ErrorCode.ILLEGAL_GENERATION)
        return group, group.members[member_id]

    def _leave(self, name: str, member_id: str, instance_id: str | None) -> ErrorCode:
        group = self._groups.get(name)
        if group is None:
            return self._closed() or ErrorCode.UNKNOWN_MEMBER_ID
        if not member_id and instance_id in group.static_members:
            member_id = group.static_members[instance_id].member_id
        if member_id in group.pending:
            self._pending_is_late(group, member_id)
            return ErrorCode.NONE
        error = group.identity_error(member_id, instance_id)
        if not error:
            self._rebalancing.remove(group, group.members[member_id])
        return error

    def _pending_is_late(self, group: Group, member_id: str) -> None:
        group.forget_pending(member_id)
        self._rebalancing.go_on(group)
        self._forget_if_unused(group)

    def _forget_if_unused(self, group: Group) -> None:
        if not group.members and not group.pending and group.name in self._groups:
            del self._groups[group.name]
            group.room.release()

    def _resize(self, room: Reservation, request: JoinRequest) -> None:
        size = size_bytes(request)
        if size > room.held:
            try:
                room.grow(size - room.held)
            except (OverloadedError, ShareExceededError) as error:
                raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED) from error
        room.shrink_to(size)

    def _reserve(self, shares: Shares, owner: str, amount: int) -> Reservation:
        try:
            return shares.reserve(owner, amount)
        except (OverloadedError, ShareExceededError) as error:
            raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED) from error
