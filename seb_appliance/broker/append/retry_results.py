"""What makes retries safe: results of requests with an Idempotency-Key, and producers' seqs.

Both are in journal entries, so they survive the loss of the machine. Applying an entry decides what
is forgotten, by that entry's time, so every replay forgets the same.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.shares import AllShares
from seb_appliance.formats.contents import Produced, ProducerAppend, RequestResult

_HEAD: Final = struct.Struct("<qq16s16s")  # place, created_us, scope, body_hash
_PRODUCED: Final = struct.Struct("<4q")
_OWNER_BYTES: Final = 6  # of a scope
RECORD_SEQS: Final = 2**31  # seqs that count records: the last one is followed by 0
_OWNED: Final = b"\xa5"  # the last of them
OLDER: Final = "older"  # the owner of all requests stored by older releases


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """`created_us` is the time of the request's entry. `place` orders requests."""

    result: RequestResult
    created_us: int
    place: int


def weight_of(result: RequestResult) -> int:
    """How many of the 100,000 places a request takes: one for each topic."""
    return max(1, len(result.produced))


class RememberedRequests:
    """The requests of the last 24 hours, as many as fit into 100,000 places.

    A request is one packed row of bytes; it takes about 300 bytes of memory in all.
    """

    def __init__(
        self, loaded: Iterable[RememberedRequest], place: int = 0, shares: AllShares | None = None
    ) -> None:
        """`loaded` oldest first; `place`: of the newest request ever."""
        self.shares = (shares or AllShares()).declare_forgetting(
            "requests", limits.REMEMBERED_REQUESTS_MAX, "places of requests with an Idempotency-Key"
        )
        self._rows: OrderedDict[bytes, bytes] = OrderedDict()  # by scope, the oldest first
        # By owner; some of these rows are forgotten already.
        self._of_owner: defaultdict[str, deque[bytes]] = defaultdict(deque)
        self._place = place
        for item in loaded:
            self._add(item.result, item.created_us, item.place)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[RememberedRequest]:
        """Oldest first."""
        for row in self._rows.values():
            place, created_us, _, _ = _HEAD.unpack_from(row)
            yield RememberedRequest(_unpacked(row), created_us, place)

    @property
    def reaches_back_to_us(self) -> int | None:
        """Time of the oldest remembered request."""
        oldest = next(iter(self), None)
        return None if oldest is None else oldest.created_us

    def get(self, scope: bytes) -> RequestResult | None:
        row = self._rows.get(scope)
        return None if row is None else _unpacked(row)

    def apply(self, results: Iterable[RequestResult], created_us: int) -> None:
        """Forget what is too old by an entry's time, remember the entry's results, and forget what
        does not fit."""
        cutoff_us = created_us - limits.REMEMBERED_REQUESTS_US
        while self._rows:
            scope, row = next(iter(self._rows.items()))
            if _HEAD.unpack_from(row)[1] >= cutoff_us:
                break
            self._forget(scope)
        for result in results:
            self._place += weight_of(result)
            self._add(result, created_us, self._place)
        for owner in self.shares.losers():
            rows = self._rows.values() if owner is None else self._of_owner[owner]
            self._forget(_scope_of(next(iter(rows))))

    def _add(self, result: RequestResult, created_us: int, place: int) -> None:
        if result.scope in self._rows:
            self._forget(result.scope)
        row = _HEAD.pack(place, created_us, result.scope, result.body_hash) + b"".join(
            _PRODUCED.pack(item.topic_id, item.offset, item.count, item.timestamp_us)
            for item in result.produced
        )
        owner = owner_of(result.scope)
        self._rows[result.scope] = row
        self._of_owner[owner].append(row)
        self.shares.take_anyway(owner, weight_of(result))

    def _forget(self, scope: bytes) -> None:
        """Also drops forgotten rows of the owner, so that its first one is not forgotten."""
        owner, row = owner_of(scope), self._rows.pop(scope)
        self.shares.give_back(owner, max(1, (len(row) - _HEAD.size) // _PRODUCED.size))
        of_owner = self._of_owner[owner]
        while of_owner and self._rows.get(_scope_of(of_owner[0])) is not of_owner[0]:
            of_owner.popleft()
        if not of_owner:
            del self._of_owner[owner]


def owner_hash(api_key_id: str) -> bytes:
    """The prefix of the scopes of the API key's requests."""
    return hashlib.blake2b(api_key_id.encode(), digest_size=_OWNER_BYTES - 1).digest() + _OWNED


def owner_of(scope: bytes) -> str:
    """The hash of the request's owner, in hex. Scopes of older releases name no owner and share
    one (except one in 256, which looks like an owner's hash)."""
    owner = scope[:_OWNER_BYTES]
    return owner.hex() if owner.endswith(_OWNED) else OLDER


def _scope_of(row: bytes) -> bytes:
    scope: bytes = _HEAD.unpack_from(row)[2]
    return scope


def _unpacked(row: bytes) -> RequestResult:
    _, _, scope, body_hash = _HEAD.unpack_from(row)
    produced = [Produced(*item) for item in _PRODUCED.iter_unpack(row[_HEAD.size :])]
    return RequestResult(scope, body_hash, produced)


class Producer(msgspec.Struct, frozen=True, gc=False):
    """An idempotent producer on one topic. `recent`: its last requests (at most 5), oldest first.
    `used_us`: the time of the newest one's entry."""

    topic_id: int
    producer_id: str
    epoch: int
    recent: tuple[ProducerAppend, ...]
    used_us: int

    @property
    def counts_records(self) -> bool:
        """Whether it numbers records, not requests."""
        return self.recent[-1].counts_records

    @property
    def next_seq(self) -> int:
        newest = self.recent[-1]
        if newest.counts_records:
            return (newest.seq + newest.count) % RECORD_SEQS
        return newest.seq + 1

    def has_passed(self, seq: int) -> bool:
        """Whether the producer has had that seq in its epoch; False if that is unknown. Seqs of
        records begin again at 0 behind the largest one: a seq above the next one was had if it was
        before that, which is known as long as a request from before is remembered."""
        next_seq = self.next_seq
        if not self.counts_records or self.recent[0].seq < next_seq:
            return seq < next_seq
        return 0 < (next_seq - seq) % RECORD_SEQS < RECORD_SEQS // 2


def producer_after(
    known: Producer | None, topic_id: int, append: ProducerAppend, used_us: int
) -> Producer:
    """The producer once `append` is stored; a new epoch drops the seqs of the old one."""
    kept = known.recent if known is not None and append.epoch == known.epoch else ()
    recent = (*kept, append)[-limits.PRODUCER_SEQS_REMEMBERED :]
    return Producer(topic_id, append.producer_id, append.epoch, recent, used_us)


class Producers:
    """Producers by (topic id, producer id), the longest idle first; forgotten after 7 idle days.
    Above 100,000, the topic with most producers loses the longest idle one.

    An entry is applied in three steps: `forget_idle`, then `apply` for each of its sections, then
    `make_room`. So a producer that was idle for too long starts from seq 0, at any entry.
    """

    def __init__(self, loaded: Iterable[Producer], shares: AllShares | None = None) -> None:
        self.shares = (shares or AllShares()).declare_forgetting(
            "producers", limits.PRODUCERS_MAX, "idempotent producers"
        )
        self._by_id: OrderedDict[tuple[int, str], Producer] = OrderedDict()
        self._of_topic: dict[int, OrderedDict[str, None]] = {}  # their ids, the longest idle first
        for producer in loaded:
            self._put(producer)

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, topic_id: int, producer_id: str) -> Producer | None:
        return self._by_id.get((topic_id, producer_id))

    def find(self, topic_id: int, producer_id: str, name: str) -> Producer | None:
        """Older releases have stored it by its name."""
        return self.get(topic_id, producer_id) or self.get(topic_id, name)

    def of_topic(self, topic_id: int) -> Iterator[Producer]:
        """The longest idle first. Some may be forgotten while they are gone through."""
        names = tuple(self._of_topic.get(topic_id, ()))
        found = (self.get(topic_id, name) for name in names)
        return (one for one in found if one is not None)

    def apply(self, topic_id: int, appends: Iterable[ProducerAppend], created_us: int) -> None:
        for append in appends:
            known = self._by_id.get((topic_id, append.producer_id))
            self._put(producer_after(known, topic_id, append, created_us))

    def forget_idle(self, created_us: int) -> None:
        """`created_us`: the time of the entry that is being applied."""
        cutoff_us = created_us - limits.PRODUCER_IDLE_US
        while self._by_id and next(iter(self._by_id.values())).used_us < cutoff_us:
            self._forget(*next(iter(self._by_id)))

    def make_room(self) -> None:
        for owner in self.shares.losers():
            if owner is None:
                self._forget(*next(iter(self._by_id)))
            else:
                self._forget(int(owner), next(iter(self._of_topic[int(owner)])))

    def forget_topic(self, topic_id: int) -> None:
        for producer_id in list(self._of_topic.get(topic_id, ())):
            self._forget(topic_id, producer_id)

    def _put(self, producer: Producer) -> None:
        topic_id, producer_id = key = (producer.topic_id, producer.producer_id)
        if key not in self._by_id:
            self.shares.take_anyway(str(topic_id), 1)
        self._by_id[key] = producer
        self._by_id.move_to_end(key)
        of_topic = self._of_topic.setdefault(topic_id, OrderedDict())
        of_topic[producer_id] = None
        of_topic.move_to_end(producer_id)

    def _forget(self, topic_id: int, producer_id: str) -> None:
        del self._by_id[topic_id, producer_id]
        of_topic = self._of_topic[topic_id]
        del of_topic[producer_id]
        if not of_topic:
            del self._of_topic[topic_id]
        self.shares.give_back(str(topic_id), 1)
