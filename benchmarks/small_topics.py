"""What the tidier costs with many small topics: `python -m benchmarks.small_topics`.

An appliance over a bucket in memory, with a clock that is moved: so many minutes of topics that get
one record a minute each. Tells the tidier's PUTs an hour, and what is left of it.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import pytest

from seb_appliance.quantities import format_size
from tests.support.small_topics import SmallTopics


async def measure(topics: int, minutes: int, value_bytes: int, linger: str, step_s: float) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        place = await SmallTopics.start(Path(folder), patch, linger)
        await place.run(topics, minutes, value_bytes, step_s)
        counters, tidying = place.appliance.tidier.counters, place.appliance.broker.tidying
        print(
            f"{topics:,} topics, {minutes} minutes, linger {linger}: "
            f"{place.store.tidier_puts * 60 / minutes:.0f} PUTs an hour of the tidier, "
            f"{counters.jobs} jobs, read {format_size(counters.bytes_read)}, "
            f"written {format_size(counters.bytes_written)}; {len(tidying.stored)} objects with "
            f"{place.sections_in_force:,} active sections, "
            f"{len(tidying.untidied.entries):,} entries wait "
            f"(took {time.perf_counter() - began:.0f} s)",
            flush=True,
        )
        await place.appliance.drain()
        await place.appliance.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--linger", default="1s")
    parser.add_argument("--step-s", type=float, default=1.0, help="what arrives together")
    asked = parser.parse_args()
    given = (asked.topics, asked.minutes, asked.value_bytes, asked.linger, asked.step_s)
    asyncio.run(measure(*given))


if __name__ == "__main__":
    main()
