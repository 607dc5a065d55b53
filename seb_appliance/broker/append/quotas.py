"""Quotas: what an API key may use per second. Kept in memory; a restart forgives debts.

A token bucket holds a second's worth. Requests are taken one by one. Bytes are charged once their
number is known, so a bucket may be overdrawn; it must refill before the next request and before the
next part of a stream. The mean is kept.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.values import NO_QUOTAS, ApiKeyView
from seb_appliance.clock import Clock
from seb_appliance.errors import QuotaExceededError
from seb_appliance.formats.api_key_members import Quotas

_ROUNDING: Final = 1e-6  # error of a sum of many small refills


class TokenBucket:
    """`per_second` None: unlimited."""

    __slots__ = ("_at_s", "_left", "_per_second")

    def __init__(self, per_second: int | None, now_s: float) -> None:
        self._per_second = per_second
        self._left = float(per_second or 0)
        self._at_s = now_s

    def charge(self, amount: float, now_s: float) -> None:
        if self._per_second is not None:
            self._fill(self._per_second, now_s)
            self._left -= amount

    def missing_s(self, amount: float, now_s: float) -> float:
        """Seconds until it holds `amount`."""
        if self._per_second is None:
            return 0.0
        self._fill(self._per_second, now_s)
        missing = amount - self._left
        return missing / self._per_second if missing > _ROUNDING else 0.0

    def _fill(self, per_second: int, now_s: float) -> None:
        self._left = min(per_second, self._left + (now_s - self._at_s) * per_second)
        self._at_s = now_s


class Meter:
    """The buckets of one API key."""

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self.quotas = quotas
        self._clock = clock
        now_s = clock.monotonic_s()
        self._requests = TokenBucket(quotas.requests_per_second, now_s)
        self._bytes_in = TokenBucket(quotas.bytes_in_per_second, now_s)
        self._bytes_out = TokenBucket(quotas.bytes_out_per_second, now_s)

    def enter(self) -> None:
        """Take one request. Raises QuotaExceededError, and then takes nothing."""
        now_s = self._clock.monotonic_s()
        for name, bucket, amount in (
            ("requests_per_second", self._requests, 1),
            ("bytes_in_per_second", self._bytes_in, 0),
            ("bytes_out_per_second", self._bytes_out, 0),
        ):
            missing_s = bucket.missing_s(amount, now_s)
            if missing_s > 0:
                allowed = getattr(self.quotas, name)
                raise QuotaExceededError(
                    f"The API key has used its quota of {allowed} {name.replace('_', ' ')}; "
                    "nothing was done. Send the request again after the time in Retry-After.",
                    retry_after_s=math.ceil(missing_s),
                    quota=name,
                    allowed=allowed,
                )
        self._requests.charge(1, now_s)

    def charge_in(self, size_bytes: int) -> None:
        self._bytes_in.charge(size_bytes, self._clock.monotonic_s())

    def charge_out(self, size_bytes: int) -> None:
        self._bytes_out.charge(size_bytes, self._clock.monotonic_s())

    @property
    def wait_s(self) -> float:
        """Seconds until `enter` takes a request; 0 for now."""
        now_s = self._clock.monotonic_s()
        return max(
            self._requests.missing_s(1, now_s),
            self._bytes_in.missing_s(0, now_s),
            self._bytes_out.missing_s(0, now_s),
        )

    @property
    def overdrawn_s(self) -> float:
        """Seconds until bytes may go out again; 0 for now."""
        return self._bytes_out.missing_s(0, self._clock.monotonic_s())


class Meters:
    """The meters of all API keys that have quotas."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: OrderedDict[str, Meter] = OrderedDict()

    def enter(self, key: ApiKeyView) -> Meter | None:
        """Take one request; the meter to charge its bytes to, None without quotas. Raises
        QuotaExceededError."""
        meter = self.of(key)
        if meter is not None:
            meter.enter()
        return meter

    def of(self, key: ApiKeyView) -> Meter | None:
        """None without quotas."""
        if key.quotas == NO_QUOTAS:
            return None
        meter = self._by_id.get(key.api_key_id)
        if meter is None or meter.quotas != key.quotas:
            meter = self._by_id[key.api_key_id] = Meter(key.quotas, self._clock)
            if len(self._by_id) > limits.API_KEYS_MAX:  # of a revoked key
                self._by_id.popitem(last=False)
        return meter
