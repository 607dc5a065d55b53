"""Which producer has a transactional id. The journal keeps it, so that it outlives the machine.

Of a transaction itself nothing is kept: what was open when the appliance went is lost. Its producer
may not know that, so after a crash nobody goes on before he has aborted or begun again. An
appliance that stops in order notes which ids had an open transaction; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from seb_appliance.broker.broker import Broker
from seb_appliance.errors import ApiKeyNotFoundError

Identity: TypeAlias = tuple[int, int]  # producer id and epoch
Place: TypeAlias = tuple[str, str]  # API key and transactional id: two API keys may use the same

KIND: Final = "kafka_transactional_id"
_STOP: Final = "stop"  # a name without a space, which no id has
_REMOVED_AT_ONCE: Final = 16


class Holder(msgspec.Struct, frozen=True):
    """`before`: what the same producer had when it began again. It may ask once more, because the
    answer was lost."""

    producer_id: int
    epoch: int
    before: Identity | None = None

    @property
    def identity(self) -> Identity:
        return self.producer_id, self.epoch


class _Stop(msgspec.Struct, frozen=True):
    """`writer`: the number of the writer that stopped in order. `open`: names of ids that had a
    transaction."""

    writer: int
    open: tuple[str, ...]


class TransactionalIds:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gone: dict[str, None] = {}  # names that are to be removed

    def load(self) -> Iterator[tuple[Place, Holder, bool]]:
        """All that are kept, with whether a transaction of theirs may have been lost. Those of an
        API key that is gone are forgotten."""
        documents = self._broker.documents
        stop = documents.get(KIND, _STOP)
        open_ = None
        if stop is not None:
            stopped = msgspec.json.decode(stop.document, type=_Stop)
            if stopped.writer + 1 == self._broker.epoch:
                open_ = frozenset(stopped.open)
        for row in documents.of_kind(KIND):
            if row.name == _STOP:
                continue
            api_key_id, _, transactional_id = row.name.partition(" ")
            if self._has_key(api_key_id):
                holder = msgspec.json.decode(row.document, type=Holder)
                is_lost = open_ is None or row.name in open_
                yield (api_key_id, transactional_id), holder, is_lost
            else:
                self._gone[row.name] = None

    async def keep(self, place: Place, holder: Holder) -> None:
        """Raises SebError."""
        name = _name(place)
        self._gone.pop(name, None)
        removed = list(self._gone)[:_REMOVED_AT_ONCE]
        text = msgspec.json.encode(holder).decode()
        await self._broker.documents.keep(KIND, name, text, place[0], removed)
        for one in removed:
            self._gone.pop(one, None)

    def forget(self, place: Place) -> None:
        """With the next one that is kept."""
        self._gone[_name(place)] = None

    async def stop(self, open_: Iterable[Place]) -> None:
        """The last call: nobody begins a transaction any more. Raises SebError."""
        stopped = _Stop(self._broker.epoch, tuple(map(_name, open_)))
        text = msgspec.json.encode(stopped).decode()
        await self._broker.documents.keep(KIND, _STOP, text, "")

    def _has_key(self, api_key_id: str) -> bool:
        if api_key_id == self._broker.access.let_in_anybody().api_key_id:
            return True
        try:
            self._broker.access.get(api_key_id)
        except ApiKeyNotFoundError:
            return False
        return True


def _name(place: Place) -> str:
    return f"{place[0]} {place[1]}"
