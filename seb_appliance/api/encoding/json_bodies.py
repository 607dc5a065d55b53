"""Small JSON bodies of the routes that manage things."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.media_types import media_type
from seb_appliance.api.encoding.record_json import bad_json, check_utf8
from seb_appliance.api.server.auth import AnyRequest, Call
from seb_appliance.api.server.bodies import read_body
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import UnsupportedMediaTypeError

T = TypeVar("T")

_TYPES: Final = ("application/json", "application/merge-patch+json", "")


async def read_json(
    request: AnyRequest, call: Call, broker: Broker, decoder: msgspec.json.Decoder[T]
) -> T:
    """The body as the decoder's type; an empty body counts as `{}`.

    Raises UnsupportedMediaTypeError, RequestTooLargeError, BadJsonError.
    """
    body, reservation = await read_body(
        request.receive, call.headers, call.owner, broker.pending, limits.MANAGE_BYTES_MAX
    )
    with reservation:
        check_json_type(body, call.headers)
        return decode_json(body, decoder)


def check_json_type(body: bytes, headers: dict[bytes, bytes]) -> None:
    """Raises UnsupportedMediaTypeError; no body needs no type."""
    if body and media_type(headers.get(b"content-type", b"")) not in _TYPES:
        raise UnsupportedMediaTypeError(
            "Send the body as JSON (curl: -H 'Content-Type: application/json').",
            supported=[named for named in _TYPES if named],
        )


def decode_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """An empty body counts as `{}`. Raises BadJsonError."""
    check_utf8(body)
    try:
        return decoder.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise bad_json(error) from error
