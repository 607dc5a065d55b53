"""Kills while what is stored is compressed: nothing is lost, nothing doubled."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import directory_arena, rounds
from tests.support.load import Connection, metric, pass_time

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mode", ["A", "B"])
async def test_kills_among_compressed_batches_lose_and_double_nothing(
    mode: Mode, tmp_path: Path
) -> None:
    dice = random.Random(f"compressed/{mode}")
    flags = ("--compression", "zstd")
    async with directory_arena(mode, tmp_path) as arena:
        arena.load.padding = 2_000
        seb = arena.start("local", *flags, take_over=True)
        await seb.ready()
        await arena.begin(seb)
        for i in range(rounds(5)):
            await pass_time(dice.uniform(0, 0.5))
            seb.kill()
            seb = arena.start("local", *flags, fresh=i % 2 == 1)
            arena.serve_from(seb)
            await seb.ready()
            await arena.load.until_acked(3, seb.port)
        with closing(Connection(seb.port)) as connection:
            text = (await connection.request("GET", "/metrics")).body
        before = metric(text, "seb_compressed_plain_bytes_total")
        assert 0 < metric(text, "seb_compressed_bytes_total") < before / 2
        await arena.verdict(seb)
        await arena.stop_and_compare(seb)
