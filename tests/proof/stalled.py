"""Thousands of producers that wait for a bucket that does not answer, and others who read."""

from __future__ import annotations

import asyncio
import resource
import time
from collections import Counter
from pathlib import Path

from tests.crash.arena import s3_arena
from tests.proof.ground import START_S
from tests.proof.units import Done, PartOfProof
from tests.support.faultproxy import Rule
from tests.support.load import Connection, LostError, NotSentError, ask_until
from tests.support.process import SebProcess

MB = 1_000_000
BUSY_BYTES_MAX = 300 * MB
P99_S_MAX = 0.2
DEADLINE_S = 15.0  # room for all of them to connect, and to be told
TOLD_LATE_S = 5.0  # thousands of answers at one moment take a while


def allow_many_files() -> None:
    """For as many sockets as there are producers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))


async def _stalled(seb: SebProcess, key: str, size: int) -> tuple[str, float]:
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


async def stalled_producers(producers: int, size: int, folder: Path) -> Done:
    """So many, each with one record of `size` bytes: memory is bounded, they are told in time, and
    who reads is not disturbed. Raises AssertionError."""
    allow_many_files()
    folder.mkdir(parents=True, exist_ok=True)
    async with s3_arena("A", folder, ack_timeout=f"{DEADLINE_S:.0f}s") as arena:
        assert arena.proxy is not None
        seb = arena.start()
        await seb.ready(START_S)
        key = seb.admin_key
        connection = Connection(seb.port, key)
        path = "/v1/topics/quiet/records"
        for _ in range(20):
            assert (await connection.request("POST", path, b"y" * 1000)).status == 201
        connection.close()
        arena.proxy.add(Rule("hang", method="PUT", match="/journal/"))
        stop = asyncio.Event()
        others = [
            asyncio.create_task(ask_until(stop, seb.port, asked, key))
            for asked in (f"{path}?offset=0", "/healthz")
        ]
        told = await asyncio.gather(*(_stalled(seb, key, size) for _ in range(producers)))
        stop.set()
        peak = seb.rss_bytes("VmHWM")
        slowest_s = max(seconds for _, seconds in told)
        answers = Counter(code for code, _ in told)
        measured = [await other for other in others]
    p99_s = max(found.percentile_s(99) for found in measured)
    print(f"{producers} of {size} bytes: {peak / MB:.0f} MB at most, {dict(answers)}, "
          f"slowest {slowest_s:.1f} s, p99 of others {p99_s * 1000:.0f} ms "
          f"of {[len(m.seconds) for m in measured]}")  # fmt: skip
    assert set(answers) <= {"outcome_unknown", "overloaded", "share_exceeded"}, answers
    assert slowest_s < DEADLINE_S + TOLD_LATE_S, slowest_s
    assert peak < BUSY_BYTES_MAX, peak
    assert all(set(found.answers) == {200} for found in measured)
    assert p99_s < P99_S_MAX, p99_s
    done = Done(f"{producers}-{size}", calls=producers, faults={"bucket hangs": 1})
    done.numbers = {f"told {code}": count for code, count in answers.items()}
    done.numbers |= {"max memory, MB": peak / MB, "max p99 of others, ms": p99_s * 1000}
    return done


async def run(unit: str, seed: str, folder: Path) -> Done:
    """`PRODUCERS-BYTES`."""
    producers, size = unit.split("-")
    return await stalled_producers(int(producers), int(size), folder)


STALLED = PartOfProof(
    "stalled-producers",
    "producers that wait for a bucket that hangs, while other clients read",
    dict.fromkeys(("quick", "full"), "5,000: at most 300 MB, others' p99 below 200 ms"),
    {"quick": ["5000-1024"], "full": ["5000-1024", "1000-65536"]},
    run,
)
