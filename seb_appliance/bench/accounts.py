"""What each producer was told, and whether what can be read agrees with it.

A record must be there exactly once, in its producer's order, under the offset that was
acknowledged, with the bytes that were sent. A refused one must not be there; one whose answer never
came may be there or not.
"""

from __future__ import annotations

import base64
import functools
import json
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import msgspec
from crc32c import crc32c

from seb_appliance import limits
from seb_appliance.bench.plan import RECORD_BYTES_MIN
from seb_appliance.formats import batch
from seb_appliance.formats.columns import BinaryColumn, Columns, int64s

# Records that prove themselves, and request bodies made of them with one join each.
#
# A value is text: 16 hex digits of its request's number, 8 of a CRC-32C over what follows, 4 of its
# producer, 4 of its place in the request, then filler that differs from record to record. All but
# the number is the same in each request of a producer, so that a body is the number joined between
# parts that were made once.


VALUE_HEAD_BYTES: Final = 32
PRODUCERS_MAX: Final = 0x10000

assert VALUE_HEAD_BYTES < RECORD_BYTES_MIN

_NUMBER: Final = b"@" * 16  # stands where the request's number goes; the filler holds no such text
_FILLER_BYTES: Final = 4 * limits.MIB


class BodyMaker(Protocol):
    """Bodies of one producer. Each of its requests has a number, counted from 0."""

    @property
    def content_type(self) -> str: ...

    def make(self, number: int) -> bytes: ...


class Identity(NamedTuple):
    """What a record says it is. `place`: its index in its request."""

    producer: int
    number: int
    place: int


class JoinedBodies:
    """Bodies that differ in the number only."""

    def __init__(self, content_type: str, template: bytes) -> None:
        self.content_type = content_type
        self._parts = template.split(_NUMBER)

    def make(self, number: int) -> bytes:
        return (b"%016x" % number).join(self._parts)


class BatchBodies:
    """Record batches of format version 2, made as a client would, with the CRC of each."""

    content_type = "application/vnd.seb.batch"

    def __init__(self, values: Sequence[bytes], created_us: int) -> None:
        columns = Columns(int64s([created_us] * len(values)), BinaryColumn.of(values))
        whole = batch.encode(columns, base_offset=0, created_us=created_us)
        self._header = batch.read_header(whole)
        self._padding = whole[batch.HEADER_BYTES + self._header.stored_bytes :]
        stored = whole[batch.HEADER_BYTES : batch.HEADER_BYTES + self._header.stored_bytes]
        self._parts = stored.split(_NUMBER)

    def make(self, number: int) -> bytes:
        stored = (b"%016x" % number).join(self._parts)
        header = msgspec.structs.replace(self._header, body_crc=crc32c(stored))
        return header.pack() + stored + self._padding


def values_of(producer: int, count: int, record_bytes: int) -> list[bytes]:
    """The values of a producer's requests, the number left open."""
    filler = _filler(_FILLER_BYTES)
    room = record_bytes - VALUE_HEAD_BYTES
    values = []
    for place in range(count):
        at = (producer * count + place) * record_bytes % len(filler)
        text = (filler[at : at + room] + filler * (1 + room // len(filler)))[:room]
        rest = b"%04x%04x" % (producer, place) + text
        values.append(_NUMBER + b"%08x" % crc32c(rest) + rest)
    return values


def make_bodies(kind: str, values: Sequence[bytes], created_us: int) -> BodyMaker:
    """`kind`: single, json, ndjson or batch."""
    if kind == "batch":
        return BatchBodies(values, created_us)
    if kind == "single":
        return JoinedBodies("application/octet-stream", values[0])
    objects = [json.dumps({"value": value.decode()}).encode() for value in values]
    if kind == "ndjson":
        return JoinedBodies("application/x-ndjson", b"\n".join(objects))
    return JoinedBodies("application/json", b'{"records":[' + b",".join(objects) + b"]}")


def identify(value: bytes) -> Identity | None:
    """What a value says it is; None when its checksum says that it is not what was sent."""
    rest = value[24:]
    try:
        if crc32c(rest) != int(value[16:24], 16):
            return None
        return Identity(int(rest[:4], 16), int(value[:16], 16), int(rest[4:8], 16))
    except ValueError:
        return None


@functools.cache
def _filler(size: int) -> bytes:
    """Text that does not compress below three quarters, the same in every run."""
    return base64.b64encode(random.Random(7).randbytes(size * 3 // 4))  # noqa: S311 - no secret


MISTAKES_SHOWN: Final = 10


@dataclass(slots=True)
class Acknowledged:
    """Requests of one producer to one topic, in the order in which they were acknowledged."""

    numbers: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))  # of each one's first record


@dataclass(slots=True)
class Account:
    """Of one producer. `intended_s[number]`: when a request was to be sent, on our clock."""

    producer: int
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)  # by topic
    unknown: set[int] = field(default_factory=set)
    intended_s: array[float] = field(default_factory=lambda: array("d"))

    def acknowledge(self, topic: int, number: int, offset: int) -> None:
        told = self.acknowledged.get(topic)
        if told is None:
            told = self.acknowledged[topic] = Acknowledged()
        told.numbers.append(number)
        told.offsets.append(offset)

    def requests(self) -> int:
        return sum(len(told.numbers) for told in self.acknowledged.values())


@dataclass(slots=True)
class Findings:
    """The result of the checks. `mistakes`: sentences about the first few."""

    records: int = 0
    wrong: int = 0
    mistakes: list[str] = field(default_factory=list)

    def wrong_one(self, sentence: str) -> None:
        self.wrong += 1
        if len(self.mistakes) < MISTAKES_SHOWN:
            self.mistakes.append(sentence)

    def add(self, other: Findings) -> None:
        self.records += other.records
        self.wrong += other.wrong
        self.mistakes = (self.mistakes + other.mistakes)[:MISTAKES_SHOWN]


class TopicCheck:
    """Takes the records of one topic in the order of their offsets, as one reader got them."""

    def __init__(self, topic: int, name: str, records_per_request: int, producers: int) -> None:
        self._topic = topic
        self._name = name
        self._per_request = records_per_request
        self._last: list[Identity | None] = [None] * producers
        self._seen = [Acknowledged() for _ in range(producers)]
        self._next_offset = 0
        self.findings = Findings()

    def take(self, values: Sequence[bytes], offsets: Sequence[int]) -> list[Identity]:
        """The records that are what was sent, each once; the others are noted."""
        good: list[Identity] = []
        for value, offset in zip(values, offsets, strict=True):
            self.findings.records += 1
            what = identify(value)
            if what is None or what.producer >= len(self._last):
                self._wrong(f"the record at offset {offset} is not what was sent")
            elif self._follows(what, offset):
                good.append(what)
            if offset < self._next_offset:
                self._wrong(f"offset {offset} came again")
            self._next_offset = offset + 1
        return good

    def _follows(self, what: Identity, offset: int) -> bool:
        before = self._last[what.producer]
        seen = self._seen[what.producer]
        if before is not None and what.number == before.number:
            is_next = what.place == before.place + 1
        else:
            complete = before is None or before.place == self._per_request - 1
            is_later = before is None or what.number > before.number
            is_next = complete and is_later and what.place == 0
        if not is_next:
            self._wrong(
                f"offset {offset} holds record {what.place} of request {what.number} of producer "
                f"{what.producer}, which does not follow what came before"
            )
            return False
        self._last[what.producer] = what
        if what.place == 0:
            seen.numbers.append(what.number)
            seen.offsets.append(offset)
        elif offset != seen.offsets[-1] + what.place:
            self._wrong(f"the records of one request are not together at offset {offset}")
        return True

    def requests_complete(self) -> int:
        """How many requests came with all their records."""
        open_ended = sum(
            last is not None and last.place != self._per_request - 1 for last in self._last
        )
        return sum(len(seen.numbers) for seen in self._seen) - open_ended

    def settle(self, accounts: Sequence[Account]) -> Findings:
        """Compare with what was acknowledged, once everything has been taken."""
        for account, seen, last in zip(accounts, self._seen, self._last, strict=True):
            told = account.acknowledged.get(self._topic) or Acknowledged()
            if last is not None and last.place != self._per_request - 1:
                self._wrong(f"request {last.number} of producer {account.producer} is cut short")
            found = dict(zip(seen.numbers, seen.offsets, strict=True))
            for number, offset in zip(told.numbers, told.offsets, strict=True):
                at = found.pop(number, None)
                if at is None:
                    self._wrong(
                        f"request {number} of producer {account.producer} was acknowledged at "
                        f"offset {offset} and is not there"
                    )
                elif at != offset:
                    self._wrong(f"what was acknowledged at offset {offset} is at {at}")
            for number in found.keys() - account.unknown:
                self._wrong(
                    f"request {number} of producer {account.producer} is there and was refused"
                )
        return self.findings

    def _wrong(self, sentence: str) -> None:
        self.findings.wrong_one(f"{self._name}: {sentence}")
