"""Bugs of Kafka's producers and transactions planted in the product, as in mutations.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from seb_appliance.broker.append.deduplication import Deduplication, ProducerStamp
from seb_appliance.broker.append.transactions import Transaction
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.protocols.kafka.transactional_ids import (
    Holder,
    Identity,
    Place,
    TransactionalIds,
)
from seb_appliance.protocols.kafka.transactions import Transactions


def counted_repeats_not_known() -> contextlib.AbstractContextManager[Any]:
    """A request of a producer that counts its records is stored each time that it is sent."""
    find = Deduplication.find_append

    def found(self: Deduplication, topic_id: int, stamp: ProducerStamp, count: int) -> Any:
        return None if stamp.counts_records else find(self, topic_id, stamp, count)

    return mock.patch.object(Deduplication, "find_append", found)


def aborted_transactions_stored() -> contextlib.AbstractContextManager[Any]:
    """A transaction is stored, however it ends."""
    end = Transactions.end

    async def ended(self: Transactions, *asked: Any, commits: bool, address: str = "") -> None:
        await end(self, *asked, commits=True, address=address)

    return mock.patch.object(Transactions, "end", ended)


def offsets_left_out_of_transactions() -> contextlib.AbstractContextManager[Any]:
    """The records of a transaction are stored without its offsets."""
    return mock.patch.object(Transaction, "commits", [])


def held_repeats_not_known() -> contextlib.AbstractContextManager[Any]:
    """Records that are sent again in a transaction are added to it again."""
    hold = Transactions.hold

    def held(
        self: Transactions, key: ApiKeyView, name: str, producer: Identity, topic: str,
        records: NewRecords, stamp: ProducerStamp,
    ) -> None:  # fmt: skip
        self._by_id[key.api_key_id, name].sequences[topic] = stamp.seq
        hold(self, key, name, producer, topic, records, stamp)

    return mock.patch.object(Transactions, "hold", held)


def commits_told_before_they_are_stored() -> contextlib.AbstractContextManager[Any]:
    """EndTxn is answered when the transaction waits for its window."""
    store, tasks = Transactions._store, list[asyncio.Task[None]]()

    async def stored(self: Transactions, *given: Any) -> None:
        task = asyncio.create_task(store(self, *given))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        tasks.append(task)

    return mock.patch.object(Transactions, "_store", stored)


def lost_transactions_not_noticed() -> contextlib.AbstractContextManager[Any]:
    """After a restart a producer goes on with a transaction of which a part is missing."""
    load = TransactionalIds.load

    def loaded(self: TransactionalIds) -> Iterator[tuple[Place, Holder, bool]]:
        for place, holder, _ in load(self):
            yield place, holder, False

    return mock.patch.object(TransactionalIds, "load", loaded)


OF_KAFKA: list[Callable[[], contextlib.AbstractContextManager[Any]]] = [
    counted_repeats_not_known,
    aborted_transactions_stored,
    offsets_left_out_of_transactions,
    held_repeats_not_known,
    commits_told_before_they_are_stored,
    lost_transactions_not_noticed,
]
