"""What members of a group ask the coordinator for, and what they are told, in Kafka's terms."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from seb_appliance.protocols.kafka.errors import ErrorCode

NO_GENERATION: Final = -1


class State(StrEnum):
    """Of a group, as DescribeGroups and ListGroups spell it.

    The coordinator forgets a group without members. It is then `EMPTY` if it has committed offsets,
    and else `DEAD`; whoever knows the offsets says which."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"  # members join the next generation
    COMPLETING = "CompletingRebalance"  # they wait for the assignment of their leader
    STABLE = "Stable"
    DEAD = "Dead"


class Protocol(NamedTuple):
    """A way of assigning that a member supports, such as `range`, with what its assignor says."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """`owner`: id of the API key, whose share is used. `member_id`: empty if it has none yet.
    `protocols`: the preferred one first. `rebalance_timeout_ms`: below 0, it is the session
    timeout. `requires_member_id`: JoinGroup from version 4. `may_skip_assignment`: from 9."""

    group: str
    owner: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    requires_member_id: bool = True
    may_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    """What the leader is told of each member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResult:
    """`members`: all of the generation, for the leader; others are told none. `leader` is a member
    id. `skip_assignment`: the leader assigns nothing, because the assignment stays in force."""

    __slots__ = (
        "error",
        "generation",
        "leader",
        "member_id",
        "members",
        "protocol_name",
        "protocol_type",
        "skip_assignment",
    )

    def __init__(
        self,
        error: ErrorCode,
        member_id: str,
        generation: int = NO_GENERATION,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader: str = "",
        members: tuple[JoinedMember, ...] = (),
        skip_assignment: bool = False,
    ) -> None:
        self.error = error
        self.member_id = member_id
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader = leader
        self.members = members
        self.skip_assignment = skip_assignment


class SyncRequest(NamedTuple):
    """`assignments`: by member id; of the leader. Protocol type and name are sent from version 5,
    and then compared."""

    group: str
    generation: int
    member_id: str
    group_instance_id: str | None = None
    assignments: Mapping[str, bytes] = {}
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncResult(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """`member_id` may be empty if there is an instance id: an operator removes a static member."""

    member_id: str
    group_instance_id: str | None = None


class LeaveResult(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


class DescribedMember(NamedTuple):
    """`metadata` of the chosen protocol, and `assignment`: empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    owner: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group: str
    state: State
    generation: int
    protocol_type: str
    protocol_name: str
    members: tuple[DescribedMember, ...]


class ListedGroup(NamedTuple):
    group: str
    state: State
    protocol_type: str
