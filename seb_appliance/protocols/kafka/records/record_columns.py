"""The records of one batch after the other, read into columns in bounded steps."""

from __future__ import annotations

from typing import Any, Final

from seb_appliance import limits
from seb_appliance.broker.values import NewRecords
from seb_appliance.formats.columns import Bytes
from seb_appliance.protocols.kafka.errors import ErrorCode, KafkaError
from seb_appliance.protocols.kafka.records.headers import NO_HEADERS, map_of
from seb_appliance.protocols.kafka.records.layout import NULL, signed, varint

# A step takes about a millisecond, also when each record has as many headers as it may.
_STEP_RECORDS: Final = 64
_STEP_BYTES: Final = 256 * limits.KIB
_NO_TIMESTAMP_MS: Final = -1


class RecordColumns:
    """`begin` a batch, then `step` until it is read; `records` is what was read so far."""

    def __init__(self, max_records: int = limits.RECORDS_IN_BATCHES_MAX) -> None:
        self._most = max_records
        self._values: list[Any] = []  # bytes or None; views within a step
        self._keys: list[Any] = []
        self._headers: list[bytes] = []
        self._timestamps_us: list[int | None] = []
        self._has_headers = False
        self._section = NO_HEADERS
        self._item = b""  # the header item for it: the next record often has the same headers
        self._begin(b"", 0, 0, 0, 0)

    @property
    def count(self) -> int:
        return len(self._values)

    def records(self) -> NewRecords:
        has_keys = self._keys.count(None) < self.count
        has_times = self._timestamps_us.count(None) < self.count
        return NewRecords(
            self._values,
            self._keys if has_keys else None,
            self._headers if self._has_headers else None,
            self._timestamps_us if has_times else None,
        )

    def begin(self, body: Bytes, at: int, until: int, count: int, base_ms: int) -> None:
        """`count` records are bytes at ≤ i < until of `body`; their timestamps count from
        `base_ms`. The batch before is read."""
        assert self._left == 0, self._left
        if count > self._most - self.count:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"More than {self._most} records of a topic in a request.",
            )
        self._begin(body, at, until, count, base_ms)

    def _begin(self, body: Bytes, at: int, until: int, count: int, base_ms: int) -> None:
        self._body = body
        self._at = at
        self._until = until
        self._index = 0  # of the next record, in the batch
        self._left = count
        self._base_ms = base_ms

    def step(self) -> bool:
        """Read some more records; whether any are left. Raises KafkaError."""
        first = self.count
        deltas: list[int] = []
        try:
            self._read_some(deltas)
        except IndexError:
            raise _bad("The records of a batch end too early.") from None
        self._left -= len(deltas)
        self._index += len(deltas)
        if not isinstance(self._body, bytes):  # its slices are views of it
            self._values[first:] = _copied(self._values[first:])
            self._keys[first:] = _copied(self._keys[first:])
        self._add_timestamps(deltas)
        if not self._left and self._at != self._until:
            raise _bad("The records of a batch do not end where the batch ends.")
        return self._left > 0

    def _read_some(self, deltas: list[int]) -> None:
        """Everything of some records but their timestamps, whose raw deltas go to `deltas`. Raises
        IndexError at the end of the body, KafkaError.

        What takes a byte or two is read here: a call would take longer than the rest.
        """
        body, at = self._body, self._at
        add_value, add_key, add_item = self._values.append, self._keys.append, self._headers.append
        stop = at + _STEP_BYTES
        for index in range(self._index, self._index + min(self._left, _STEP_RECORDS)):
            if (size := body[at]) < 128:
                at += 1
            elif (high := body[at + 1]) < 128:
                size += (high << 7) - 128
                at += 2
            else:
                size, at = varint(body, at)
            end = at + (size >> 1)
            if (delta := body[at + 1]) < 128:  # after the attributes, which mean nothing
                at += 2
            else:
                delta, at = varint(body, at + 1)
            if (offset := body[at]) < 128:
                at += 1
            elif (high := body[at + 1]) < 128:
                offset += (high << 7) - 128
                at += 2
            else:
                offset, at = varint(body, at)
            if offset != index << 1 or size & 1:
                raise _bad("The offsets of a batch are not 0, 1, 2, …, or a record's length is bad")
            if (length := body[at]) == NULL:
                add_key(None)
                at += 1
            elif length & 129:
                at = self._read_key(body, at)
            else:
                add_key(body[at + 1 : at + 1 + (length >> 1)])
                at += 1 + (length >> 1)
            if (length := body[at]) < 128:
                at += 1
            elif (high := body[at + 1]) < 128:
                length += (high << 7) - 128
                at += 2
            else:
                length, at = varint(body, at)
            if length & 1:
                self._read_null(length)
            else:
                add_value(body[at : at + (length >> 1)])
                at += length >> 1
            add_item(b"" if at + 1 == end and not body[at] else self._read_headers(body, at, end))
            at = end
            deltas.append(delta)
            if at > stop:
                break
        self._at = at

    def _read_key(self, body: Bytes, at: int) -> int:
        """The position after it: a key of 64 bytes or more."""
        length, at = varint(body, at)
        if length & 1:
            raise _bad("The length of a record key is negative.")
        if length >> 1 > limits.RECORD_KEY_BYTES_MAX:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A record key has {length >> 1} bytes; at most {limits.RECORD_KEY_BYTES_MAX} "
                "are allowed.",
            )
        self._keys.append(body[at : at + (length >> 1)])
        return at + (length >> 1)

    def _read_null(self, length: int) -> None:
        if length != NULL:
            raise _bad("The length of a record's value is negative.")
        self._values.append(None)

    def _read_headers(self, body: Bytes, at: int, end: int) -> bytes:
        """The header item. No bytes are no header section: `map_of` refuses them."""
        section = bytes(body[at:end])
        if section != self._section:
            self._section, self._item = section, map_of(section)
        self._has_headers |= bool(self._item)
        return self._item

    def _add_timestamps(self, deltas: list[int]) -> None:
        base_ms = self._base_ms
        if not any(deltas):
            only = None if base_ms == _NO_TIMESTAMP_MS else base_ms * 1000
            self._timestamps_us += [only] * len(deltas)
            return
        for delta in deltas:
            ms = base_ms + signed(delta)
            self._timestamps_us.append(None if ms == _NO_TIMESTAMP_MS else ms * 1000)


def _copied(items: list[Any]) -> list[bytes | None]:
    return [None if item is None else bytes(item) for item in items]


def _bad(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, text)
