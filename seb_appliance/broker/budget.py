"""Byte budgets: what is waiting is bounded, and refused before it is read."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from seb_appliance.errors import OverloadedError


class ByteBudget:
    """At most `limit_bytes` are reserved at any time."""

    def __init__(self, limit_bytes: int, what: str) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.refusals = 0
        self._what = what

    def reserve(self, size_bytes: int) -> Reservation:
        """Bytes for one request; give them back with `release`. Raises OverloadedError."""
        reservation = Reservation(self)
        reservation.grow(size_bytes)
        return reservation

    def has_room_for(self, size_bytes: int) -> bool:
        return self.used_bytes + size_bytes <= self.limit_bytes

    def take(self, size_bytes: int) -> None:
        if self.used_bytes + size_bytes > self.limit_bytes:
            self.refusals += 1
            raise OverloadedError(
                f"{self.used_bytes} of {self.limit_bytes} bytes are taken by {self._what}; "
                "nothing of this request was stored, try again after the time in Retry-After"
            )
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, self.used_bytes


class Reservation:
    """Bytes of a budget held by one request. Releasing twice is harmless."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Hold `size_bytes` more (a body that turned out larger). Raises OverloadedError."""
        self._budget.take(size_bytes)
        self.size_bytes += size_bytes

    def shrink_to(self, size_bytes: int) -> None:
        """Hold no more than `size_bytes` from now on."""
        if size_bytes < self.size_bytes:
            self._budget.give_back(self.size_bytes - size_bytes)
            self.size_bytes = size_bytes

    def release(self) -> None:
        self.shrink_to(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
