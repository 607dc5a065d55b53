"""Which batches are stored compressed: those that it makes smaller, of topics that ask for it."""

from __future__ import annotations

from typing import Final

from seb_appliance.formats import batch
from seb_appliance.formats.topic_settings import TopicSettings

# Level 3 takes up to half as long again, for bytes that are no fewer (benchmarks/compression.py).
LEVEL: Final = 1
# Less saves some hundred bytes until the tidier merges it with others, and costs 16 µs now and at
# each read: with records of 1 KiB to a thousand topics that was a quarter of the work.
BATCH_BYTES_MIN: Final = 2_048
KEPT_FROM_PERCENT: Final = 10  # of its bytes that a batch must lose
MISSES_MAX: Final = 4  # in a row; from then on
TRIED_EVERY: Final = 16  # … only each sixteenth is tried


class Compressor:
    """Compresses batches of one topic, and remembers whether it paid lately.

    For one thread at a time. What it remembers is lost at a restart and needs not be known: an
    entry holds the bytes as they were stored, so that replay decides nothing.
    """

    def __init__(self) -> None:
        self._misses = 0  # in a row
        self._passed_over = 0  # since the last try

    def pack(self, plain: bytes) -> bytes:
        """The batch `plain` with its body compressed where that pays, else as it is."""
        if len(plain) < BATCH_BYTES_MIN or not self._is_due():
            return plain
        packed = batch.compress(plain, LEVEL)
        if len(packed) * 100 > len(plain) * (100 - KEPT_FROM_PERCENT):
            self._misses += 1
            return plain
        self._misses = 0
        return packed

    def _is_due(self) -> bool:
        if self._misses < MISSES_MAX:
            return True
        self._passed_over = (self._passed_over + 1) % TRIED_EVERY
        return self._passed_over == 0


def compressor_of(effective: TopicSettings) -> Compressor | None:
    """A new one for a topic with these settings; None when it wants its batches plain."""
    return Compressor() if effective.compression == "zstd" else None
