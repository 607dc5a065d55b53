"""What makes retries safe: results of requests with an Idempotency-Key, and producers' seqs.

Both are results in journal entries, so they survive the machine. What is forgotten is decided while
an entry is applied, against that entry's time: the same on every replay.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from seb_appliance import limits
from seb_appliance.formats.operations import ProducerAppend, RequestResult


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """A request that was done; `created_us` is the time of its entry."""

    result: RequestResult
    created_us: int


class RememberedRequests:
    """The newest 100,000 requests of the last 24 hours, oldest first."""

    def __init__(self, loaded: Iterable[RememberedRequest]) -> None:
        self._by_scope = OrderedDict((item.result.scope, item) for item in loaded)

    def __len__(self) -> int:
        return len(self._by_scope)

    @property
    def reaches_back_to_us(self) -> int | None:
        """Time of the oldest request that is remembered; None when there is none."""
        oldest = next(iter(self._by_scope.values()), None)
        return oldest.created_us if oldest is not None else None

    def get(self, scope: bytes) -> RequestResult | None:
        found = self._by_scope.get(scope)
        return found.result if found is not None else None

    def apply(self, results: Iterable[RequestResult], created_us: int) -> None:
        """Remember an entry's results and forget what is too old by its time."""
        for result in results:
            self._by_scope[result.scope] = RememberedRequest(result, created_us)
            self._by_scope.move_to_end(result.scope)
        cutoff_us = created_us - limits.REMEMBERED_REQUESTS_US
        while self._by_scope:
            oldest = next(iter(self._by_scope.values()))
            if (
                oldest.created_us >= cutoff_us
                and len(self._by_scope) <= limits.REMEMBERED_REQUESTS_MAX
            ):
                return
            self._by_scope.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Producer:
    """An idempotent producer on one topic. `recent`: its last requests (5 at most), oldest first;
    the last of them is the newest seq. `used_us`: time of that one's entry."""

    topic_id: int
    producer_id: str
    epoch: int
    recent: tuple[ProducerAppend, ...]
    used_us: int

    @property
    def next_seq(self) -> int:
        return self.recent[-1].seq + 1

    def after(self, append: ProducerAppend, used_us: int) -> Producer:
        """The producer once `append` is stored; a new epoch forgets the seqs of the old one."""
        kept = self.recent if append.epoch == self.epoch else ()
        recent = (*kept, append)[-limits.PRODUCER_SEQS_REMEMBERED :]
        return Producer(self.topic_id, self.producer_id, append.epoch, recent, used_us)


def first_append(topic_id: int, append: ProducerAppend, used_us: int) -> Producer:
    return Producer(topic_id, append.producer_id, append.epoch, (append,), used_us)


class Producers:
    """Producers by (topic id, producer id), the longest idle first: gone after 7 idle days, or
    when there are more than 100,000.

    An entry is applied in three steps: `forget_idle`, then `apply` for each of its sections, then
    `keep_newest`. So a producer that was idle for too long begins anew, whichever entry finds it.
    """

    def __init__(self, loaded: Iterable[Producer]) -> None:
        self._by_id = OrderedDict(((p.topic_id, p.producer_id), p) for p in loaded)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, topic_id: int, producer_id: str) -> Producer | None:
        return self._by_id.get((topic_id, producer_id))

    def apply(self, topic_id: int, appends: Iterable[ProducerAppend], created_us: int) -> None:
        for append in appends:
            key = (topic_id, append.producer_id)
            known = self._by_id.get(key)
            self._by_id[key] = (
                known.after(append, created_us)
                if known is not None
                else first_append(topic_id, append, created_us)
            )
            self._by_id.move_to_end(key)

    def forget_idle(self, created_us: int) -> None:
        """Forget what is too old by the time of the entry that is being applied."""
        cutoff_us = created_us - limits.PRODUCER_IDLE_US
        while self._by_id and next(iter(self._by_id.values())).used_us < cutoff_us:
            self._by_id.popitem(last=False)

    def keep_newest(self) -> None:
        while len(self._by_id) > limits.PRODUCERS_MAX:
            self._by_id.popitem(last=False)

    def forget_topic(self, topic_id: int) -> None:
        for key in [key for key in self._by_id if key[0] == topic_id]:
            del self._by_id[key]
