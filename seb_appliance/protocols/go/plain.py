"""Plain requests to the Go broker's API: appends and reads of records.

A client of it draws a new boundary for each body, and asks from another offset each time; so a head
is remembered without the one or the other.
"""

from __future__ import annotations

import re
from typing import Final

from seb_appliance.api.encoding.parameters import read_query
from seb_appliance.api.server.plain_requests import PlainConsume, PlainProduce
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.protocols.go import parameters as go_parameters
from seb_appliance.protocols.go.multipart import MULTIPART, boundary_of

URL: Final = re.compile(rb"/records\?(.*)")

# So many digits are an offset in any case; it is there once, or the head fails.
FROM_OFFSET: Final = re.compile(rb"GET /records\?(?:[a-z-]+=[^& ]*&)*offset=([0-9]{1,15})(?=[ &])")
# A boundary of these characters needs no quotes and is one in any case. Content-Type is there
# once, or the head fails.
BOUNDARY: Final = re.compile(
    rb"POST /records\?[^\r\n]*\r\n(?:[^\r\n]+\r\n)*?"
    rb"[Cc]ontent-[Tt]ype: multipart/form-data; boundary=([0-9A-Za-z'+_.-]{1,70})(?=\r\n)"
)


def plain_produce(
    access: Access, key: ApiKeyView, query_string: bytes, headers: dict[bytes, bytes], most: int
) -> PlainProduce | None:
    """None for a body of more than `most` bytes. Raises what the route raises."""
    length = headers.get(b"content-length", b"")
    if not length or int(length) > most or any(name.startswith(b"seb-") for name in headers):
        return None
    topic = go_parameters.topic_name(read_query(query_string, go_parameters.TOPIC_QUERY))
    access.authorize(key, "produce", topic)
    boundary = boundary_of(headers.get(b"content-type"))
    until_us = access.holds_until_us(key)
    return PlainProduce(key, until_us, topic, "multipart", {}, int(length), boundary)


def plain_consume(
    access: Access, key: ApiKeyView, query_string: bytes, headers: dict[bytes, bytes]
) -> PlainConsume | None:
    """None for one with a body. Raises what the route raises. No answer is too large for the lane:
    values go out as they lie in the batches, and 10,000 sizes take about a millisecond."""
    if headers.get(b"content-length", b"0") != b"0":
        return None
    query = read_query(query_string, go_parameters.RECORDS_QUERY)
    topic = go_parameters.topic_name(query)
    access.authorize(key, "consume", topic)
    go_parameters.check_accept(headers.get(b"accept"))
    wanted = go_parameters.read_request(query, key.api_key_id)
    until_us = access.holds_until_us(key)
    return PlainConsume(key, until_us, topic, wanted, MULTIPART, "text")
