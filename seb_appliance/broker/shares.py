"""What each API key may hold of a resource that all API keys use together.

The rule: after it has taken something, an API key holds at most as much as is still free. A single
greedy key therefore gets half of the resource, two get a third each, and whoever comes next always
finds room. Operators may use whatever is free. The rule needs no setting and no list of keys.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from seb_appliance.errors import OverloadedError, ShareExceededError

OPERATOR: Final = ""  # the owner of what operators and the appliance itself hold


class Shares:
    """At most `limit` is held at any time, of `what` (a plural noun with its unit)."""

    def __init__(self, name: str, limit: int, what: str) -> None:
        """`name`: of the metric and of the row in the status."""
        self.name = name
        self.limit = limit
        self.used = 0
        self.refusals = 0
        self.share_refusals = 0  # those of the refusals that only one API key met
        self._what = what
        self._held: dict[str, int] = {}

    def held_by(self, owner: str) -> int:
        return self._held.get(owner, 0)

    def largest(self) -> tuple[str, int]:
        """Who holds most, and how much; (OPERATOR, 0) when nothing is held."""
        return max(self._held.items(), key=lambda item: item[1], default=(OPERATOR, 0))

    def has_room(self, owner: str, amount: int) -> bool:
        free_after = self.limit - self.used - amount
        return free_after >= (0 if owner == OPERATOR else self.held_by(owner) + amount)

    def check(self, owner: str, amount: int) -> None:
        """Raises ShareExceededError or OverloadedError where `take` would."""
        if not self.has_room(owner, amount):
            self._refuse(owner, amount)

    def take(self, owner: str, amount: int) -> None:
        """Raises ShareExceededError or OverloadedError, and takes nothing then."""
        self.check(owner, amount)
        self.take_anyway(owner, amount)

    def try_take(self, owner: str, amount: int) -> bool:
        """As `take`; False where it would raise."""
        # The fast lane asks for each append: `has_room` and `take_anyway` in one step.
        held = self._held.get(owner, 0) + amount
        used = self.used + amount
        if self.limit - used < (held if owner else 0):
            return False
        self.used = used
        self._held[owner] = held
        return True

    def take_anyway(self, owner: str, amount: int) -> None:
        """For what has been admitted already, and turned out to be larger."""
        self.used += amount
        self._held[owner] = self._held.get(owner, 0) + amount

    def reserve(self, owner: str, amount: int) -> Reservation:
        """For one request; give it back with `release`. Raises as `take`."""
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
        if self.used + amount > self.limit:
            raise OverloadedError(
                f"{self.used} of {self.limit} {self._what} are in use; nothing was done. Try again "
                "after the time in Retry-After."
            )
        self.share_refusals += 1
        held = self.held_by(owner)
        raise ShareExceededError(
            f"This API key holds {held} of {self.limit} {self._what}, and may not take {amount} "
            "more while others need room; nothing was done. Try again after the time in "
            "Retry-After.",
            share=self.name,
            held=held,
            limit=self.limit,
        )


class Reservation:
    """What one request of `owner` holds. Releasing twice is harmless."""

    def __init__(self, shares: Shares, owner: str) -> None:
        self.owner = owner
        self.held = 0
        self._shares = shares

    def grow(self, amount: int) -> None:
        """Hold so much more. Raises as `Shares.take`."""
        self._shares.take(self.owner, amount)
        self.held += amount

    def try_grow(self, amount: int) -> bool:
        """As `grow`; False where it would raise."""
        is_taken = self._shares.try_take(self.owner, amount)
        self.held += amount if is_taken else 0
        return is_taken

    def grow_anyway(self, amount: int) -> None:
        """As `Shares.take_anyway`."""
        self._shares.take_anyway(self.owner, amount)
        self.held += amount

    def shrink_to(self, amount: int) -> None:
        """Hold no more than that from now on."""
        if amount < self.held:
            self._shares.give_back(self.owner, self.held - amount)
            self.held = amount

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
