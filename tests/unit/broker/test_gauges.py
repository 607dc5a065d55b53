"""Which groups are furthest behind, as metrics show it."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.broker.gauges import GroupLag


async def test_the_furthest_behind_come_first_and_only_so_many(house, monkeypatch):
    monkeypatch.setattr(limits, "METRICS_GROUPS_SHOWN", 2)
    await house.filled("t", 10)
    for group, offset in (("a", 9), ("b", 1), ("c", 4)):
        await house.commit(group, {"t": offset})
    assert house.broker.gauges.groups_behind() == [GroupLag("b", "t", 9), GroupLag("c", "t", 6)]


async def test_only_so_many_offsets_are_looked_at(house, monkeypatch):
    monkeypatch.setattr(limits, "METRICS_OFFSETS_LOOKED_AT", 1)
    await house.filled("t", 10)
    await house.commit("a", {"t": 9})
    await house.commit("b", {"t": 1})
    assert house.broker.gauges.groups_behind() == [GroupLag("a", "t", 1)]


async def test_a_deleted_topic_has_no_lag(house):
    await house.filled("t", 3)
    await house.commit("a", {"t": 1})
    await house.done(house.broker.topics.delete("t"))
    assert house.broker.gauges.groups_behind() == []
