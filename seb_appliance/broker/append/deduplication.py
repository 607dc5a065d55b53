"""Detection of repeated requests: by Idempotency-Key, and by the seq of an idempotent producer.

A repeat of something that is not stored yet waits for it and gets its answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.retry_results import (
    RECORD_SEQS,
    Producer,
    Producers,
    RememberedRequests,
    producer_after,
)
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Duplicate
from seb_appliance.errors import (
    IdempotencyMismatchError,
    SequenceGapError,
    StaleEpochError,
)
from seb_appliance.formats.contents import (
    COUNTS_RECORDS,
    Produced,
    ProducerAppend,
    QualifiedSeq,
    RequestResult,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ahead(Generic[K, V]):
    """The last value set for each key by a window that is not done. Once it is done the catalog has
    the value, or never will (fenced)."""

    def __init__(self) -> None:
        self._values: dict[K, tuple[V, Window]] = {}
        self._keys_of: dict[Window, list[K]] = {}

    def get(self, key: K) -> V | None:
        found = self._values.get(key)
        return found[0] if found is not None else None

    def window_of(self, key: K) -> Window | None:
        found = self._values.get(key)
        return found[1] if found is not None else None

    def set(self, key: K, value: V, window: Window) -> None:
        if window not in self._keys_of:
            self._keys_of[window] = []
            window.when_done(lambda _: self._forget(window), lambda _: self._forget(window))
        self._keys_of[window].append(key)
        self._values[key] = (value, window)

    def _forget(self, window: Window) -> None:
        for key in self._keys_of.pop(window):
            found = self._values.get(key)
            if found is not None and found[1] is window:
                del self._values[key]


@dataclass(frozen=True, slots=True)
class RequestStamp:
    """16-byte hashes. `scope`: of API key, route and Idempotency-Key; `old_scope`: the same, as
    older releases hashed it."""

    scope: bytes
    old_scope: bytes
    body_hash: bytes


class ProducerStamp(msgspec.Struct, frozen=True, gc=False):
    """`counts_records`: `seq` is that of the first record, from 0 up to and with 2^31 - 1, then
    from 0 again; such a stamp has no checksum. A producer id has one way of counting for as long
    as it is remembered. `name`: as its client knows it; older releases stored that as its id."""

    producer_id: str
    epoch: int
    seq: int
    checksum: int | None = None
    counts_records: bool = False
    name: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        owner: str,
        epoch: int,
        seq: int,
        checksum: int | None = None,
        *,
        counts_records: bool = False,
    ) -> ProducerStamp:
        """Of the producer that the API key `owner` calls `name`: if another API key could use up
        its seqs, its records would be taken for repeats, and be acknowledged and lost."""
        producer_id = f"{name} {owner}"  # names have no space, or begin with a word and a number
        return cls(producer_id, epoch, seq, checksum, counts_records, name)

    @property
    def numbered(self) -> int | QualifiedSeq:
        if self.counts_records:
            return QualifiedSeq(self.seq, COUNTS_RECORDS)
        return self.seq if self.checksum is None else QualifiedSeq(self.seq, self.checksum)


class Deduplication:
    def __init__(self, requests: RememberedRequests, producers: Producers) -> None:
        self._requests = requests
        self._producers = producers
        self._requests_ahead: Ahead[bytes, RequestResult] = Ahead()
        self._producers_ahead: Ahead[tuple[int, str], Producer] = Ahead()

    # --- requests ---

    def find_request(
        self, stamp: RequestStamp, topic_ids: Sequence[int | None], *, is_append: bool
    ) -> Duplicate | None:
        """What an earlier request with this key did. `topic_ids`: of the topics that this request
        writes to, in its order.

        An append to a topic that was deleted is forgotten with it. A transaction may have changed
        other topics too, so it is refused, as is another body. Raises Refusal.
        """
        after = self._requests_ahead.window_of(stamp.scope)
        found = (
            self._requests_ahead.get(stamp.scope)
            or self._requests.get(stamp.scope)
            or self._requests.get(stamp.old_scope)
        )
        if found is None:
            return None
        gone = [item.topic_id for item in found.produced] != list(topic_ids)
        if gone and is_append:
            return None
        other = found.body_hash != stamp.body_hash
        if gone or other:
            what = "another body" if other else "topics that were deleted or created again"
            error = IdempotencyMismatchError(
                f"This Idempotency-Key was used for {what}; use a new key for a new request."
            )
            raise Refusal(error, after)
        return Duplicate(found.produced, after)

    def remember(self, window: Window, result: RequestResult) -> None:
        window.add_result(result)
        self._requests_ahead.set(result.scope, result, window)

    # --- producers ---

    def find_append(self, topic_id: int, stamp: ProducerStamp, count: int) -> Duplicate | None:
        """What the request of `count` records did before; None if it is the producer's next one.
        Raises Refusal for a gap, a stale epoch, an epoch that does not begin at seq 0, another
        checksum or number of records, or another way of counting."""
        known, after = self._known(topic_id, stamp)
        if known is None or stamp.epoch > known.epoch:
            if stamp.seq > 0:
                raise Refusal(_gap(stamp, 0), after)
            if known is not None:
                _check_counting(known, stamp, after)
            return None
        self._check_current(known, stamp, after)
        if stamp.seq == known.next_seq:
            return None
        for append in known.recent:
            if append.seq == stamp.seq:
                _check_same(append, stamp, count, after)
                produced = Produced(topic_id, append.offset, append.count, append.timestamp_us)
                return Duplicate([produced], after)
        last = (stamp.seq + count - 1) % RECORD_SEQS if stamp.counts_records else stamp.seq
        if not (known.has_passed(stamp.seq) and known.has_passed(last)):
            raise Refusal(_gap(stamp, known.next_seq), after)
        return Duplicate(None, after)

    def check_later(self, topic_id: int, stamp: ProducerStamp) -> None:
        """As `find_append` of a request that is not its producer's first one: it may leave seqs
        out. Raises Refusal also for a repeat."""
        known, after = self._known(topic_id, stamp)
        if known is None:
            return
        self._check_current(known, stamp, after)
        if stamp.epoch == known.epoch and known.has_passed(stamp.seq):
            error = IdempotencyMismatchError(
                f"Seq {stamp.seq} of producer {stamp.name!r} was stored before."
            )
            raise Refusal(error, after)

    def _known(self, topic_id: int, stamp: ProducerStamp) -> tuple[Producer | None, Window | None]:
        """The producer, and the window of its newest request, if that is not done."""
        key = (topic_id, stamp.producer_id)
        ahead = self._producers_ahead.get(key)
        if ahead is not None:
            return ahead, self._producers_ahead.window_of(key)
        return self._producers.find(topic_id, stamp.producer_id, stamp.name), None

    def _check_current(self, known: Producer, stamp: ProducerStamp, after: Window | None) -> None:
        """Raises Refusal for a stale epoch, or another way of counting."""
        if stamp.epoch < known.epoch:
            error = StaleEpochError(
                f"Producer {stamp.name!r} is at epoch {known.epoch}; requests of "
                f"epoch {stamp.epoch} are refused.",
                current_epoch=known.epoch,
            )
            raise Refusal(error, after)
        _check_counting(known, stamp, after)

    def note_append(
        self, window: Window, topic_id: int, append: ProducerAppend, now_us: int
    ) -> None:
        """Remember an admitted request of a producer."""
        key = (topic_id, append.producer_id)
        known = self._producers_ahead.get(key) or self._producers.get(*key)
        window.add_producer(topic_id, append)
        producer = producer_after(known, topic_id, append, now_us)
        self._producers_ahead.set(key, producer, window)


def _gap(stamp: ProducerStamp, expected: int) -> SequenceGapError:
    return SequenceGapError(
        f"Seq {expected} of producer {stamp.name!r} is expected, {stamp.seq} was received.",
        expected=expected,
        received=stamp.seq,
    )


def _check_counting(known: Producer, stamp: ProducerStamp, after: Window | None) -> None:
    """Raises Refusal if the producer counted in another way before."""
    if stamp.counts_records != known.counts_records:
        ways = ("requests", "records")
        error = IdempotencyMismatchError(
            f"Producer {stamp.name!r} has counted {ways[known.counts_records]} before; this "
            f"seq counts {ways[stamp.counts_records]}. Use another producer id."
        )
        raise Refusal(error, after)


def _check_same(
    append: ProducerAppend, stamp: ProducerStamp, count: int, after: Window | None
) -> None:
    """Raises Refusal if both have a checksum and these differ, or the number of records does."""
    what, stored, received = "checksum", append.checksum, stamp.checksum
    if stamp.counts_records:
        what, stored, received = "a number of records of", append.count, count
    if stored is None or received in {None, stored}:
        return
    error = IdempotencyMismatchError(
        f"Seq {stamp.seq} of producer {stamp.name!r} was stored with {what} "
        f"{stored}; {received} was received."
    )
    raise Refusal(error, after)
