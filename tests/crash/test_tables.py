"""Kill -9 in every step of a commit of a lake table: it goes on, and has each record once."""

from __future__ import annotations

from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import Place, directory_arena, s3_arena
from tests.crash.table_kills import TableKills

pytestmark = pytest.mark.slow

PLACES: list[tuple[Mode, Place, list[str]]] = [
    ("A", s3_arena, ["T1", "T3", "T5", "T7", "T9"]),
    ("B", directory_arena, ["T2", "T4", "T6", "T8"]),
]


@pytest.mark.parametrize(("mode", "place", "points"), PLACES)
async def test_a_kill_in_each_step_of_a_tables_commit_loses_and_doubles_nothing(
    mode: Mode, place: Place, points: list[str], tmp_path: Path
) -> None:
    async with place(mode, tmp_path) as arena:
        here = TableKills(arena, mode)
        await here.begin()
        for i, point in enumerate(points):
            await here.kill_at(point, 1 + i % 2, fresh=i % 3 == 1)
        assert await here.verdict()


async def test_a_kill_after_a_drop_leaves_nothing_of_the_table(tmp_path: Path) -> None:
    async with directory_arena("A", tmp_path) as arena:
        here = TableKills(arena, "drop")
        await here.begin()
        await here.kill_any_time(fresh=False)
        await here.kill_after_a_drop()
        assert await here.verdict()
