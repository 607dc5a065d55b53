"""The Kafka port: its connections, and what operators see of it."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from seb_appliance import limits
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import PortStatus
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
from seb_appliance.protocols.sockets import limits as socket_limits
from seb_appliance.protocols.sockets.connected import Connected
from seb_appliance.protocols.sockets.port import Port

# What registers the handlers.
_MODULES: Final = (
    cluster, committing, configs, connecting, fetching,
    membership, offsets, producing, topics, transacting,
)  # fmt: skip
assert HANDLERS.keys() == APIS.keys(), _MODULES


class Kafka(Server, Port[Connection]):
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
        waiting = "Kafka connections that wait for memory"
        Port.__init__(
            self,
            broker,
            "Kafka",
            address,
            tls,
            room=broker.shares.declare(
                "kafka_connections", limits.KAFKA_CONNECTIONS_MAX, "Kafka connections"
            ),
            starving=broker.shares.declare("kafka_starving", socket_limits.STARVING_MAX, waiting),
            unsent=broker.shares.declare(
                "kafka_unsent",
                socket_limits.ALL_UNSENT_BYTES_MAX,
                "bytes not taken by Kafka clients",
            ),
        )
        Server.__init__(
            self,
            broker,
            advertised=advertised or (address[0][0], address[1]),
            partitions=partitions,
            rebalance_delay_s=rebalance_delay_s,
            random_bytes=random_bytes,
        )
        self._is_advertised_elsewhere = advertised is not None
        self._stop_s = stop_s
        self._requests: Counter[str] = Counter()
        broker.groups.members.add(KnownMembers(self.coordinator))

    async def start(self) -> None:
        """Raises ConfigurationError if the port cannot be used."""
        await self._listen(lambda: Connection(self))
        if not self._is_advertised_elsewhere:
            self.advertised = self.advertised[0], self.port

    async def stop(self) -> None:
        """Take nothing more; wait until what was taken is stored and answered, or refused, but
        not for ever: then the connections end without an answer."""
        self._stop_listening()
        self.coordinator.close()
        self.transactions.close()
        try:
            async with asyncio.timeout(self._stop_s):
                await self._finish()
                await self.finished()
                await self.transactions.stop()
        except TimeoutError:
            await self._cut_off()

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
        yield Sample("seb_kafka_refusals_total", text, "counter", self.refusals)

    # --- what an operator asks ---

    @property
    def _stalled(self) -> int:
        now_s = self.broker.clock.monotonic_s()
        return sum(one.stalled_at(now_s) is not None for one in self._all)

    @property
    def status(self) -> PortStatus:
        return PortStatus("Kafka", len(self._all), self._stalled)

    def connected(self) -> Iterator[Connected]:
        return (one.connected() for one in list(self._all) if one.has_key)

    # --- what connections tell ---

    def counted(self, api: str) -> None:
        self._requests[api] += 1
