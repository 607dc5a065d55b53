"""Clients of the Kafka protocol go on as if nothing had happened, whatever kills the appliance: an
idempotent producer, a reader, and a worker that reads, writes and commits in transactions."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from seb_appliance.storage.layout import Mode
from tests.crash.arena import rounds
from tests.proof import kafka
from tests.proof.ground import PLACES, Ground, ground
from tests.support.load import pass_time

pytestmark = pytest.mark.slow


async def suffer(here: Ground, dice: random.Random, number: int) -> None:
    """A kill with the loss of the disk, a take-over, or a kill."""
    await pass_time(dice.uniform(0.05, 0.8))
    if number % 3 == 1:
        await here.take_over(paused=number % 2 == 1)
    else:
        await here.kill(fresh=number % 3 == 0)


@pytest.mark.parametrize(("mode", "place"), [("A", "S3"), ("B", "directory")])
async def test_records_and_transactions_by_kafka_are_stored_once_over_kills_and_take_overs(
    mode: Mode, place: str, tmp_path: Path
) -> None:
    dice = random.Random(f"kafka/{mode}")
    async with ground(mode, tmp_path / "ground", f"kafka/{mode}", PLACES[place]) as here:
        await here.begin(kafka.CREW, by_kafka=True)
        for number in range(rounds(3 if mode == "A" else 2)):
            await suffer(here, dice, number)
        await here.verdict()
        print(sum(here.faults.values()), "faults;", dict(here.crowd.answers.most_common()))
