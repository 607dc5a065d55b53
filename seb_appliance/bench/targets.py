"""How one asks a broker: whole requests as bytes, and what its answers hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

from seb_appliance.bench.bodies import BodyMaker, make_bodies, values_of
from seb_appliance.bench.exchange import header
from seb_appliance.bench.plan import BodyKind, Plan
from seb_appliance.formats import batch
from seb_appliance.formats.columns import Bytes

ACCEPT: Final[dict[BodyKind, str]] = {
    "single": "application/octet-stream",
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "batch": "application/vnd.seb.batch",
}


@dataclass(frozen=True, slots=True)
class Address:
    """`path` is in front of the broker's own paths; "" or without a slash at its end."""

    host: str
    port: int
    path: str = ""
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """The records of an answer. `next_offset`: where to go on."""

    values: Sequence[bytes]
    offsets: Sequence[int]
    next_offset: int


class Target(Protocol):
    """A broker's API. A `read` that finds nothing waits up to `wait_ms` at the log end."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> Address: ...

    def create(self, topic: str) -> bytes | None: ...

    def delete(self, topic: str) -> bytes | None: ...

    def bodies(self, plan: Plan, producer: int, created_us: int) -> BodyMaker: ...

    def produce_head(self, topic: str, content_type: str, length: int) -> bytes:
        """What goes before a body."""

    def first_offset(self, body: bytes) -> int:
        """Under which offset the first record was acknowledged. Raises ValueError."""

    def read(self, topic: str, kind: BodyKind, offset: int, most: int, wait_ms: int) -> bytes: ...

    def records(self, kind: BodyKind, offset: int, head: bytes, body: bytes) -> Read:
        """What an answer to `read` holds. Raises ValueError when it is not one."""

    def lasting(self, head: bytes, body: Bytes) -> Bytes:
        """The part of an answer to `read` that is the same when it is asked for again."""


class _Value(msgspec.Struct):
    offset: int
    value: str


class _Values(msgspec.Struct):
    records: list[_Value]
    next_offset: int


_LINES: Final = msgspec.json.Decoder(_Value)
_LIST: Final = msgspec.json.Decoder(_Values)


class SebTarget:
    """An appliance."""

    name = "seb"

    def __init__(self, address: Address, token: str) -> None:
        self.address = address
        self._common = (
            f"Host: {address.host}:{address.port}\r\nAuthorization: Bearer {token}\r\n".encode()
        )

    def request(self, method: str, path: str, more: str = "", body: bytes = b"") -> bytes:
        if body:
            more += f"Content-Length: {len(body)}\r\n"
        line = f"{method} {self.address.path}/v1{path} HTTP/1.1\r\n".encode()
        return line + self._common + more.encode() + b"\r\n" + body

    def create(self, topic: str) -> bytes | None:
        return self.request("PUT", f"/topics/{topic}", "Content-Type: application/json\r\n", b"{}")

    def delete(self, topic: str) -> bytes | None:
        return self.request("DELETE", f"/topics/{topic}")

    def bodies(self, plan: Plan, producer: int, created_us: int) -> BodyMaker:
        values = values_of(producer, plan.records_per_request, plan.record_bytes)
        return make_bodies(plan.body, values, created_us)

    def produce_head(self, topic: str, content_type: str, length: int) -> bytes:
        more = f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
        return self.request("POST", f"/topics/{topic}/records", more)

    def first_offset(self, body: bytes) -> int:
        at = body.index(b'"offset":') + 9
        return int(body[at : body.index(b",", at)])

    def read(self, topic: str, kind: BodyKind, offset: int, most: int, wait_ms: int) -> bytes:
        accept = f"Accept: {ACCEPT[kind]}\r\n"
        if kind == "single":
            return self.request("GET", f"/topics/{topic}/records/{offset}", accept)
        query = f"offset={offset}&max_records={most}&max_bytes=16MiB"
        if wait_ms:
            query += f"&wait={wait_ms}ms"
        return self.request("GET", f"/topics/{topic}/records?{query}", accept)

    def records(self, kind: BodyKind, offset: int, head: bytes, body: bytes) -> Read:
        if kind == "single":
            at = _number(head, b"seb-offset")
            return Read([body], [at], at + 1)
        if kind == "json":
            answer = _LIST.decode(body)
            return _read(answer.records, answer.next_offset)
        next_offset = _number(head, b"seb-next-offset")
        if kind == "ndjson":
            return _read(_LINES.decode_lines(body), next_offset)
        return _from_batches(body, offset, next_offset)

    def lasting(self, head: bytes, body: Bytes) -> Bytes:  # noqa: ARG002 - as the protocol has it
        return body


def _read(found: Sequence[_Value], next_offset: int) -> Read:
    return Read([record.value.encode() for record in found], [r.offset for r in found], next_offset)


def _from_batches(body: bytes, begin: int, end: int) -> Read:
    """The records begin ≤ offset < end of stored batches, which may hold more."""
    values: list[bytes] = []
    offsets: list[int] = []
    for at, _ in batch.walk(body):
        decoded = batch.decode(body, at)
        listed: Any = decoded.columns.values.slice()
        if None in listed:
            raise ValueError("a tombstone, which nobody sent")
        numbers = list(decoded.offsets())
        first = sum(number < begin for number in numbers) if numbers[0] < begin else 0
        last = sum(number < end for number in numbers) if numbers[-1] >= end else len(numbers)
        values += listed[first:last]
        offsets += numbers[first:last]
    return Read(values, offsets, end)


def _number(head: bytes, name: bytes) -> int:
    text = header(head, name)
    if text is None:
        raise ValueError(f"an answer without {name.decode()}")
    return int(text)
