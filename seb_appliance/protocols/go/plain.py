"""Plain requests to the Go broker's API: appends and reads of records.

A client of it draws a new boundary for each body, and reads from another offset each time; so a
head is remembered without the one or the other.
"""

from __future__ import annotations

import re
from typing import Final

from seb_appliance.api.encoding.answers import JSON, Headers
from seb_appliance.api.encoding.parameters import read_query
from seb_appliance.api.server.plain_requests import PlainConsume, PlainProduce, PlainProtocol
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView, NewRecords, ReadRequest, ReadResult
from seb_appliance.errors import SebError
from seb_appliance.formats.columns import Bytes
from seb_appliance.formats.contents import Produced
from seb_appliance.protocols.go import wire
from seb_appliance.protocols.go.routes import text_headers, text_of
from seb_appliance.protocols.go.wire import (
    MULTIPART,
    boundary_of,
    offsets_body,
    parse_records,
    records_answer,
)

_URL: Final = re.compile(rb"/records\?(.*)")
# So many digits are an offset in any case; it is there once, or the head fails.
FROM_OFFSET: Final = re.compile(rb"GET /records\?(?:[a-z-]+=[^& ]*&)*offset=([0-9]{1,15})(?=[ &])")
# A boundary of these characters needs no quotes. Content-Type is there once, or the head fails.
BOUNDARY: Final = re.compile(
    rb"POST /records\?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*?"
    rb"[Cc]ontent-[Tt]ype: multipart/form-data; boundary=([0-9A-Za-z'+_.-]{1,70})(?=\r\n)"
)


class GoPlain(PlainProtocol):
    varying = (FROM_OFFSET, BOUNDARY)

    def owns(self, url: bytes) -> bool:
        return _URL.fullmatch(url) is not None

    def token_of(self, authorization: bytes | None) -> str:
        return wire.go_token_of(authorization)

    def read(
        self,
        access: Access,
        key: ApiKeyView,
        method: bytes,
        url: bytes,
        headers: dict[bytes, bytes],
        max_bytes: int,
    ) -> PlainProduce | PlainConsume | None:
        query_string = url.partition(b"?")[2]
        if method == b"POST":
            return self._produce(access, key, query_string, headers, max_bytes)
        return self._consume(access, key, query_string, headers) if method == b"GET" else None

    def _produce(
        self,
        access: Access,
        key: ApiKeyView,
        query_string: bytes,
        headers: dict[bytes, bytes],
        max_bytes: int,
    ) -> PlainProduce | None:
        length = headers.get(b"content-length", b"")
        if not length or int(length) > max_bytes:
            return None
        if any(name.startswith(b"seb-") for name in headers):
            return None
        topic = wire.topic_name(read_query(query_string, wire.TOPIC_QUERY))
        access.authorize(key, "produce", topic)
        boundary = boundary_of(headers.get(b"content-type"))
        until_us = access.holds_until_us(key)
        return PlainProduce(key, until_us, topic, "single", {}, int(length), boundary, self)

    def _consume(
        self, access: Access, key: ApiKeyView, query_string: bytes, headers: dict[bytes, bytes]
    ) -> PlainConsume | None:
        """No answer is too large for the lane: values go out as they lie in the batches, and
        10,000 sizes take about a millisecond."""
        if headers.get(b"content-length", b"0") != b"0":
            return None
        query = read_query(query_string, wire.RECORDS_QUERY)
        topic = wire.topic_name(query)
        access.authorize(key, "consume", topic)
        wire.check_accept(headers.get(b"accept"))
        wanted = wire.read_request(query, key.api_key_id)
        until_us = access.holds_until_us(key)
        return PlainConsume(key, until_us, topic, wanted, MULTIPART, "text", protocol=self)

    def records_of(
        self,
        broker: Broker,  # noqa: ARG002 - as PlainProtocol has it
        plain: PlainProduce,
        body: bytes,
    ) -> bytes | NewRecords:
        records = parse_records(body, plain.boundary)
        return records.values[0] or b"" if len(records.values) == 1 else records

    def produced(
        self, durability: str, append: Produced, timing: bytes
    ) -> tuple[int, Headers, bytes]:
        headers = [
            (b"content-type", JSON),
            (b"seb-durability", durability.encode()),
            (b"server-timing", timing),
        ]
        return 201, headers, offsets_body(append.offset, append.count)

    def consumed(
        self, result: ReadResult, wanted: ReadRequest, boundary: str
    ) -> tuple[int, Headers, list[Bytes]]:
        assert wanted.start.offset is not None, wanted
        return records_answer(result, wanted.start.offset, wanted.max_records, boundary)

    def refused(
        self,
        error: SebError,
        problem: bytes,  # noqa: ARG002 - errors are plain text here
        *,
        to_admin: bool,
    ) -> tuple[Headers, bytes]:
        return text_headers(error), text_of(error, to_admin=to_admin)
