"""What remembered requests cost: memory, SQLite, a start, and one entry more when there is no room.

python benchmarks/remembered.py [COUNT]
"""

from __future__ import annotations

import asyncio
import gc
import secrets
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from seb_appliance import limits
from seb_appliance.broker.append.retry_results import RememberedRequests
from seb_appliance.formats.contents import Produced, RequestResult
from seb_appliance.state.database import StateDatabase
from tests.unit.state.journal import START_US, Journal

IN_ONE_ENTRY = 1_000


def results(first: int, count: int) -> list[RequestResult]:
    return [
        RequestResult(
            secrets.token_bytes(16), secrets.token_bytes(16), [Produced(7, n, 1, START_US + n)]
        )
        for n in range(first, first + count)
    ]


def memory_mb(count: int, topics: int = 1) -> float:
    """Of so many places, in requests that write to `topics` topics each."""
    gc.collect()
    tracemalloc.start()
    requests = RememberedRequests([])
    for _ in range(0, count, IN_ONE_ENTRY * topics):
        produced = [Produced(topic, 10**9, 1, START_US) for topic in range(topics)]
        requests.apply(
            (
                RequestResult(secrets.token_bytes(16), secrets.token_bytes(16), produced)
                for _ in range(IN_ONE_ENTRY)
            ),
            START_US,
        )
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / 1e6


async def state(count: int, path: Path) -> None:
    journal, database = Journal(), await StateDatabase.open(path)
    for first in range(0, count, IN_ONE_ENTRY):
        entry = journal.write(results=results(first, IN_ONE_ENTRY))
        await database.apply([entry])
    fresh = [journal.write(results=results(count + n, 1)) for n in range(21)]
    took = []
    for entry in fresh:
        began = time.perf_counter()
        await database.apply([entry])
        took.append(time.perf_counter() - began)
    await database.close()
    stored_mb = (await asyncio.to_thread(path.stat)).st_size / 1e6
    print(f"SQLite: {stored_mb:.0f} MB with the entries that brought them")
    print(f"one entry more, with one request: {sorted(took)[10] * 1000:.1f} ms")
    began = time.perf_counter()
    database = await StateDatabase.open(path)
    checked_s = time.perf_counter() - began
    loaded = await database.load()
    loaded_s = time.perf_counter() - began - checked_s
    print(f"a start: {checked_s:.1f} s of checks, {loaded_s:.1f} s to load")
    assert len(loaded.requests) == count
    await database.close()


def main() -> None:
    count = int(sys.argv[1]) if sys.argv[1:] else limits.REMEMBERED_REQUESTS_MAX
    limits.REMEMBERED_REQUESTS_MAX = count  # type: ignore[misc]
    print(f"{count:,} requests of one topic: {memory_mb(count):.0f} MB of memory")
    print(f"{count // 100:,} of 100 topics: {memory_mb(count, 100):.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(state(count, Path(folder) / "state.sqlite"))


if __name__ == "__main__":
    main()
