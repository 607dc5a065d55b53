"""A load at a steady rate, and the memory of the process under it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.proof.calling import Caller, Crowd
from tests.proof.history import Part, Record, Write
from tests.proof.workers import TOPICS, Chain, as_json
from tests.support.process import SebProcess

MIB = 2**20
PER_REQUEST = 5


def steady(
    crowd: Crowd, records_per_s: float, producers: int = 10, name: str = "steady"
) -> list[asyncio.Task[None]]:
    """Producers that together send so many records a second while they are answered; what is not
    acknowledged is sent again, as an idempotent producer does."""
    every_s = producers * PER_REQUEST / records_per_s
    return [
        asyncio.create_task(_produce(crowd, f"{name}-{number}", number, every_s))
        for number in range(producers)
    ]


async def _produce(crowd: Crowd, name: str, number: int, every_s: float) -> None:
    caller, chain, seq = Caller(crowd, name, number, timeout_s=40.0), Chain(name), 0
    topic = TOPICS[number % len(TOPICS)]
    next_s = time.monotonic()
    while not crowd.stopping.is_set():
        now_s = time.monotonic()
        await asyncio.sleep(max(0.0, next_s - now_s))
        next_s = max(next_s + every_s, now_s - 1.0)  # what was missed is not made up for at once
        records = tuple(Record(chain.next()) for _ in range(PER_REQUEST))
        headers = {"Producer-Id": name, "Producer-Epoch": "0", "Producer-Seq": str(seq)}
        told = None
        while told is None and not crowd.stopping.is_set():
            part = Part(topic, records)
            write = Write(*caller.begin(), parts=(part,), sequence=(name, 0, seq))
            crowd.history.writes.append(write)
            path, body = f"/v1/topics/{topic}/records", {"records": as_json(records)}
            told = await caller.make(write, "POST", path, body, headers)
        if told is not None:
            crowd.latencies_s.append(write.answered_s - write.sent_s)
            part.offset = -1 if told["offset"] is None else told["offset"]
        seq += 1
    caller.close()


@dataclass
class Memory:
    """What a process held, as (second, MiB), second by second while `watch` runs; how many files
    and sockets; and its processor time with the number of writes that were acknowledged."""

    points: list[tuple[float, float]] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    work: list[tuple[float, int]] = field(default_factory=list)

    async def watch(
        self, seb: SebProcess, acked: Callable[[], int] = int, every_s: float = 1.0
    ) -> None:
        began_s = time.monotonic()
        while seb.running:
            mib = seb.rss_bytes() / MIB
            self.points.append((round(time.monotonic() - began_s, 1), round(mib, 1)))
            self.files.append(seb.open_files())
            self.work.append((seb.processor_s(), acked()))
            await asyncio.sleep(every_s)

    @property
    def peak_mib(self) -> float:
        return max(mib for _, mib in self.points)

    def drift(self) -> float:
        """Processor time for each write in the last quarter, as a multiple of the first one's."""
        quarter = max(1, len(self.work) // 4)
        (first_s, first), (last_s, last) = (
            (end[0] - begin[0], end[1] - begin[1])
            for begin, end in (
                (self.work[0], self.work[quarter]),
                (self.work[-quarter - 1], self.work[-1]),
            )
        )
        return (last_s / last) / (first_s / first)

    def more_files(self) -> int:
        """Beyond the first quarter in the last one, each at its fewest: what is open for a moment
        is no leak."""
        quarter = max(1, len(self.files) // 4)
        return min(self.files[-quarter:]) - min(self.files[:quarter])

    def slope_mib_per_hour(self, share: float) -> tuple[float, float]:
        """Of the last `share` of the time: the slope of the line of least squares, and how far
        the points scatter about it (one standard deviation, MiB)."""
        points = self.points[int(len(self.points) * (1 - share)) :]
        n = len(points)
        mean_x = sum(x for x, _ in points) / n
        mean_y = sum(y for _, y in points) / n
        spread = sum((x - mean_x) ** 2 for x, _ in points) or 1.0
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
        scatter = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points) / n
        return slope * 3600, scatter**0.5
