"""How far topics hold what a Go broker's files hold: where an import begins, or goes on.

Part of the composition root, like importing.py.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import ImportRefusedError
from seb_appliance.formats.batch_v1 import BatchV1
from seb_appliance.formats.topic_settings import TopicSettings
from seb_appliance.protocols.go.bucket import OldTopic
from seb_appliance.protocols.go.files import OldFile, OldLog

_TOPICS_AT_ONCE: Final = 500  # are made in one window, or a few


class OldTopics:
    def __init__(self, broker: Broker, log: OldLog) -> None:
        self._broker = broker
        self._log = log

    async def make(self, topics: Sequence[OldTopic]) -> dict[str, int]:
        """Their ids, by name. Those that are missing are made, with the appliance's defaults."""
        known = {view.name: view.topic_id for view in self._broker.topics.all()}
        missing = sorted(topic.name for topic in topics if topic.name not in known)
        for begin in range(0, len(missing), _TOPICS_AT_ONCE):
            names = missing[begin : begin + _TOPICS_AT_ONCE]
            made = await asyncio.gather(
                *(self._broker.topics.create(name, TopicSettings()) for name in names)
            )
            known.update((view.name, view.topic_id) for view, _ in made)
        return known

    async def imported(self, topic: OldTopic) -> int:
        """How many of its files are in the topic already. Raises ImportRefusedError if it holds
        anything else where these files belong."""
        view = self._broker.topics.get(topic.name)
        end = view.log_end_offset
        if end == 0:
            return 0
        last = bisect_left(topic.bases, end) - 1
        if last < 0:  # its files begin beyond
            raise _others(topic.name, 0, topic.key(0))
        one, found = await self._log.file(topic, last)
        is_all = last == len(topic.bases) - 1 and end >= one.end_offset
        if not is_all and end != one.end_offset:
            raise _others(topic.name, end, one.key)
        if view.log_start_offset > one.base_offset:  # trimmed: there is nothing to compare
            if is_all:
                return last + 1
            raise _others(topic.name, view.log_start_offset, one.key)
        if not await self._holds(topic.name, one, found):
            raise _others(topic.name, one.base_offset, one.key)
        return last + 1

    async def _holds(self, name: str, one: OldFile, found: BatchV1) -> bool:
        """Whether these very records, with the file's time, are in the topic at its offsets."""
        offset = one.base_offset
        while offset < one.end_offset:
            request = ReadRequest(
                From(offset=offset),
                From(offset=one.end_offset),
                limits.FETCH_RECORDS_MAX,
                limits.FETCH_BYTES_MAX,
            )
            result = await self._broker.read(name, request)
            for piece in result.slices:
                columns = piece.batch.columns
                values = columns.values.slice(piece.begin, piece.end)
                begin, end = offset - one.base_offset, offset - one.base_offset + len(values)
                times_us = array("q", columns.timestamps_us[piece.begin : piece.end])
                if (
                    piece.batch.offsets()[piece.begin] != offset
                    or values != found.values.slice(begin, end)
                    or times_us != array("q", [one.created_us]) * len(values)
                ):
                    return False
                offset += len(values)
            if result.next_offset != offset:
                return False
        return True


def _others(name: str, offset: int, key: str) -> ImportRefusedError:
    return ImportRefusedError(
        f"Topic {name!r} has records of its own at offset {offset}, where {key} belongs. Delete "
        "the topic, or leave it out: --topic says which are wanted."
    )
