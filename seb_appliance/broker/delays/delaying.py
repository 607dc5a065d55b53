"""Which of a request's records are delayed, and until when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.values import Delayed, NewBatches, NewRecords
from seb_appliance.errors import BadParameterError, DelayTooLongError
from seb_appliance.formats.queues.queues import DELIVER_AT_HEADER, Delay
from seb_appliance.formats.topic_settings import TopicSettings

_decode: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


def delayed_by_header(packed: Iterable[bytes | None], first: int) -> list[Delayed]:
    """Of records that have their due time in a header; the first one is the `first`-th of the
    request. Raises BadParameterError."""
    found = list[Delayed]()
    for i, one in enumerate(packed, first):
        text = _decode(one).get(DELIVER_AT_HEADER) if one else None
        if text is not None:
            if not text.isdigit() or len(text) > len(str(limits.OFFSET_MAX)):
                raise BadParameterError(
                    f"Record {i}: the header {DELIVER_AT_HEADER} must be µs since 1970, in digits."
                )
            found.append(Delayed(i, 1, int(text)))
    return found


def still_to_come(
    records: NewRecords | NewBatches, effective: TopicSettings, now_us: int
) -> Sequence[Delay]:
    """The delays that are not over yet; single records get the header that tells it. Raises
    DelayTooLongError."""
    delays = _joined(records.delayed, now_us)
    if not delays:
        return ()
    longest_us = max(one.due_us for one in delays) - now_us
    if longest_us > limits.DELAY_US_MAX:
        raise DelayTooLongError("A record can be delayed by at most 366 days.")
    kept_ms = effective.retention_ms
    if kept_ms is not None and longest_us > kept_ms * 1_000:
        raise DelayTooLongError(
            f"The topic keeps its records for {kept_ms} ms (retention_ms), and a record would be "
            f"delayed by {longest_us // 1_000} ms: it would be gone before it is due."
        )
    if isinstance(records, NewRecords):
        _tell(records, delays)
    return delays


def _joined(delayed: Iterable[Delayed], now_us: int) -> list[Delay]:
    """Neighbours that are due at the same time are one range; what is due now is none."""
    made = list[Delay]()
    for one in delayed:
        due_us = one.us + now_us if one.from_now else one.us
        last = made[-1] if made else None
        if due_us <= now_us:
            continue
        if last is not None and (last.offset + last.count, last.due_us) == (one.first, due_us):
            made[-1] = Delay(last.offset, last.count + one.number, due_us)
        else:
            made.append(Delay(one.first, one.number, due_us))
    return made


def _tell(records: NewRecords, delays: Sequence[Delay]) -> None:
    if records.headers is None:
        records.headers = [b""] * len(records.values)
    for delay in delays:
        told = {DELIVER_AT_HEADER: str(delay.due_us).encode()}
        alone = msgspec.msgpack.encode(told)
        for i in range(delay.offset, delay.offset + delay.count):
            packed = records.headers[i]
            records.headers[i] = msgspec.msgpack.encode(_decode(packed) | told) if packed else alone
