"""The keeper of tables of an appliance that was taken over, and does not know it yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance.broker.lake.names import HINT
from seb_appliance.errors import FencedError
from seb_appliance.storage.stores.memory import MemoryStore
from tests.unit.test_tables import ground, look_after_an_hour


async def test_who_was_taken_over_does_not_set_the_hint_of_a_table_back(tmp_path: Path) -> None:
    store = MemoryStore(0)
    async with ground(tmp_path / "first", store) as fenced:
        await fenced.make()
        await fenced.commit("a")
        hint = fenced.seb.appliance.broker.tables.all()[0].head.key_of(HINT)
        key = (tmp_path / "first" / "data" / "admin.key").read_text()
        (tmp_path / "second" / "data").mkdir(parents=True)
        (tmp_path / "second" / "data" / "admin.key").write_text(key)
        async with ground(tmp_path / "second", store) as here:
            await here.commit("b")
            newest = await store.get(hint)
            with pytest.raises(FencedError):
                await look_after_an_hour(fenced)
            assert await store.get(hint) == newest
            assert await here.rows() == [(0, "a"), (1, "b")]
