"""How many lake tables one API key may have beside those of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance import limits
from seb_appliance.broker.access.audit import Actor
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.formats.topic_settings import TopicSettings
from tests.unit.test_tables import ground


async def test_topics_of_one_api_key_leave_room_for_tables_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "TABLES_MAX", 4)
    async with ground(tmp_path) as here:
        broker = here.seb.appliance.broker
        grants = (Grant(operation="manage"),)
        greedy, other = [(await broker.access.create(name, grants))[0] for name in ("g", "o")]
        for name, key in (("g1", greedy), ("g2", greedy), ("g3", greedy), ("o", other)):
            await broker.topics.create(name, TopicSettings(table="iceberg"), Actor.of_key(key))
        await here.make()
        while await broker.table_commits.set_next():
            pass
        made = [one.head.definition.name for one in broker.tables.all()]
        assert sorted(made) == ["g1", "g2", "o", "orders"]
