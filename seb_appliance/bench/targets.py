"""How one asks a broker: whole requests as bytes, and what its answers hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, Protocol

import msgspec

from seb_appliance.bench.accounts import BodyMaker, JoinedBodies, make_bodies, values_of
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
            raise ValueError("a tombstone, although none was sent")
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


# The Go broker's API: multipart bodies with the parts `sizes` and `records`.


_BOUNDARY: Final = "seb-bench-7d1c0a5e"


class GoTarget:
    """The Go broker. Topics come into being on first use, and stay."""

    name = "seb-go"

    def __init__(self, address: Address, token: str) -> None:
        self.address = address
        self._common = f"Host: {address.host}:{address.port}\r\nAuthorization: Bearer {token}\r\n"

    def create(self, topic: str) -> bytes | None:  # noqa: ARG002 - as the protocol has it
        return None

    def delete(self, topic: str) -> bytes | None:  # noqa: ARG002 - as the protocol has it
        return None

    def bodies(self, plan: Plan, producer: int, created_us: int) -> BodyMaker:  # noqa: ARG002
        values = values_of(producer, plan.records_per_request, plan.record_bytes)
        sizes = json.dumps([len(value) for value in values]).encode()
        parts = [
            _part("sizes", sizes),
            _part("records", b"".join(values)),
            f"--{_BOUNDARY}--\r\n".encode(),
        ]
        return JoinedBodies(f"multipart/form-data; boundary={_BOUNDARY}", b"".join(parts))

    def produce_head(self, topic: str, content_type: str, length: int) -> bytes:
        more = f"Content-Type: {content_type}\r\nContent-Length: {length}\r\n"
        return self._request("POST", f"/records?topic-name={topic}", more)

    def first_offset(self, body: bytes) -> int:
        at = body.index(b"[") + 1
        return int(body[at:].partition(b"]")[0].partition(b",")[0])

    def read(self, topic: str, kind: BodyKind, offset: int, most: int, wait_ms: int) -> bytes:
        if kind == "single":
            return self._request("GET", f"/record?topic-name={topic}&offset={offset}")
        query = f"topic-name={topic}&offset={offset}&max-records={most}&timeout={wait_ms or 1}ms"
        return self._request("GET", f"/records?{query}", "Accept: multipart/form-data\r\n")

    def records(self, kind: BodyKind, offset: int, head: bytes, body: bytes) -> Read:
        if kind == "single":
            return Read([body], [offset], offset + 1)
        parts = _parts(head, body)
        if not parts:  # 206: nothing came in time
            return Read([], [], offset)
        sizes = msgspec.json.decode(parts["sizes"], type=list[int])
        if sum(sizes) != len(parts["records"]):
            raise ValueError("the sizes do not add up to the records")
        ends = accumulate(sizes, initial=0)
        values = [parts["records"][begin:end] for begin, end in pairwise(ends)]
        return Read(values, range(offset, offset + len(values)), offset + len(values))

    def lasting(self, head: bytes, body: Bytes) -> Bytes:
        """Without the boundary, which is drawn anew for each answer."""
        boundary = _boundary(head)
        return bytes(body).replace(boundary, b"") if boundary else body

    def _request(self, method: str, path: str, more: str = "") -> bytes:
        line = f"{method} {self.address.path}{path} HTTP/1.1\r\n"
        return f"{line}{self._common}{more}\r\n".encode()


def _part(name: str, content: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


def _boundary(head: bytes) -> bytes:
    kind = header(head, b"content-type") or b""
    return kind.partition(b"boundary=")[2].strip().strip(b'"')


def _parts(head: bytes, body: bytes) -> dict[str, bytes]:
    """The parts of a multipart body by name. Raises ValueError."""
    boundary = _boundary(head)
    if not boundary:
        raise ValueError("an answer that is not multipart")
    found: dict[str, bytes] = {}
    for piece in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:]:
        if piece.startswith(b"--"):
            break
        described, _, content = piece.partition(b"\r\n\r\n")
        name = described.partition(b'name="')[2].partition(b'"')[0].decode()
        found[name] = content
    return found
