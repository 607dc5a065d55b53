"""Admission of requests that may be repeats: by Idempotency-Key, and by a producer's seq.

A repeat of something that is not stored yet waits for it and gets its answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.retry_results import (
    Producer,
    Producers,
    RememberedRequests,
    first_append,
)
from seb_appliance.broker.append.window import Window
from seb_appliance.errors import (
    IdempotencyMismatchError,
    SequenceGapError,
    StaleEpochError,
)
from seb_appliance.formats.contents import CheckedSeq, Produced, ProducerAppend, RequestResult

# What was admitted and is not stored yet, by key; forgotten when its window is done.


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ahead(Generic[K, V]):
    """The last value set for a key, while the window that set it is not done. Then the catalog
    says the same, or nobody will ever (fenced)."""

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


# What is remembered takes room in the entry's table of contents: at most so much beside a text.
_RESULT_BYTES: Final = 48
_PRODUCED_BYTES: Final = 40
_PRODUCER_APPEND_BYTES: Final = 80


@dataclass(frozen=True, slots=True)
class RequestStamp:
    """16-byte hashes: of API key, route and Idempotency-Key, in the form of today and in that of
    older releases; of the body that was sent."""

    scope: bytes
    old_scope: bytes
    body_hash: bytes


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    producer_id: str
    epoch: int
    seq: int
    checksum: int | None = field(default=None, compare=False)  # no part of the name

    @property
    def numbered(self) -> int | CheckedSeq:
        return self.seq if self.checksum is None else CheckedSeq(self.seq, self.checksum)


@dataclass(frozen=True, slots=True)
class Earlier:
    """The request was made before: what it did, once `after` (if given) is stored. `produced` is
    None when it was a producer's seq too long ago to be remembered."""

    produced: Sequence[Produced] | None
    after: Window | None


class Repeats:
    def __init__(self, requests: RememberedRequests, producers: Producers) -> None:
        self._requests = requests
        self._producers = producers
        self._requests_ahead: Ahead[bytes, RequestResult] = Ahead()
        self._producers_ahead: Ahead[tuple[int, str], Producer] = Ahead()

    # --- requests ---

    def earlier(
        self, stamp: RequestStamp, topic_ids: Sequence[int | None], *, is_append: bool
    ) -> Earlier | None:
        """What a request with this key did; None when there was none. `topic_ids`: of the topics
        that this one writes to, in its order.

        An append to a topic that is gone is forgotten with it. A transaction may have done more
        than that, so it is refused, as is another body. Raises Refusal.
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
            what = "another body" if other else "topics that are gone or were made anew"
            error = IdempotencyMismatchError(
                f"This Idempotency-Key was used for {what}; take a new key for a new request."
            )
            raise Refusal(error, after)
        return Earlier(found.produced, after)

    def remember(self, window: Window, result: RequestResult) -> None:
        window.results.append(result)
        window.size_bytes += _RESULT_BYTES + _PRODUCED_BYTES * len(result.produced)
        self._requests_ahead.set(result.scope, result, window)

    # --- producers ---

    def earlier_append(self, topic_id: int, stamp: ProducerStamp) -> Earlier | None:
        """None when this is the producer's next request. Raises Refusal for a gap, a stale epoch,
        an epoch that does not begin at seq 0, or a repeat with another checksum."""
        key = (topic_id, stamp.producer_id)
        after = self._producers_ahead.window_of(key)
        known = self._producers_ahead.get(key) or self._producers.get(*key)
        if known is not None and stamp.epoch < known.epoch:
            raise Refusal(
                StaleEpochError(
                    f"Epoch {known.epoch} of producer {stamp.producer_id!r} is in force; "
                    f"{stamp.epoch} is over.",
                    current_epoch=known.epoch,
                ),
                after,
            )
        expected = known.next_seq if known is not None and stamp.epoch == known.epoch else 0
        if stamp.seq > expected:
            raise Refusal(
                SequenceGapError(
                    f"Seq {expected} of producer {stamp.producer_id!r} is expected, {stamp.seq} "
                    "was received.",
                    expected=expected,
                    received=stamp.seq,
                ),
                after,
            )
        if stamp.seq == expected:
            return None
        assert known is not None
        for append in known.recent:
            if append.seq == stamp.seq:
                _check_same(append, stamp, after)
                produced = Produced(topic_id, append.offset, append.count, append.timestamp_us)
                return Earlier([produced], after)
        return Earlier(None, after)

    def note_append(
        self, window: Window, topic_id: int, append: ProducerAppend, now_us: int
    ) -> None:
        """The request was admitted at the offsets that `append` names."""
        key = (topic_id, append.producer_id)
        known = self._producers_ahead.get(key) or self._producers.get(*key)
        producer = (
            known.after(append, now_us)
            if known is not None
            else first_append(topic_id, append, now_us)
        )
        window.topics[topic_id].producers.append(append)
        window.size_bytes += _PRODUCER_APPEND_BYTES + len(append.producer_id.encode())
        self._producers_ahead.set(key, producer, window)


def _check_same(append: ProducerAppend, stamp: ProducerStamp, after: Window | None) -> None:
    """Raises Refusal if both have a checksum, and another one."""
    if append.checksum is None or stamp.checksum in {None, append.checksum}:
        return
    error = IdempotencyMismatchError(
        f"Seq {stamp.seq} of producer {stamp.producer_id!r} was stored with checksum "
        f"{append.checksum}; {stamp.checksum} was received."
    )
    raise Refusal(error, after)
