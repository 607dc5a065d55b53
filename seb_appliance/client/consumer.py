"""A consumer for programs without an event loop."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

from seb_appliance import limits
from seb_appliance.client import lookups
from seb_appliance.client.blocking import Blocking, blocking
from seb_appliance.client.consuming import (
    LEASE_TTL_MS,
    PATIENCE_S,
    AsyncConsumer,
    CommitMode,
)
from seb_appliance.client.lookups import Ask, RecordKey
from seb_appliance.client.new_records import Data
from seb_appliance.client.records import Record, RecordBatch
from seb_appliance.client.transacting import Transaction

T = TypeVar("T")


class Consumer(Blocking[AsyncConsumer]):
    """As AsyncConsumer; it reads ahead in a thread of its own. For one thread at a time."""

    def __init__(
        self,
        url: str,
        api_key: str,
        topics: str | Sequence[str],
        *,
        group: str | None = None,
        offset: int | str = "earliest",
        commit: CommitMode = "by_hand",
        lease: str | None = None,
        lease_ttl_ms: int = LEASE_TTL_MS,
        view: Literal["latest"] | None = None,
        follow: bool = True,
        prefetch: int = 4,
        max_bytes: int = 1 * limits.MIB,
        refresh_s: float = 30.0,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Raises ConfigurationError."""
        super().__init__(
            functools.partial(
                AsyncConsumer,
                url,
                api_key,
                topics,
                group=group,
                offset=offset,
                commit=commit,
                lease=lease,
                lease_ttl_ms=lease_ttl_ms,
                view=view,
                follow=follow,
                prefetch=prefetch,
                max_bytes=max_bytes,
                refresh_s=refresh_s,
                patience_s=patience_s,
            )
        )

    commit = blocking(AsyncConsumer.commit)
    latest = blocking(AsyncConsumer.latest)

    def keys(
        self, topic: str, *, prefix: Data = b"", after: Data | None = None, fresh: bool = False
    ) -> Iterator[RecordKey]:
        """As AsyncConsumer.keys."""
        return self._each(lookups.keys(self._inner.caller, topic, prefix, after, fresh=fresh))

    def history(
        self, topic: str, key: Data, *, before: int | None = None, fresh: bool = False
    ) -> Iterator[Record]:
        """As AsyncConsumer.history."""
        return self._each(lookups.history(self._inner.caller, topic, key, before, fresh=fresh))

    def _each(self, ask: Ask[T]) -> Iterator[T]:
        following: Ask[T] | None = ask
        while following is not None:
            items, following = self._wait_for(following())
            yield from items

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """`with`: as AsyncConsumer.transaction."""
        with self._inner.open_transaction() as transaction:
            yield transaction
            self._wait_for(self._inner.store(transaction))

    def next_batch(self) -> RecordBatch | None:
        """The next one that holds records; None: all is read (`follow=False`). Interrupted by
        Ctrl-C, the consumer is over. Raises as AsyncConsumer does."""
        try:
            return self._wait_for(self._inner.next_batch())
        except Exception:
            raise
        except BaseException:
            self._inner.abandon()
            raise

    def batches(self) -> Iterator[RecordBatch]:
        """`next_batch` until there is none."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def __iter__(self) -> Iterator[Record]:
        """Record by record; `commit()` then means up to and with the last one."""
        for batch in self.batches():
            yield from self._inner.one_by_one(batch)
