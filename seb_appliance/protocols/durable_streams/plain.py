"""Plain requests to the door of Durable Streams: appends that say nothing but their type."""

from __future__ import annotations

from typing import Final

from seb_appliance.api.encoding.answers import Headers
from seb_appliance.api.server.plain_requests import PlainProduce
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.streams.admission import is_json
from seb_appliance.broker.values import ApiKeyView, NewRecords
from seb_appliance.protocols.durable_streams.answers import CROSS_ORIGIN, next_offset
from seb_appliance.protocols.durable_streams.contents import json_values
from seb_appliance.protocols.durable_streams.headers import content_type
from seb_appliance.protocols.durable_streams.names import PREFIX, topic_of

_TYPE: Final = b"content-type"
_OF_PROTOCOL: Final = (b"stream-", b"producer-")


def is_plain_url(url: bytes) -> bool:
    """One without a query."""
    return url.startswith(PREFIX) and b"?" not in url


def plain_append(
    access: Access, key: ApiKeyView, url: bytes, headers: dict[bytes, bytes], most: int
) -> PlainProduce | None:
    """None for a body of more than `most` bytes or of none, and for whatever says more than its
    type. Raises what the route raises."""
    length = headers.get(b"content-length", b"0")
    named = content_type(headers)
    if length == b"0" or int(length) > most or named is None:
        return None
    if any(name.startswith(_OF_PROTOCOL) for name in headers):
        return None
    topic = topic_of(url)
    access.authorize(key, "produce", topic)
    until_us = access.holds_until_us(key)
    return PlainProduce(key, until_us, topic, "stream", {_TYPE: named.encode()}, int(length))


def records_of(broker: Broker, plain: PlainProduce, body: bytes) -> bytes | NewRecords | None:
    """What is appended; None where the stream is not there, or of another type. Raises
    BadJsonError, RequestTooLargeError."""
    named = plain.headers[_TYPE].decode("latin-1")
    if not broker.streams.takes(plain.topic, named):
        return None
    if not is_json(named):
        return body
    values = json_values(body, may_be_none=False)
    return values[0] if len(values) == 1 else NewRecords(list[bytes | None](values))


def appended_headers(end: int) -> Headers:
    """Of the answer, 204. `end`: the offset behind the records."""
    return [CROSS_ORIGIN, next_offset(end)]
