"""Small JSON bodies of the routes that manage things."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.api.auth import AnyRequest, Call
from seb_appliance.api.bodies import read_body
from seb_appliance.api.media_types import media_type
from seb_appliance.api.parameters import refuse_unsupported
from seb_appliance.api.records.produce_json import bad_json, check_utf8
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation
from seb_appliance.errors import UnsupportedMediaTypeError

T = TypeVar("T")

_TYPES: Final = ("application/json", "application/merge-patch+json", "")


async def read_json(
    request: AnyRequest, call: Call, broker: Broker, decoder: msgspec.json.Decoder[T]
) -> T:
    """The body as the decoder's type; an empty body counts as `{}`.

    Raises UnsupportedMediaTypeError, RequestTooLargeError, BadJsonError.
    """
    value, reservation = await read_held_json(
        request, call, broker, decoder, limits.MANAGE_BYTES_MAX
    )
    reservation.release()
    return value


async def read_held_json(
    request: AnyRequest,
    call: Call,
    broker: Broker,
    decoder: msgspec.json.Decoder[T],
    max_bytes: int,
) -> tuple[T, Reservation]:
    """As `read_json`, and the reservation that holds the body's bytes; the caller owns both."""
    refuse_unsupported(call.headers)
    body, reservation = await read_body(
        request.receive, call.headers, call.owner, broker.pending, max_bytes
    )
    try:
        check_json_type(body, call.headers)
        return decode_json(body, decoder), reservation
    except BaseException:
        reservation.release()
        raise


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
