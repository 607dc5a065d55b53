"""How a group passes from one generation of members to the next, and whose session is over.

A group that has no members waits a short time for more than the first one. Then, and in every
later rebalance once all members have joined again or their time is up, the next generation begins:
its leader is told the members, and its assignment ends the rebalance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from seb_appliance.clock import Clock
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.errors import ErrorCode
from seb_appliance.protocols.kafka.groups.group import Group
from seb_appliance.protocols.kafka.groups.member import Member
from seb_appliance.protocols.kafka.groups.values import State, SyncResult

_SOON_S: Final = 0.001  # a timer that fires that early is not set again


class Rebalancing:
    def __init__(self, clock: Clock, delay_s: float, emptied: Callable[[Group], None]) -> None:
        """`delay_s`: how long a new group waits after each member. `emptied`: called when the last
        member is gone."""
        self._clock = clock
        self._delay_s = delay_s
        self._emptied = emptied
        self.generations = 0  # that began

    def begin(self, group: Group) -> None:
        """All members are to join again. Where they do already, nothing changes."""
        if group.state is State.PREPARING:
            return
        for member in group.members.values():
            if member.syncing is not None:
                member.refuse_sync(ErrorCode.REBALANCE_IN_PROGRESS)
                self.hear(member)
        group.drop_assignments()
        group.unsynced.clear()
        group.stop_timer()
        group.is_forming = group.state is State.EMPTY
        group.state = State.PREPARING
        if group.is_forming:
            group.first_s = group.newest_s = self._clock.monotonic_s()
            self._start(group, min(self._delay_s, group.rebalance_s), self._formed)
        else:
            self._start(group, group.rebalance_s, self._complete)

    def go_on(self, group: Group) -> None:
        """To the next generation, if nobody is waited for."""
        if group.state is State.PREPARING and not group.is_forming and group.has_all_joined:
            self._complete(group)

    def remove(self, group: Group, member: Member) -> None:
        """It has left, or its session is over."""
        group.drop(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self._go_on_without(group)

    def assign(self, group: Group, assignments: dict[str, bytes]) -> None:
        """The rebalance is over; all members who wait for it get their assignment."""
        group.state = State.STABLE
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.syncing is not None:
                member.answer_sync(self.synced(group, member))
                self.hear(member)

    def synced(self, group: Group, member: Member) -> SyncResult:
        return SyncResult(
            ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment
        )

    def has_synced(self, group: Group, member: Member) -> None:
        """The member has asked for its assignment."""
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.stop_timer()

    # Sessions

    def hear(self, member: Member) -> None:
        """Its session begins again. Its timer is not touched: that looks when it fires."""
        member.heard_s = self._clock.monotonic_s()

    def watch(self, group: Group, member: Member, seconds: float | None = None) -> None:
        """Remove the member when its session is over."""
        if member.timer is not None:
            member.timer.cancel()
        after_s = member.session_s if seconds is None else seconds
        member.timer = self._clock.call_later(after_s, partial(self._look_at, group, member))

    def _look_at(self, group: Group, member: Member) -> None:
        silent_s = self._clock.monotonic_s() - member.heard_s
        if member.is_new:
            # It has no member id yet, so whoever lost its connection has come again as another.
            left_s = kafka_limits.NEW_MEMBER_S_MAX - silent_s
        elif member.is_waiting:
            left_s = member.session_s
        else:
            left_s = member.session_s - silent_s
        if left_s > _SOON_S:
            self.watch(group, member, min(left_s, member.session_s))
        else:
            self.remove(group, member)

    # Phases

    def _start(self, group: Group, seconds: float, end: Callable[[Group], None]) -> None:
        group.timer = self._clock.call_later(seconds, partial(end, group))

    def _formed(self, group: Group) -> None:
        """The initial delay is over, unless somebody joined in it."""
        most_s = min(self._delay_s * kafka_limits.REBALANCE_DELAYS_MAX, group.rebalance_s)
        until_s = min(group.newest_s + self._delay_s, group.first_s + most_s)
        left_s = until_s - self._clock.monotonic_s()
        if left_s > _SOON_S:
            self._start(group, left_s, self._formed)
        else:
            self._complete(group)

    def _complete(self, group: Group) -> None:
        """The next generation, of those who have joined. Static members may be away."""
        group.stop_timer()
        group.is_forming = False
        for member in [m for m in group.members.values() if m.joining is None]:
            if member.instance_id is None:
                group.drop(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if not group.members:
            self._empty(group)
            return
        if not group.elect():
            self._start(group, group.rebalance_s, self._complete)
            return
        self.generations += 1
        group.generation += 1
        group.protocol_name = group.select_protocol()
        group.state = State.COMPLETING
        everybody = group.joined_members()
        for member in group.members.values():
            if member.joining is not None:
                member.is_new = False
                self.hear(member)
                # A static member who is away cannot ask; its session alone says when it is gone.
                group.unsynced.add(member.member_id)
                group.answer_join(member, group.joined(member, everybody))
        self._start(group, group.rebalance_s, self._unsynced_are_late)

    def _unsynced_are_late(self, group: Group) -> None:
        group.timer = None
        for member_id in tuple(group.unsynced):
            group.drop(group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        self._go_on_without(group)

    def _go_on_without(self, group: Group) -> None:
        """Without members who are gone."""
        if not group.members:
            self._empty(group)
            return
        self.begin(group)
        self.go_on(group)

    def _empty(self, group: Group) -> None:
        group.stop_timer()
        group.drop_assignments()
        group.unsynced.clear()
        group.is_forming = False
        group.generation += 1
        group.protocol_name = None
        group.state = State.EMPTY
        self._emptied(group)
