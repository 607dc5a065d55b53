"""Takes a sample of the appliance each 15 s, for the charts of the admin page, and saves them on
this machine. If nothing is stored and nothing read, nothing is saved."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.counters import percentile_s
from seb_appliance.clock import Clock
from seb_appliance.errors import SebError
from seb_appliance.state.local import LocalFile
from seb_appliance.tasks import Job
from seb_appliance.ui.history import History, LagHistory, Pair, Sample, SavedSample, TopicRates

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Sample)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """Counts since the start. `puts`: as in broker/counters.py. `lags`: records that groups have
    not read now. `came_in`: records and bytes by topic id, since the reading before."""

    records_in: int
    bytes_in: int
    entries: int
    records_out: int
    sections_at_hand: int
    sections_fetched: int
    bucket_requests: int
    puts: tuple[int, ...]
    size_bytes: int
    lags: Mapping[Pair, int] = field(default_factory=dict)
    came_in: Mapping[int, tuple[int, int]] = field(default_factory=dict)


class HistoryKeeper(Job):
    name = "history"

    def __init__(self, read: Callable[[], Awaitable[Reading]], clock: Clock, path: Path) -> None:
        """Call `load` next. `path`: of local.sqlite."""
        self.history = History()
        self.lags = LagHistory()
        self.rates = TopicRates()
        self._read = read
        self._clock = clock
        self._file = LocalFile(path)
        self._saved_s = clock.monotonic_s()
        self._has_news = False

    async def load(self) -> None:
        """Continue with the saved samples; those of another release are dropped. Raises
        ConfigurationError if the machine does not let us use the file."""
        rows = await self._file.load_samples()
        with contextlib.suppress(msgspec.DecodeError):
            self.history.restore([(step, at, _decoder.decode(body)) for step, at, body in rows])

    async def close(self) -> None:
        await super().close()
        await self._save()

    async def _save(self) -> None:
        self._saved_s = self._clock.monotonic_s()
        if not self._has_news:
            return
        rows = self.history.unsaved()
        try:
            await self._file.save_samples(await asyncio.to_thread(_encoded, rows))
            self.history.mark_saved(rows)
            self._has_news = False
        except SebError as error:  # the next time may be better
            _log.warning("the samples of the charts cannot be saved: %s", error)

    async def _run(self) -> None:
        before, before_s = await self._read(), self._clock.monotonic_s()
        while True:
            await self._clock.sleep(limits.SAMPLE_EVERY_S)
            now, now_s = await self._read(), self._clock.monotonic_s()
            now_us = self._clock.wall_us()
            sample = _sample(before, now, now_us, now_s - before_s)
            self.history.add(sample)
            self._has_news |= bool(sample.entries or sample.records_out)
            self.lags.add(now_us, now.lags)
            self.rates.add(now_s - before_s, now.came_in)
            before, before_s = now, now_s
            if now_s - self._saved_s >= limits.SAMPLES_SAVED_EVERY_S:
                await self._save()


def _encoded(rows: list[SavedSample]) -> list[tuple[int, int, bytes]]:
    return [(step_s, place, _encoder.encode(sample)) for step_s, place, sample in rows]


def _sample(before: Reading, now: Reading, at_us: int, seconds: float) -> Sample:
    puts = [after - earlier for earlier, after in zip(before.puts, now.puts, strict=True)]
    return Sample(
        at_us=at_us,
        seconds=seconds,
        records_in=now.records_in - before.records_in,
        bytes_in=now.bytes_in - before.bytes_in,
        entries=now.entries - before.entries,
        records_out=now.records_out - before.records_out,
        sections_at_hand=now.sections_at_hand - before.sections_at_hand,
        sections_fetched=now.sections_fetched - before.sections_fetched,
        bucket_requests=now.bucket_requests - before.bucket_requests,
        put_p50_s=percentile_s(puts, 0.5),
        put_p99_s=percentile_s(puts, 0.99),
        size_bytes=now.size_bytes,
    )
