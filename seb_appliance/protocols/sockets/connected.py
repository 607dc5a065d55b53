"""Who is connected to the ports of protocols, for an operator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.broker.status import PortStatus
from seb_appliance.errors import NotFoundError
from seb_appliance.tasks import Supervisor, in_slices

NUMBERS: Final = count(1)  # of connections, of all ports


class Stalled(NamedTuple):
    """A producer that has as many requests unanswered as it ever has, nearly all of the time, and
    mostly waits for the window. `topic`: of its last request. `in_flight`: how many requests these
    are. `window_s`: how long each waits for the window, on average."""

    topic: str
    in_flight: int
    window_s: float


class Connected(NamedTuple):
    """A client: its connection, or its session while it is away. `number`: what that is called,
    different for each since the start. `client`: what it calls itself. `since_us`: µs since 1970.
    `received` and `sent`: messages of the connection. `waiting`: those that were sent and are not
    acknowledged. `until_us`: when the session of a client ends that does not return; None while it
    is connected."""

    number: int
    protocol: str
    client: str
    api_key_id: str
    address: str
    since_us: int | None
    subscriptions: int
    received: int
    sent: int
    waiting: int
    until_us: int | None = None
    stalled: Stalled | None = None


@runtime_checkable
class Source(Protocol):
    """A port."""

    @property
    def status(self) -> PortStatus: ...

    def connected(self) -> Iterable[Connected]: ...

    def disconnect(self, number: int) -> bool:
        """Whether there was such a connection or session."""


class AllConnections:
    """Of all ports that are open. It runs nothing itself."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def ports(self) -> list[PortStatus]:
        return [source.status for source in self._sources]

    async def find(self, words: str, most: int | None = None) -> tuple[list[Connected], int]:
        """Those whose client, API key or address has the words, at most so many; and how many there
        are."""
        found, total = list[Connected](), 0
        async for one in in_slices(chain.from_iterable(one.connected() for one in self._sources)):
            if words in f"{one.client} {one.api_key_id} {one.address}":
                total += 1
                if most is None or total <= most:
                    found.append(one)
        return found, total

    def disconnect(self, number: int) -> None:
        """Raises NotFoundError."""
        if not any([source.disconnect(number) for source in self._sources]):  # noqa: C419 - each
            raise NotFoundError(f"There is no connection or session {number}.")

    def start(self, supervisor: Supervisor) -> None:
        """As of what runs beside the API."""

    async def stop(self) -> None:
        """As `start`."""

    def samples(self) -> Iterator[Sample]:
        yield from ()


def connections_of(beside: Mapping[type, Any]) -> AllConnections:
    """Of an appliance."""
    found = beside[AllConnections]
    assert isinstance(found, AllConnections)
    return found
