"""A consumer group: its members, its state, and what both say. It knows no time."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from seb_appliance.broker.shares import Reservation
from seb_appliance.clock import Timer
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.member import Member
from seb_appliance.protocols.kafka.groups.values import (
    DescribedGroup,
    JoinedMember,
    JoinRequest,
    JoinResult,
    ListedGroup,
    Protocol,
    State,
)


class PendingMember(NamedTuple):
    """A member id that was given out and has not joined yet. `timer`: when it is forgotten.
    `metadata`: what who asked for it said of itself."""

    room: Reservation
    timer: Timer
    metadata: bytes


class Group:
    """`leader`: id of the member who assigns, or None if it is gone. `waiting`: members who
    wait to join. `unsynced`: those who were told of the generation and have not asked for their
    assignment. `timer`: the end of the phase. `first_s`, `newest_s`: while it forms, the times at
    which its first and its newest member joined."""

    def __init__(self, name: str, room: Reservation) -> None:
        """`room`: what it takes itself."""
        self.name = name
        self.room = room
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members = dict[str, Member]()
        self.static_members = dict[str, Member]()  # by instance id
        self.pending = dict[str, PendingMember]()
        self.unsynced = set[str]()
        self.waiting = 0
        self.is_forming = False
        self.first_s = 0.0
        self.newest_s = 0.0
        self.timer: Timer | None = None
        self.assignments_room: Reservation | None = None
        self._supporting = Counter[str]()  # members, by protocol name

    # Members

    @property
    def has_all_joined(self) -> bool:
        return self.waiting == len(self.members) and not self.pending

    @property
    def rebalance_s(self) -> float:
        return max((member.rebalance_s for member in self.members.values()), default=0.0)

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member
        self._supporting.update(member.protocol_names)

    def update(self, member: Member, request: JoinRequest) -> None:
        self._unsupport(member)
        member.take_over(request)
        self._supporting.update(member.protocol_names)

    def drop(self, member: Member, error: ErrorCode) -> None:
        """Without the member; what it waits for is answered with the error."""
        self.refuse_join(member, error)
        member.refuse_sync(error)
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        self.unsynced.discard(member.member_id)
        self._unsupport(member)
        if self.leader == member.member_id:
            self.leader = None  # until the next generation, which begins without it
        if member.timer is not None:
            member.timer.cancel()
        member.room.release()

    def replace(self, old: Member, new: Member) -> None:
        """The static member with another member id; requests of the old one are fenced."""
        was_unsynced = old.member_id in self.unsynced
        new.is_new = old.is_new
        new.assignment = old.assignment
        self.drop(old, ErrorCode.FENCED_INSTANCE_ID)
        self.add(new, self.protocol_type)  # leads, if the old one did
        if was_unsynced:
            self.unsynced.add(new.member_id)

    def forget_pending(self, member_id: str) -> None:
        pending = self.pending.pop(member_id)
        pending.timer.cancel()
        pending.room.release()

    def identity_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """`NONE` if that is a member, and the one that has the instance id now."""
        if instance_id is not None:
            member = self.static_members.get(instance_id)
            if member is not None and member.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if member is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # Protocols

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """All members support one of them."""
        if not self.members:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporting[name] == everybody for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support."""
        everybody = len(self.members)
        votes = Counter[str]()
        for member in self.members.values():
            votes[next(n for n, _ in member.protocols if self._supporting[n] == everybody)] += 1
        return votes.most_common(1)[0][0]

    def _unsupport(self, member: Member) -> None:
        for name in member.protocol_names:
            self._supporting[name] -= 1
            if not self._supporting[name]:
                del self._supporting[name]

    # Phases

    def wait_to_join(self, member: Member, future: asyncio.Future[JoinResult]) -> None:
        """An older request of the member, whose connection has probably ended, is refused."""
        self.refuse_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.joining = future
        self.waiting += 1

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """It waits for that."""
        waiting, member.joining = member.joining, None
        self.waiting -= 1
        assert waiting is not None
        if not waiting.done():  # its connection may have cancelled it
            waiting.set_result(result)

    def refuse_join(self, member: Member, error: ErrorCode) -> None:
        """If it waits for that."""
        if member.joining is not None:
            self.answer_join(member, JoinResult(error, member.member_id))

    def elect(self) -> bool:
        """The leader is a member who joins; False if nobody does."""
        leader = self.members[self.leader] if self.leader is not None else None
        if leader is None or leader.joining is None:
            joining = (m.member_id for m in self.members.values() if m.joining is not None)
            found = next(joining, None)
            if found is None:
                return False
            self.leader = found
        return True

    def joined(
        self,
        member: Member,
        everybody: tuple[JoinedMember, ...] = (),
        leader: str | None = None,
        skip_assignment: bool = False,
    ) -> JoinResult:
        """What a member is told of this generation. `leader`: if it is told of another one."""
        leads = member.member_id == self.leader
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            leader or self.leader or "",
            everybody if leads else (),
            skip_assignment,
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata_of(self.protocol_name))
            for m in self.members.values()
        )

    def drop_assignments(self) -> None:
        for member in self.members.values():
            member.assignment = b""
        if self.assignments_room is not None:
            self.assignments_room.release()
            self.assignments_room = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # What others see

    def listed(self) -> ListedGroup:
        return ListedGroup(self.name, self.state, self.protocol_type)

    def owners(self) -> list[tuple[str, bytes]]:
        """See `Coordinator.owners`."""
        pending = [(one.room.owner, one.metadata) for one in self.pending.values()]
        members = self.members.values()
        return pending + [(one.room.owner, one.protocols[0].metadata) for one in members]

    def described(self) -> DescribedGroup:
        is_stable = self.state is State.STABLE
        protocol_name = self.protocol_name if is_stable else None
        return DescribedGroup(
            self.name,
            self.state,
            self.generation,
            self.protocol_type,
            protocol_name or "",
            tuple(member.described(protocol_name) for member in self.members.values()),
        )
