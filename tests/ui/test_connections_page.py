"""The page of connections names producers that are stalled; that of a group, its members."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seb_appliance.broker.groups.members import GroupMember, Membership
from seb_appliance.broker.status import PortStatus
from seb_appliance.protocols.sockets.connected import Connected, Stalled, connections_of
from tests.support.appliance import RunningAppliance
from tests.ui.pages import Visitor

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Port:
    """With one producer, which is stalled, and one group of 101 members."""

    status = PortStatus("Kafka", 1, stalled=1)
    count = 101

    def connected(self) -> Iterator[Connected]:
        stalled = Stalled("orders.eu", 5, 1.02)
        yield Connected(1, "Kafka", "shop", "key", "192.0.2.7", 0, 0, 9, 9, 5, stalled=stalled)

    def disconnect(self, number: int) -> bool:
        return False

    def groups(self) -> list[str]:
        return ["packers"]

    def count_of(self, group: str) -> int:
        return self.count if group == "packers" else 0

    def owners(self, group: str) -> Iterator[tuple[str, list[str]]]:
        if group == "packers":
            yield "key", ["orders.eu"]

    def membership(self, group: str) -> Membership | None:
        if group != "packers":
            return None
        assigned = ["orders.eu", "orders.eu.kafka-2"]
        first = GroupMember("m-0", "one", "<i>", "192.0.2.8", ["orders.eu"], assigned)
        others = [GroupMember(f"m-{n}", None, "c", "::1", None, None) for n in range(1, self.count)]
        return Membership("Kafka", "Stable", 7, "range", [first, *others])


@pytest.fixture(autouse=True, scope="module")
def port(seb: RunningAppliance) -> None:
    connections_of(seb.appliance.beside).add(Port())
    seb.appliance.broker.groups.members.add(Port())


async def test_a_stalled_producer_is_named_with_what_helps(admin: Visitor) -> None:
    page = (await admin.get("/ui/connections")).text
    assert "1 producer is stalled" in page
    assert "<code>linger</code>" in page

    assert 'stalled: 1.0 s in the window of <a href="/ui/topics/orders.eu"' in page


async def test_the_page_of_a_group_shows_its_members(olga: Visitor) -> None:
    page = (await olga.get("/ui/groups/packers")).text
    assert "<b>101 members</b> by the Kafka protocol: Stable, generation 7, assignor range." in page
    assert "&lt;i&gt;" in page

    assert "orders.eu.kafka-2" in page
    assert "instance one" in page
    assert "m-99" in page
    assert "m-100" not in page
    assert "1 more:" in page


async def test_the_list_of_groups_counts_members_and_has_groups_without_offsets(
    olga: Visitor,
) -> None:
    page = (await olga.get("/ui/groups")).text
    assert "/ui/groups/packers" in page
    assert 'data-name="Members">101<' in page
