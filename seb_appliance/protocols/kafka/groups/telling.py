"""What operators are told of the members of Kafka consumer groups."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.groups.members import GroupMember, Membership
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.groups.coordinator import Coordinator
from seb_appliance.protocols.kafka.groups.values import DescribedMember
from seb_appliance.protocols.kafka.partitions import topic_of
from seb_appliance.protocols.kafka.wire.codec import Message, reader_of
from seb_appliance.protocols.kafka.wire.types import BadMessageError, Frame, Reader

_CONSUMERS: Final = "consumer"  # the protocol type whose members say what follows, as clients do
# Later versions add fields behind these.
_SUBSCRIPTION: Final = reader_of("version:i16 topics:[str]")
_ASSIGNMENT: Final = reader_of("version:i16 partitions:[ topic:str partitions:[i32] ]")


class KnownMembers:
    """A `MembersSource`."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def count(self) -> int:
        return self._coordinator.counts.members

    def groups(self) -> Iterable[str]:
        return self._coordinator.with_members()

    def count_of(self, group: str) -> int:
        return self._coordinator.members_of(group)

    def owners(self, group: str) -> Iterator[tuple[str, Iterator[str]]]:
        for owner, metadata in self._coordinator.owners(group):
            yield owner, _subscribed(metadata)

    def membership(self, group: str) -> Membership | None:
        found = self._coordinator.describe(group)
        if found is None or not found.members:
            return None
        consumes = found.protocol_type == _CONSUMERS
        members = (_member(one, consumes=consumes) for one in found.members)
        return Membership("Kafka", found.state, found.generation, found.protocol_name, members)


def _subscribed(metadata: bytes) -> Iterator[str]:
    """Read when it is asked for: most ask who the members are, and no more."""
    found = _read(_SUBSCRIPTION, metadata)
    for name in () if found is None else found["topics"]:
        if len(name) <= limits.NAME_LENGTH_MAX:
            yield name


def _member(one: DescribedMember, *, consumes: bool) -> GroupMember:
    subscription = _read(_SUBSCRIPTION, one.metadata) if consumes else None
    assignment = _read(_ASSIGNMENT, one.assignment) if consumes else None
    return GroupMember(
        one.member_id,
        one.group_instance_id,
        one.client_id,
        one.client_host,
        None if subscription is None else sorted(subscription["topics"]),
        None if assignment is None else sorted(_topics(assignment["partitions"])),
    )


def _topics(assigned: list[Message]) -> Iterator[str]:
    """The topics that hold these partitions."""
    for one in assigned:
        for partition in one["partitions"]:
            yield topic_of(one["topic"], partition)


def _read(reader: Reader, data: bytes) -> Message | None:
    """None: there is nothing, it is of another kind, or it is too much. Clients may send what they
    like here."""
    frame = Frame(data)
    frame.elements = kafka_limits.MESSAGE_ELEMENTS_MAX - kafka_limits.ASSIGNED_SHOWN_MAX
    try:
        found, _ = reader(frame, 0)
    except (BadMessageError, struct.error, IndexError):
        return None
    assert isinstance(found, dict)
    return found
