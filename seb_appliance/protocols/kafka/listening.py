"""The Kafka port: its connections, and what operators see of it."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import PortStatus
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import ConfigurationError
from seb_appliance.protocols.kafka.apis import (
    cluster,
    committing,
    configs,
    connecting,
    fetching,
    membership,
    offsets,
    producing,
    topics,
    transacting,
)
from seb_appliance.protocols.kafka.connection import Connection
from seb_appliance.protocols.kafka.groups.telling import KnownMembers
from seb_appliance.protocols.kafka.requests import HANDLERS
from seb_appliance.protocols.kafka.server import Server
from seb_appliance.protocols.kafka.wire.codec import APIS
from seb_appliance.protocols.sockets.connected import Connected
from seb_appliance.protocols.sockets.listening import Connections

_log = logging.getLogger(__name__)

# What registers the handlers.
_MODULES: Final = (
    cluster, committing, configs, connecting, fetching,
    membership, offsets, producing, topics, transacting,
)  # fmt: skip
assert HANDLERS.keys() == APIS.keys(), _MODULES


class Kafka(Server):
    def __init__(
        self,
        broker: Broker,
        address: tuple[Sequence[str], int],
        *,
        advertised: tuple[str, int] | None = None,
        partitions: int = 1,
        tls: ssl.SSLContext | None = None,
        rebalance_delay_s: float = limits.KAFKA_REBALANCE_DELAY_MS_DEFAULT / 1_000,
        stop_s: float = 10,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`address`: hosts and a port. `advertised` None: the first host, and the port. `stop_s`:
        how long `stop` waits. The rest is that of Server."""
        super().__init__(
            broker,
            advertised=advertised or (address[0][0], address[1]),
            partitions=partitions,
            rebalance_delay_s=rebalance_delay_s,
            random_bytes=random_bytes,
        )
        self._is_advertised_elsewhere = advertised is not None
        self._address = address
        self._tls = tls
        self._stop_s = stop_s
        self._room = broker.shares.declare(
            "kafka_connections", limits.KAFKA_CONNECTIONS_MAX, "Kafka connections"
        )
        self._connections = Connections(limits.KAFKA_CONNECTIONS_MAX, limits.KAFKA_CONNECTIONS_MAX)
        self._all: dict[Connection, None] = {}  # in the order in which they came
        self._newcomers: OrderedDict[Connection, None] = OrderedDict()  # some have API keys by now
        self._requests: Counter[str] = Counter()
        self._refusals = 0
        broker.groups.members.add(KnownMembers(self.coordinator))
        self._server: asyncio.Server | None = None
        self._idle = asyncio.Event()
        self._is_stopping = False

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Raises ConfigurationError if the port cannot be used."""
        hosts, port = self._address
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self),
                hosts,
                port,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else limits.KAFKA_CONNECT_S_MAX,
                backlog=1_024,
            )
        except OSError as error:
            raise ConfigurationError(f"kafka_port {port}: {error}") from error
        if not self._is_advertised_elsewhere:
            self.advertised = hosts[0], self.port

    async def stop(self) -> None:
        """Take nothing more; wait until what was taken is stored and answered, or refused, but
        not for ever: then the connections end without an answer."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        self.coordinator.close()
        self.transactions.close()
        for connection in tuple(self._all):
            connection.finish()
        try:
            async with asyncio.timeout(self._stop_s):
                await self._all_are_closed()
                await self.finished()
                await self.transactions.stop()
        except TimeoutError:
            _log.warning("%d Kafka connections are cut off: it takes too long", len(self._all))
            for connection in tuple(self._all):
                connection.transport.abort()
            await self._all_are_closed()

    async def _all_are_closed(self) -> None:
        while self._all:
            self._idle.clear()
            await self._idle.wait()

    # --- metrics ---

    def samples(self) -> Iterator[Sample]:
        text, number = "Open Kafka connections.", len(self._all)
        yield Sample("seb_kafka_connections", text, "gauge", number)
        counts = self.coordinator.counts
        text = "Consumer groups with members by the Kafka protocol."
        yield Sample("seb_kafka_groups", text, "gauge", counts.groups)
        text = "Members of these groups."
        yield Sample("seb_kafka_group_members", text, "gauge", counts.members)
        text = "Generations of these groups: each is a rebalance."
        yield Sample("seb_kafka_rebalances_total", text, "counter", counts.generations)
        text = "Open transactions of Kafka producers."
        yield Sample("seb_kafka_open_transactions", text, "gauge", self.transactions.open)
        text = "Transactions of Kafka producers that ended, by how."
        for outcome in ("committed", "aborted"):
            number, labels = getattr(self.transactions, outcome), {"outcome": outcome}
            yield Sample("seb_kafka_transactions_total", text, "counter", number, labels)
        text = "Kafka connections whose producers mostly wait for the window."
        yield Sample("seb_kafka_stalled_producers", text, "gauge", self._stalled)
        text = "Requests of Kafka clients, by API."
        for api in APIS.values():
            labels = {"api": api.name}
            yield Sample(
                "seb_kafka_requests_total", text, "counter", self._requests[api.name], labels
            )
        text = "Kafka connections that were refused or ended by the appliance."
        yield Sample("seb_kafka_refusals_total", text, "counter", self._refusals)

    # --- what an operator asks ---

    @property
    def _stalled(self) -> int:
        now_s = self.broker.clock.monotonic_s()
        return sum(one.stalled_at(now_s) is not None for one in self._all)

    @property
    def status(self) -> PortStatus:
        return PortStatus("Kafka", len(self._all), self._stalled)

    def connected(self) -> Iterator[Connected]:
        now_s = self.broker.clock.monotonic_s()
        for one in list(self._all):
            if one.has_key:
                yield Connected(
                    one.number,
                    f"Kafka ({one.software})" if one.software else "Kafka",
                    one.client_id,
                    one.key.api_key_id,
                    one.address,
                    one.since_us,
                    0,
                    one.received,
                    one.sent,
                    one.waiting,
                    stalled=one.stalled_at(now_s),
                )

    def disconnect(self, number: int) -> bool:
        for one in self._all:
            if one.number == number:
                one.end("an operator has ended the connection")
                return True
        return False

    # --- what connections tell ---

    def opened(self, connection: Connection) -> bool:
        """Whether there is room: whoever has no API key makes room for who comes later. A late
        one, of a handshake, may come while this stops."""
        self._all[connection] = None
        has_room = self._connections.enter(connection.address) or self._make_room()
        self._newcomers[connection] = None
        return has_room and not self._is_stopping

    def _make_room(self) -> bool:
        while self._newcomers:
            oldest, _ = self._newcomers.popitem(last=False)
            if not oldest.has_key:
                oldest.end("another connection needs the place of one without an API key")
                return True
        return False

    def entered(self, key: ApiKeyView) -> bool:
        return self._room.try_take(key.api_key_id, 1)

    def closed(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        self._newcomers.pop(connection, None)
        self._connections.leave(connection.address)
        if connection.has_key:
            self._room.give_back(connection.key.api_key_id, 1)
        if not self._all:
            self._idle.set()

    def refused(self, connection: Connection, why: str) -> None:
        self._refusals += 1
        _log.info("Kafka client %r at %s: %s", connection.client_id, connection.address, why)

    def counted(self, api: str) -> None:
        self._requests[api] += 1
