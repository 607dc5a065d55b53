"""What each API key may hold of a resource that all API keys share.

After taking something, an API key holds at most as much as is still free. One greedy key gets half
of a resource, two get a third each, and a new one always finds room. Operators may use whatever is
free. The rule needs no setting and no list of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from types import TracebackType
from typing import Final, Self, TypeVar

from seb_appliance.errors import BadRequestError, OverloadedError, ShareExceededError

OPERATOR: Final = ""  # owns what operators and the appliance itself hold

S = TypeVar("S", bound="Shares")


class Shares:
    """At most `limit` is held at any time, of `what` (a plural noun with its unit)."""

    def __init__(self, name: str, limit: int, what: str, remedy: str = "") -> None:
        """`name`: of the metric and of the row in the status. `remedy`: how to make room, where
        waiting does not because what is held is stored."""
        self.name = name
        self.limit = limit
        self.used = 0
        self.refusals = 0
        self._what = what
        self._remedy = remedy
        self._held: dict[str, int] = {}

    def held_by(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def largest(self) -> tuple[str, int]:
        """The owner that holds most, and how much; (OPERATOR, 0) if nothing is held."""
        return max(self._held.items(), key=lambda item: item[1], default=(OPERATOR, 0))

    def has_room(self, owner: str, amount: int) -> bool:
        free_after = self.limit - self.used - amount
        return free_after >= (0 if owner == OPERATOR else self.held_by(owner) + amount)

    def check(self, owner: str, amount: int) -> None:
        """Raises ShareExceededError or OverloadedError where `take` would; with a remedy
        BadRequestError instead of the latter."""
        if not self.has_room(owner, amount):
            self._refuse(owner, amount)

    def take(self, owner: str, amount: int) -> None:
        """Raises as `check`, and then takes nothing."""
        self.check(owner, amount)
        self.take_anyway(owner, amount)

    def try_take(self, owner: str, amount: int) -> bool:
        """`take`; False where it would raise."""
        # Called for each append of the fast lane: `has_room` and `take_anyway` in one step.
        held = self._held.get(owner, 0) + amount
        used = self.used + amount
        if self.limit - used < (held if owner else 0):
            return False
        self.used = used
        self._held[owner] = held
        return True

    def take_anyway(self, owner: str, amount: int) -> None:
        """For what is admitted already and turned out to be larger."""
        self.used += amount
        self._held[owner] = self._held.get(owner, 0) + amount

    def reserve(self, owner: str, amount: int) -> Reservation:
        """A reservation for one request. Raises as `take`."""
        reservation = Reservation(self, owner)
        reservation.grow(amount)
        return reservation

    def give_back(self, owner: str, amount: int) -> None:
        left = self._held.get(owner, 0) - amount
        assert left >= 0, (self.name, owner, left)
        self.used -= amount
        if left:
            self._held[owner] = left
        else:
            self._held.pop(owner, None)

    def _refuse(self, owner: str, amount: int) -> None:
        self.refusals += 1
        then = self._remedy or "Try again after the time in Retry-After."
        if self.used + amount > self.limit:
            full = BadRequestError if self._remedy else OverloadedError
            raise full(
                f"{self.used} of {self.limit} {self._what} are in use; nothing was done. {then}"
            )
        held = self.held_by(owner)
        raise ShareExceededError(
            f"This API key uses {held} of {self.limit} {self._what}, and may not use {amount} "
            f"more, because the rest is reserved for other API keys; nothing was done. {then}",
            share=self.name,
            held=held,
            limit=self.limit,
        )


class ForgettingShares(Shares):
    """Of a table that refuses nothing: when it is full, it forgets the oldest row of the owner
    that holds most, until a hundredth of it is free. While no owner holds more than a thousandth,
    it forgets the oldest row of all."""

    def __init__(self, name: str, limit: int, what: str) -> None:
        super().__init__(name, limit, what)
        # (minus amount, owner). The entry of each owner in `_noted` is valid: what it holds, or
        # more. All others are outdated.
        self._heap: list[tuple[int, str]] = []
        self._noted: dict[str, int] = {}

    def take_anyway(self, owner: str, amount: int) -> None:
        super().take_anyway(owner, amount)
        held = self._held[owner]
        if held > self._noted.get(owner, 0):
            self._noted[owner] = held
            heappush(self._heap, (-held, owner))
        if len(self._heap) > 2 * len(self._held) + 64:
            self._noted = dict(self._held)
            self._heap = [(-held, owner) for owner, held in self._held.items()]
            heapify(self._heap)

    def losers(self) -> Iterator[str | None]:
        """The owners whose oldest row is to be forgotten (None: the oldest of all). Each row must
        be given back before the next owner is taken."""
        if self.used <= self.limit:
            return
        while self.used > self.limit - self.limit // 100:
            owner, held = self.largest()
            yield owner if held > max(1, self.limit // 1_000) else None

    def largest(self) -> tuple[str, int]:
        """As `Shares.largest`; of several the first by name."""
        while self._heap:
            amount, owner = self._heap[0]
            held = self._held.get(owner, 0)
            if -amount != self._noted.get(owner):
                heappop(self._heap)
            elif held == -amount:
                return owner, held
            elif held:
                self._noted[owner] = held
                heapreplace(self._heap, (-held, owner))
            else:
                del self._noted[owner]
                heappop(self._heap)
        return OPERATOR, 0


class AllShares:
    """The shares of one appliance; those declared here appear in the status and the metrics."""

    def __init__(self) -> None:
        self._all: dict[str, Shares] = {}

    def declare(self, name: str, limit: int, what: str, remedy: str = "") -> Shares:
        return self._add(Shares(name, limit, what, remedy))

    def declare_forgetting(self, name: str, limit: int, what: str) -> ForgettingShares:
        return self._add(ForgettingShares(name, limit, what))

    def _add(self, shares: S) -> S:
        assert shares.name not in self._all, shares.name
        self._all[shares.name] = shares
        return shares

    def __iter__(self) -> Iterator[Shares]:
        return iter(self._all.values())


class Reservation:
    """What one request of `owner` holds. It may be released twice."""

    __slots__ = ("_shares", "held", "owner")

    def __init__(self, shares: Shares, owner: str, held: int = 0) -> None:
        """`held`: what was taken for it before."""
        self.owner = owner
        self.held = held
        self._shares = shares

    def grow(self, amount: int) -> None:
        """Raises as `Shares.take`."""
        self._shares.take(self.owner, amount)
        self.held += amount

    def try_grow(self, amount: int) -> bool:
        """`grow`; False where it would raise."""
        is_taken = self._shares.try_take(self.owner, amount)
        self.held += amount if is_taken else 0
        return is_taken

    def grow_anyway(self, amount: int) -> None:
        """See `Shares.take_anyway`."""
        self._shares.take_anyway(self.owner, amount)
        self.held += amount

    def shrink_to(self, amount: int) -> None:
        """Hold no more than that from now on."""
        if amount < self.held:
            self._shares.give_back(self.owner, self.held - amount)
            self.held = amount

    def release(self) -> None:
        self.shrink_to(0)

    def handed_over(self) -> Reservation:
        """Another reservation that holds the same instead of this one."""
        held, self.held = self.held, 0
        return Reservation(self._shares, self.owner, held)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
