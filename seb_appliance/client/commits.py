"""What a consumer was handed, and what of it is committed for its group."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.exchange import Answer
from seb_appliance.client.failures import ApplianceError, LeaseLostError
from seb_appliance.client.leasing import Lease


class Commits:
    """Of one group. A commit says where the group stood before, so that another consumer that
    commits for it is found out (`offset_conflict`) and nothing is overwritten."""

    def __init__(self, caller: Caller, group: str, lease: Lease | None) -> None:
        self._caller = caller
        self._group = group
        self._lease = lease
        self._topic_ids: dict[str, int] = {}
        self._committed: dict[str, int | None] = {}

    def began(self, topic: str, answer: Answer) -> None:
        """`answer`: to the first read of a topic in the group."""
        self._topic_ids[topic] = answer.number("seb-topic-id")
        is_there = "seb-committed-offset" in answer.headers
        self._committed[topic] = answer.number("seb-committed-offset") if is_there else None

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """All of them or none; what stands there already is left out. Raises ApplianceError,
        LeaseLostError."""
        news = {t: offset for t, offset in offsets.items() if self._committed[t] != offset}
        if not news:
            return
        body: dict[str, object] = {
            "offsets": news,
            "expected": {topic: self._committed[topic] for topic in news},
            "topic_ids": {topic: self._topic_ids[topic] for topic in news},
        }
        if self._lease is not None:
            body["generation"] = self._lease.generation
        request = self._caller.endpoint.request(
            "PUT", path_of("groups", self._group, "offsets"), body=msgspec.json.encode(body)
        )
        try:
            await self._caller.ask(request, is_known_again=True)
        except ApplianceError as error:
            if error.code == "stale_generation":
                raise LeaseLostError("the lease is not in force any more") from error
            # An attempt before may have been the one that moved the group.
            is_unsure = error.code == "offset_conflict" and error.side_effects == "unknown"
            if not (is_unsure and await self._stands_at(news)):
                raise
        self._committed.update(news)

    async def _stands_at(self, offsets: Mapping[str, int]) -> bool:
        answer = await self._caller.get(path_of("groups", self._group))
        found = {row["topic"]: row["committed_offset"] for row in answer.json()["topics"]}
        return all(found.get(topic) == offset for topic, offset in offsets.items())
