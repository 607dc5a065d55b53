"""Which batches are stored compressed: those that become smaller, of topics with compression."""

from __future__ import annotations

from typing import Final

from seb_appliance.formats import batch
from seb_appliance.formats.topic_settings import TopicSettings

# Level 3 takes up to 50 % longer and saves no bytes (benchmarks/compression.py).
LEVEL: Final = 1
# Compressing less saves some hundred bytes until the tidier merges the batch, and costs 16 µs now
# and at each read: a quarter of the work with records of 1 KiB to a thousand topics.
BATCH_BYTES_MIN: Final = 2_048
KEPT_FROM_PERCENT: Final = 10  # of its bytes that a batch must lose
MISSES_MAX: Final = 4  # in a row; from then on
TRIED_EVERY: Final = 16  # only each sixteenth is tried


class Compressor:
    """Compresses batches of one topic, and stops trying for a while if that saves little. For one
    thread at a time. Its state is not stored: an entry holds the bytes as they were sent."""

    def __init__(self) -> None:
        self._misses = 0  # in a row
        self._passed_over = 0  # since the last try

    def pack(self, plain: bytes) -> bytes:
        """The batch `plain`, with a compressed body if that saves enough."""
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
    """A new one for a topic with these settings; None if it has no compression."""
    return Compressor() if effective.compression == "zstd" else None
