"""Memory: an idle process is small, and thousands of stalled producers stay bounded."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.crash.arena import s3_arena
from tests.support.faultproxy import Rule
from tests.support.load import Connection, LostError, NotSentError, ask_until
from tests.support.process import SebProcess

pytestmark = [pytest.mark.slow, pytest.mark.measured]

MB = 1_000_000
IDLE_BYTES_MAX = 130 * MB
BUSY_BYTES_MAX = 300 * MB
P99_S_MAX = 0.2
DEADLINE_S = 15.0  # room for all of them to connect, and to be told
TOLD_LATE_S = 5.0  # thousands of answers at one moment take a while


@pytest.fixture(autouse=True)
def _many_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))


async def test_an_idle_process_is_small(tmp_path: Path) -> None:
    async with s3_arena("A", tmp_path) as arena:
        seb = arena.start()
        await seb.ready()
        print(f"idle: {seb.rss_bytes() / MB:.0f} MB")
        assert seb.rss_bytes() < IDLE_BYTES_MAX


async def stalled(seb: SebProcess, key: str, size: int) -> tuple[str, float]:
    """What a producer of one record was told, and how many seconds after it was connected."""
    connection = Connection(seb.port, key)
    await connection.open()
    asked_s = time.monotonic()
    try:
        answer = await connection.request(
            "POST", "/v1/topics/stalled/records", b"x" * size, timeout_s=3 * DEADLINE_S
        )
    except (LostError, NotSentError) as error:
        return repr(error), time.monotonic() - asked_s
    finally:
        connection.close()
    return answer.code, time.monotonic() - asked_s


@pytest.mark.parametrize(("producers", "size"), [(5_000, 1024), (1_000, 64 * 1024)])
async def test_stalled_producers_are_bounded_told_in_time_and_disturb_nobody(
    producers: int, size: int, tmp_path: Path
) -> None:
    async with s3_arena("A", tmp_path, ack_timeout=f"{DEADLINE_S:.0f}s") as arena:
        assert arena.proxy is not None
        seb = arena.start()
        await seb.ready()
        key = seb.admin_key
        connection = Connection(seb.port, key)
        path = "/v1/topics/quiet/records"
        for _ in range(20):
            assert (await connection.request("POST", path, b"y" * 1000)).status == 201
        connection.close()
        arena.proxy.add(Rule("hang", method="PUT", match="/journal/"))
        stop = asyncio.Event()
        others = [asyncio.create_task(ask_until(stop, seb.port, p, key)) for p in
                  (f"{path}?offset=0", "/healthz")]  # fmt: skip
        told = await asyncio.gather(*(stalled(seb, key, size) for _ in range(producers)))
        stop.set()
        peak = seb.rss_bytes("VmHWM")
        slowest_s = max(seconds for _, seconds in told)
        answers = Counter(code for code, _ in told)
        measured = [await other for other in others]
        p99_s = [m.percentile_s(99) for m in measured]
        print(f"{producers} of {size} bytes: {peak / MB:.0f} MB at most, {dict(answers)}, "
              f"slowest {slowest_s:.1f} s, p99 of others {[f'{s * 1000:.0f} ms' for s in p99_s]} "
              f"of {[len(m.seconds) for m in measured]}")  # fmt: skip
        assert set(answers) <= {"outcome_unknown", "overloaded"}
        assert slowest_s < DEADLINE_S + TOLD_LATE_S
        assert peak < BUSY_BYTES_MAX
        assert all(set(m.answers) == {200} for m in measured)
        assert max(p99_s) < P99_S_MAX
