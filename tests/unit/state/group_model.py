"""What journal events do to consumer groups, as plain dictionaries."""

from __future__ import annotations

from seb_appliance.broker.ports import GroupOffsetRow, LeaseRow, TopicRow
from seb_appliance.formats.operations import (
    CommittedOffset,
    Event,
    GroupDeleted,
    GroupReset,
    LeaseReleased,
    LeaseTaken,
    OffsetsCommitted,
)
from tests.unit.state.journal import Journal


class GroupModel:
    journal: Journal
    topics: dict[int, TopicRow]
    group_offsets: dict[tuple[str, int], GroupOffsetRow]
    group_owners: dict[str, str]
    leases: dict[str, LeaseRow]
    _events: list[Event]
    _next_created_us: int

    def _note(self, number: int, **members: str) -> None:
        raise NotImplementedError

    def _commit(self, number: int) -> None:
        self._move(OffsetsCommitted, number)

    def _reset(self, number: int) -> None:
        self._move(GroupReset, number)

    def _move(self, kind: type[OffsetsCommitted | GroupReset], number: int) -> None:
        group = f"group-{number % 3}"
        topics = sorted(self.topics)[: number % 4]
        items = [CommittedOffset(topic_id, number + topic_id, str(number)) for topic_id in topics]
        if items:
            self._events.append(kind(group=group, offsets=tuple(items)))
        for item in items:
            self.group_offsets[group, item.topic_id] = GroupOffsetRow(
                group, item.topic_id, item.offset, item.metadata, self._next_created_us
            )

    def _forget(self, number: int) -> None:
        group = f"group-{number % 3}"
        self._events.append(GroupDeleted(group=group))
        self.leases.pop(group, None)
        for place in [place for place in self.group_offsets if place[0] == group]:
            del self.group_offsets[place]
        self._forget_owners()

    def _is_there(self, group: str) -> bool:
        return group in self.leases or any(place[0] == group for place in self.group_offsets)

    def _forget_owners(self) -> None:
        for group in list(self.group_owners):
            if not self._is_there(group):
                del self.group_owners[group]

    def _own(self, number: int) -> None:
        """Somebody makes a group by taking its lease, or thinks so."""
        group, owner = f"group-{number % 3}", f"owner-{number}"
        self._note(number, actor=owner, action="group_created", subject=group)
        if not self._is_there(group):
            self.group_owners[group] = owner
        self._lease(number)

    def _lease(self, number: int) -> None:
        group, holder = f"group-{number % 3}", f"worker-{number}"
        self._events.append(LeaseTaken(group=group, holder=holder, ttl_ms=number))
        seq = self.journal.position.seq + 1
        self.leases[group] = LeaseRow(group, seq, holder, number)

    def _release(self, number: int) -> None:
        if self.leases:
            group = sorted(self.leases)[number % len(self.leases)]
            self._events.append(LeaseReleased(group=group))
            del self.leases[group]
            self._forget_owners()
