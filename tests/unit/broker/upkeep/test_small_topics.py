"""Ten thousand topics with a record a minute cost the tidier few PUTs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.small_topics import SmallTopics

TOPICS, MINUTES = 10_000, 6
PUTS_AN_HOUR_MAX = 60


@pytest.mark.slow
async def test_ten_thousand_small_topics_cost_at_most_sixty_puts_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await SmallTopics.start(tmp_path, monkeypatch, linger="1s")
    # Of 400 bytes, so that a job is due every three minutes.
    await place.run(TOPICS, MINUTES, value_bytes=400, step_s=1.0)
    tidier = place.appliance.tidier
    assert tidier.failure == ""
    assert tidier.counters.jobs >= 1
    assert 1 <= place.store.tidier_puts <= PUTS_AN_HOUR_MAX * MINUTES / 60
    for name in ("small-00000", "small-04999", "small-09999"):
        assert await place.stored(name) == place.produced[name] == MINUTES
    assert await place.appliance.drain()
    await place.appliance.close()
