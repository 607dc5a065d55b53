"""A consumer's lease: taken before it reads, renewed while it lives, given back at the end."""

from __future__ import annotations

import msgspec

from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.failures import ApplianceError, LeaseLostError

RENEW_PART = 3  # of the time a lease has: renewed so many times in it
HELD_PAUSE_S_MAX = 1.0


class Lease:
    """Of `group`, for `holder`, who is nobody else. `generation` goes with each commit."""

    def __init__(self, caller: Caller, group: str, holder: str, ttl_ms: int) -> None:
        self._caller = caller
        self._path = path_of("groups", group, "lease")
        self._body = msgspec.json.encode({"holder": holder, "ttl_ms": ttl_ms})
        self._ttl_s = ttl_ms / 1000
        self.generation: int | None = None

    async def take(self) -> None:
        """Waits as long as somebody else holds it. Raises ApplianceError."""
        while True:
            try:
                self.generation = await self._ask()
            except ApplianceError as error:
                if error.code != "lease_held":
                    raise
                left_s = error.problem.get("expires_in_ms", 1000) / 1000
            else:
                return
            await self._caller.clock.sleep(min(max(left_s, 0.05), HELD_PAUSE_S_MAX))

    async def keep(self) -> None:
        """Renews it, until that fails. Raises LeaseLostError, ApplianceError."""
        while True:
            await self._caller.clock.sleep(self._ttl_s / RENEW_PART)
            try:
                generation = await self._ask()
            except ApplianceError as error:
                if error.code == "lease_held":
                    raise LeaseLostError("another consumer holds the lease now") from error
                raise
            if generation != self.generation:
                raise LeaseLostError("the lease had run out before it was renewed")

    async def give_back(self) -> None:
        """Raises ApplianceError."""
        generation, self.generation = self.generation, None
        if generation is None:
            return
        query = {"generation": generation}
        try:
            await self._caller.once(self._caller.endpoint.request("DELETE", self._path, query))
        except ApplianceError as error:
            if error.code != "stale_generation":
                raise

    async def _ask(self) -> int:
        request = self._caller.endpoint.request("POST", self._path, body=self._body)
        answer = await self._caller.ask(request, is_known_again=True)
        generation: int = answer.json()["generation"]
        return generation
