"""The lease and the committed offsets of a consumer's group."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from seb_appliance.addresses import path_of
from seb_appliance.client.failures import ApplianceError, LeaseLostError
from seb_appliance.client.transacting import Transaction
from seb_appliance.client.transport import Answer, Caller

RENEW_PART = 3  # of the time a lease has: renewed so many times in it
HELD_PAUSE_S_MAX = 1.0


class Lease:
    """The lease of `group` for `holder`, a name that no other consumer uses. Each commit has its
    `generation`."""

    def __init__(self, caller: Caller, group: str, holder: str, ttl_ms: int) -> None:
        self._caller = caller
        self._path = path_of("groups", group, "lease")
        self._body = msgspec.json.encode({"holder": holder, "ttl_ms": ttl_ms})
        self._ttl_s = ttl_ms / 1000
        self.generation: int | None = None

    async def take(self) -> None:
        """Take the lease; waits while another consumer holds it. Raises ApplianceError."""
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
        """Renew the lease until that fails. Raises LeaseLostError, ApplianceError."""
        while True:
            await self._caller.clock.sleep(self._ttl_s / RENEW_PART)
            try:
                generation = await self._ask()
            except ApplianceError as error:
                if error.code == "lease_held":
                    raise LeaseLostError("another consumer holds the lease now") from error
                raise
            if generation != self.generation:
                raise LeaseLostError("the lease expired before it was renewed")

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


class Commits:
    """The committed offsets of one group. A commit sends the expected previous offsets, so another
    consumer of the group is detected (`offset_conflict`) and nothing is overwritten."""

    def __init__(self, caller: Caller, group: str, lease: Lease | None) -> None:
        self._caller = caller
        self.group = group
        self._lease = lease
        self._topic_ids: dict[str, int] = {}
        self._committed: dict[str, int | None] = {}
        self._in_doubt: list[Mapping[str, int]] = []  # attempts without an answer

    def began(self, topic: str, answer: Answer) -> None:
        """`answer`: to the first read of a topic in the group."""
        self._topic_ids[topic] = answer.number("seb-topic-id")
        is_there = "seb-committed-offset" in answer.headers
        self._committed[topic] = answer.number("seb-committed-offset") if is_there else None

    async def commit(
        self, offsets: Mapping[str, int], transaction: Transaction | None = None
    ) -> None:
        """Commit all offsets or none, with the records of the `transaction` if there is one.
        Offsets that are already committed are left out. Raises ApplianceError, LeaseLostError."""
        while (news := self._news(offsets)) or transaction is not None:
            try:
                if transaction is not None:
                    commit = {"group": self.group, **self._body(news)} if news else None
                    await transaction.store(self._caller, commit)
                    self._committed.update(news)
                    return
                await self._put(news)
            except ApplianceError as error:
                if error.code == "stale_generation":
                    raise LeaseLostError("the lease is no longer in force") from error
                is_open = transaction is not None and error.side_effects == "unknown"
                if error.code != "offset_conflict" or is_open or not await self._moved_it():
                    raise

    def _news(self, offsets: Mapping[str, int]) -> dict[str, int]:
        return {t: o for t, o in offsets.items() if self._committed[t] != o}

    def _body(self, news: Mapping[str, int]) -> dict[str, object]:
        body: dict[str, object] = {
            "offsets": news,
            "expected": {topic: self._committed[topic] for topic in news},
            "topic_ids": {topic: self._topic_ids[topic] for topic in news},
        }
        if self._lease is not None:
            body["generation"] = self._lease.generation
        return body

    async def _put(self, news: Mapping[str, int]) -> None:
        """Raises ApplianceError."""
        body = msgspec.json.encode(self._body(news))
        path = path_of("groups", self.group, "offsets")
        request = self._caller.endpoint.request("PUT", path, body=body)
        self._in_doubt.append(news)  # also if this is cancelled: the appliance may have it
        try:
            await self._caller.ask(request, is_known_again=True)
        except ApplianceError as error:
            if error.side_effects == "none":
                self._in_doubt.remove(news)
            raise
        # Those that name one of these topics found another place, if they came at all.
        self._in_doubt = [tried for tried in self._in_doubt if tried.keys().isdisjoint(news)]
        self._committed.update(news)

    async def _moved_it(self) -> bool:
        """Whether the group's offsets are those of an attempt without an answer; then that attempt
        was committed. Raises ApplianceError."""
        if not self._in_doubt:
            return False
        answer = await self._caller.get(path_of("groups", self.group))
        found = {row["topic"]: row["committed_offset"] for row in answer.json()["topics"]}
        for tried in self._in_doubt:
            if all(found.get(topic) == offset for topic, offset in tried.items()):
                self._in_doubt.remove(tried)
                self._committed.update(tried)
                return True
        return False
