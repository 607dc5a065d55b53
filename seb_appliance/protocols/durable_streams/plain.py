"""Plain requests of Durable Streams: appends with no header of the protocol but their type."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.encoding.answers import Headers
from seb_appliance.api.server.plain_requests import PlainProduce, PlainProtocol
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.streams.admission import is_json
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.errors import SebError
from seb_appliance.formats.contents import Produced
from seb_appliance.protocols.durable_streams.answers import CROSS_ORIGIN, next_offset
from seb_appliance.protocols.durable_streams.contents import json_values
from seb_appliance.protocols.durable_streams.headers import PREFIX, content_type, topic_of

_TYPE: Final = b"content-type"
_OF_PROTOCOL: Final = (b"stream-", b"producer-")


class StreamPlain(PlainProtocol):
    def owns(self, url: bytes) -> bool:
        return url.startswith(PREFIX)

    def read(
        self,
        access: Access,
        key: ApiKeyView,
        method: bytes,
        url: bytes,
        headers: dict[bytes, bytes],
        max_bytes: int,
    ) -> PlainProduce | None:
        length, named = headers.get(b"content-length", b"0"), content_type(headers)
        if method != b"POST" or b"?" in url or length == b"0" or int(length) > max_bytes:
            return None
        if named is None or any(name.startswith(_OF_PROTOCOL) for name in headers):
            return None
        topic = topic_of(url)
        access.authorize(key, "produce", topic)
        until_us = access.holds_until_us(key)
        given = {_TYPE: named.encode()}
        return PlainProduce(key, until_us, topic, "single", given, int(length), protocol=self)

    def records_of(
        self, broker: Broker, plain: PlainProduce, body: bytes
    ) -> bytes | NewRecords | None:
        """None where the stream does not exist, or has another type. Raises BadJsonError,
        RequestTooLargeError."""
        named = plain.headers[_TYPE].decode("latin-1")
        if not broker.streams.takes(plain.topic, named):
            return None
        if not is_json(named):
            return body
        values = json_values(body, may_be_none=False)
        return values[0] if len(values) == 1 else NewRecords(list[bytes | None](values))

    def produced(
        self,
        durability: str,  # noqa: ARG002 - as PlainProtocol has it
        append: Produced,
        timing: bytes,  # noqa: ARG002
    ) -> tuple[int, Headers, bytes]:
        return 204, [CROSS_ORIGIN, next_offset(append.offset + append.count)], b""

    def refused(self, error: SebError, problem: bytes, *, to_admin: bool) -> tuple[Headers, bytes]:
        headers, body = super().refused(error, problem, to_admin=to_admin)
        return [*headers, CROSS_ORIGIN], body
