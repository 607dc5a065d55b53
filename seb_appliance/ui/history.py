"""How the appliance was: a sample each 15 s, for a day, in memory. A restart begins anew.

A sample is what happened since the one before, so that nothing has to be subtracted to show it.
"""

from __future__ import annotations

from collections import deque

import msgspec

from seb_appliance import limits


class Sample(msgspec.Struct, frozen=True, gc=False):
    """What happened in the `seconds` up to `at_us`; `size_bytes` are those of all topics then.
    Latencies are None when nothing was stored. About 400 bytes, so a day takes 2.3 MB."""

    at_us: int
    seconds: float
    records_in: int
    bytes_in: int
    entries: int
    records_out: int
    sections_at_hand: int  # from memory, or the cache on disk
    sections_fetched: int  # from the bucket
    bucket_requests: int
    put_p50_s: float | None
    put_p99_s: float | None
    size_bytes: int


class History:
    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=limits.SAMPLES_KEPT)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)

    def since(self, at_us: int) -> list[Sample]:
        """Samples later than `at_us`, oldest first."""
        return [sample for sample in self._samples if sample.at_us > at_us]
