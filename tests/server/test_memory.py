"""Memory: an idle process is small, and thousands of stalled producers stay bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.arena import s3_arena
from tests.proof.stalled import MB, stalled_producers

pytestmark = [pytest.mark.slow, pytest.mark.measured]

IDLE_BYTES_MAX = 130 * MB


async def test_an_idle_process_is_small(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        print(f"idle: {seb.rss_bytes() / MB:.0f} MB")
        assert seb.rss_bytes() < IDLE_BYTES_MAX


async def test_stalled_producers_of_large_records_are_bounded_and_told_in_time(
    tmp_path: Path,
) -> None:
    """The proof does the same with 5,000 of small ones."""
    await stalled_producers(1_000, 64 * 1024, tmp_path)
