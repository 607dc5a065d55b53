"""Members of consumer groups. A protocol whose clients share out topics within a group knows its
members, and registers here; the broker knows only committed offsets and leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`instance_id`: of a static member, else None. `client`: what it calls itself. `subscribed`
    and `assigned` (topics) None: the protocol cannot tell, or not yet."""

    member_id: str
    instance_id: str | None
    client: str
    address: str
    subscribed: list[str] | None
    assigned: list[str] | None


@dataclass(frozen=True, slots=True)
class Membership:
    """Who is in a group now. `state` and `assignor` (how topics are assigned; empty: not chosen
    yet) are words of the protocol. `members` may be consumed once."""

    protocol: str
    state: str
    generation: int
    assignor: str
    members: Iterable[GroupMember]


class MembersSource(Protocol):
    """What a protocol tells. All of it is read from memory."""

    @property
    def count(self) -> int:
        """Members of all groups."""

    def groups(self) -> Iterable[str]:
        """Names of groups that have members."""

    def count_of(self, group: str) -> int: ...

    def owners(self, group: str) -> Iterable[tuple[str, Iterable[str]]]:
        """Of those who are in the group, or about to be: the API key, and the topics to which the
        member subscribes, as far as it says so. All may be consumed once."""

    def membership(self, group: str) -> Membership | None:
        """None: the group has no members."""


class Members:
    """Of all protocols."""

    def __init__(self) -> None:
        self._sources: list[MembersSource] = []

    def add(self, source: MembersSource) -> None:
        self._sources.append(source)

    @property
    def count(self) -> int:
        return sum(source.count for source in self._sources)

    def groups(self) -> Iterator[str]:
        return chain.from_iterable(source.groups() for source in self._sources)

    def count_of(self, group: str) -> int:
        return sum(source.count_of(group) for source in self._sources)

    def owners(self, group: str) -> Iterator[tuple[str, Iterable[str]]]:
        return chain.from_iterable(source.owners(group) for source in self._sources)

    def of(self, group: str) -> Membership | None:
        found = (source.membership(group) for source in self._sources)
        return next((one for one in found if one is not None), None)
