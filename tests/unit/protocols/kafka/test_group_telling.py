"""What is told of the members of a group, and what that costs."""

from __future__ import annotations

import pytest

from seb_appliance.protocols.kafka.groups import telling
from seb_appliance.protocols.kafka.groups.telling import KnownMembers


class Members:
    """A coordinator whose members say this of themselves."""

    def __init__(self, *metadata: bytes) -> None:
        self._metadata = metadata

    def owners(self, _: str) -> list[tuple[str, bytes]]:
        return [("key", one) for one in self._metadata]


SUBSCRIPTION = b"\0\3\0\0\0\1\0\6orders\xff\xff\xff\xff"


def test_a_subscription_is_not_read_to_know_whose_the_members_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    reading = telling._read
    monkeypatch.setattr(telling, "_read", lambda r, data: read.append(data) or reading(r, data))
    members = list(KnownMembers(Members(SUBSCRIPTION, b"what is none")).owners("g"))
    assert [owner for owner, _ in members] == ["key", "key"]
    assert not read
    assert [list(topics) for _, topics in members] == [["orders"], []]
    assert read == [SUBSCRIPTION, b"what is none"]
