"""The log of a topic as rows, and turns of the event loop between them."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import BatchSlice, From, ReadRequest

_RECORDS: Final = 1_000  # of one read
_AT_ONCE: Final = 100  # steps between two turns of the event loop


class Row(NamedTuple):
    """A record. `headers`: packed."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: bytes | None


async def read(
    broker: Broker, topic: str, offset: int, most: int = _RECORDS
) -> tuple[list[Row], int]:
    """Some rows from there on, and where to go on. Raises SebError."""
    request = ReadRequest(From(offset=offset), max_records=most)
    found = broker.read_nowait(topic, request, waits=False)
    if found is None:
        found = await broker.read(topic, request)
    return [row for piece in found.slices for row in _rows(piece)], found.next_offset


def _rows(piece: BatchSlice) -> list[Row]:
    columns, begin, end = piece.batch.columns, piece.begin, piece.end
    if columns.keys is None:
        return []
    nothing = [None] * (end - begin)
    headers = nothing if columns.headers is None else columns.headers.slice(begin, end)
    keys, values = columns.keys.slice(begin, end), columns.values.slice(begin, end)
    offsets = piece.batch.offsets()[begin:end]
    return [Row(*row) for row in zip(offsets, keys, values, headers, strict=True)]


class Turns:
    """Lets others have their turn now and then."""

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        self._steps += 1
        if self._steps % _AT_ONCE == 0:
            await asyncio.sleep(0)
