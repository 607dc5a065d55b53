"""What makes retries safe: results of requests with an Idempotency-Key, and producers' seqs.

Both are results in journal entries, so they survive the machine. What is forgotten is decided while
an entry is applied, against that entry's time: the same on every replay.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult

_HEAD: Final = struct.Struct("<qq16s16s")  # place, created_us, scope, body_hash
_PRODUCED: Final = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """A request that was done; `created_us` is the time of its entry. `place` orders requests, and
    is so far behind the one before as the request is heavy."""

    result: RequestResult
    created_us: int
    place: int


def weight_of(result: RequestResult) -> int:
    """How many of the 100,000 places a request takes: one for each topic."""
    return max(1, len(result.produced))


class RememberedRequests:
    """The newest requests of the last 24 hours: those of the newest 100,000 places.

    A request is one packed row of bytes, about 230 bytes of memory with all that belongs to it.
    """

    def __init__(self, loaded: Iterable[RememberedRequest], place: int = 0) -> None:
        """`loaded` oldest first; `place`: of the newest request ever."""
        self._rows: dict[bytes, bytes] = {}  # by scope
        self._in_order: deque[bytes] = deque()  # the same rows, and some that were replaced
        self._place = place
        for item in loaded:
            self._add(item.result, item.created_us, item.place)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RememberedRequest]:
        """Oldest first."""
        for row in self._in_order:
            place, created_us, scope, _ = _HEAD.unpack_from(row)
            if self._rows.get(scope) is row:
                yield RememberedRequest(_unpacked(row), created_us, place)

    @property
    def reaches_back_to_us(self) -> int | None:
        """Time of the oldest request that is remembered; None when there is none."""
        if not self._in_order:
            return None
        created_us: int = _HEAD.unpack_from(self._in_order[0])[1]
        return created_us

    @property
    def places(self) -> int:
        """How many are taken. While these are fewer than the limit, nothing was forgotten before
        its 24 hours were over."""
        if not self._in_order:
            return 0
        row = self._in_order[0]
        place: int = _HEAD.unpack_from(row)[0]
        return self._place - place + weight_of(_unpacked(row))

    def get(self, scope: bytes) -> RequestResult | None:
        row = self._rows.get(scope)
        return None if row is None else _unpacked(row)

    def apply(self, results: Iterable[RequestResult], created_us: int) -> None:
        """Remember an entry's results and forget what is too old by its time."""
        for result in results:
            self._place += weight_of(result)
            self._add(result, created_us, self._place)
        self._forget(created_us - limits.REMEMBERED_REQUESTS_US)

    def _add(self, result: RequestResult, created_us: int, place: int) -> None:
        row = _HEAD.pack(place, created_us, result.scope, result.body_hash) + b"".join(
            _PRODUCED.pack(item.topic_id, item.offset, item.count, item.timestamp_us)
            for item in result.produced
        )
        self._rows[result.scope] = row
        self._in_order.append(row)

    def _forget(self, cutoff_us: int) -> None:
        """Afterwards the first row in order is remembered, and not replaced."""
        while self._in_order:
            row = self._in_order[0]
            place, created_us, scope, _ = _HEAD.unpack_from(row)
            if self._rows.get(scope) is row:
                if created_us >= cutoff_us and place > self._place - limits.REMEMBERED_REQUESTS_MAX:
                    return
                del self._rows[scope]
            self._in_order.popleft()


def _unpacked(row: bytes) -> RequestResult:
    _, _, scope, body_hash = _HEAD.unpack_from(row)
    produced = [Produced(*item) for item in _PRODUCED.iter_unpack(row[_HEAD.size :])]
    return RequestResult(scope, body_hash, produced)


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
