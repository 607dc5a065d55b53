"""The Go broker's API: multipart bodies with the parts `sizes` and `records`."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from seb_appliance.bench.bodies import BodyMaker, JoinedBodies, values_of
from seb_appliance.bench.exchange import header
from seb_appliance.bench.plan import BodyKind, Plan
from seb_appliance.bench.targets import Address, Read
from seb_appliance.formats.columns import Bytes

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
