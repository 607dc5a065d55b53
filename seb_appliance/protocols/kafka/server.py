"""What the handlers of all APIs share."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.protocols.kafka import limits as kafka_limits
from seb_appliance.protocols.kafka.groups.coordinator import Coordinator
from seb_appliance.protocols.kafka.transactions import Transactions

NODE_ID: Final = 1  # of the only broker
_IDS_OF_EPOCH: Final = 1 << 31


class Server:
    """`advertised`: host and port that clients connect to. `partitions`: of a topic that is made
    on first use. `rebalance_delay_s`: of the coordinator."""

    def __init__(
        self,
        broker: Broker,
        *,
        advertised: tuple[str, int] = ("", 0),
        partitions: int = 1,
        rebalance_delay_s: float = limits.KAFKA_REBALANCE_DELAY_MS_DEFAULT / 1_000,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.broker = broker
        self.advertised = advertised
        self.partitions = partitions
        self.cluster_id = base64.urlsafe_b64encode(broker.bucket_id).decode().rstrip("=")
        self.coordinator = Coordinator(broker.clock, broker.shares, random_bytes, rebalance_delay_s)
        self.waiting = broker.shares.declare(
            "kafka_waiting", kafka_limits.WAITING_BYTES_MAX, "bytes of Kafka requests that wait"
        )
        first = int.from_bytes(random_bytes(4), "big") % (_IDS_OF_EPOCH // 2)
        self._producer_ids = count(broker.epoch * _IDS_OF_EPOCH + first)
        self.transactions = Transactions(broker, self.new_producer_id)
        self._tasks: set[asyncio.Task[None]] = set()

    def new_producer_id(self) -> int:
        """No other has it, in the life of the bucket: an epoch has one writer. After a
        restore as of an earlier time the same epochs come again, and records of an older producer
        would be taken for repeats of a new one's. So the ids of an epoch begin at random."""
        return next(self._producer_ids)

    def go(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that goes on when its connection ends."""
        task = asyncio.create_task(work, name="kafka")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """What was started is done."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
