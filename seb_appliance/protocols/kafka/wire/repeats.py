"""Requests that clients repeat on a connection: to know one again costs less than to read it.

A consumer that waits sends the same Fetch again. A producer sends Produce for the same partition,
with other records. Everything else in them is compared, but for the correlation id.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from seb_appliance import limits
from seb_appliance.protocols.kafka.wire.codec import APIS, Message, codec
from seb_appliance.protocols.kafka.wire.types import Frame, read_uvarint

PRODUCE: Final = 0
FETCH: Final = 1

_CORRELATION_ID: Final = 4  # where it begins, behind API and version
_BEHIND_ID: Final = 8
_LENGTH: Final = struct.Struct(">i")
_NO_TAGS: Final = bytes(3)  # of the partition, the topic and the request
_FETCH_BYTES_MAX: Final = 4 * limits.KIB  # some hundred partitions, which take 50 KB for ever
_BEGINNING_BYTES_MAX: Final = limits.KIB
_BEGINNINGS_MAX: Final = 64  # partitions of a producer


class _Beginning(NamedTuple):
    """Of Produce for one partition: all that comes before the records."""

    body: Message
    name: str
    partition: int
    version: int

    def message(self, records: bytes | memoryview) -> Message:
        parts = [{"index": self.partition, "records": records}]
        return {**self.body, "topic_data": [{"name": self.name, "partition_data": parts}]}


class Repeats:
    """What was read on one connection."""

    def __init__(self) -> None:
        self._fetch, self._fetched = b"", Message()
        self._beginnings: dict[bytes, _Beginning] = {}
        self._sizes = list[int]()  # of the beginnings, with the correlation id

    def find(self, key: int, frame: Frame) -> Message | None:
        """The message, if it is known; of Fetch the same one. Raises BadMessageError."""
        if key == FETCH:
            is_same = len(frame) <= _FETCH_BYTES_MAX and _compared(frame) == self._fetch
            return self._fetched if is_same else None
        if key == PRODUCE:
            for size in self._sizes:
                known = self._beginnings.get(_compared(frame, size))
                if known is not None:
                    return _read_records(known, frame, size)
        return None

    def keep(self, key: int, version: int, frame: Frame, at: int, body: Message) -> None:
        """A message that was read at `at`."""
        if key == FETCH and len(frame) <= _FETCH_BYTES_MAX:
            self._fetch, self._fetched = _compared(frame), body
        elif key == PRODUCE and len(self._beginnings) < _BEGINNINGS_MAX:
            self._keep_beginning(version, frame, at, body)

    def _keep_beginning(self, version: int, frame: Frame, at: int, body: Message) -> None:
        topics = body["topic_data"]
        parts = topics[0]["partition_data"] if len(topics) == 1 else []
        if len(parts) != 1:
            return
        known = _Beginning(body | {"topic_data": ()}, topics[0]["name"], parts[0]["index"], version)
        whole = bytearray(frame[:at])
        codec(PRODUCE, version, "request")[1](whole, known.message(b""))
        # What follows has four bytes: a length of 32 bits, or one of 7 and three numbers of tags.
        size = len(whole) - _LENGTH.size
        if size <= _BEGINNING_BYTES_MAX and frame.startswith(whole[:size]):
            self._beginnings[_compared(frame, size)] = known
            if size not in self._sizes:
                self._sizes.append(size)


def _compared(frame: Frame, size: int | None = None) -> bytes:
    return frame[:_CORRELATION_ID] + frame[_BEHIND_ID:size]


def _read_records(known: _Beginning, frame: Frame, at: int) -> Message | None:
    """The records are at `at`. None: they are null, something follows them, or they end early."""
    end = len(frame)
    try:
        if APIS[PRODUCE].is_flexible(known.version):
            length, at = read_uvarint(frame, at)
            length -= 1
            end -= len(_NO_TAGS)
            is_whole = frame.endswith(_NO_TAGS)
        else:
            (length,) = _LENGTH.unpack_from(frame, at)
            at += _LENGTH.size
            is_whole = True
    except (IndexError, struct.error):
        return None
    if not is_whole or length < 0 or at + length != end:
        return None
    return known.message(memoryview(frame)[at:end])
