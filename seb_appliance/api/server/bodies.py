"""Request bodies: memory is reserved as they arrive, inflating is bounded, JSON is decoded."""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, Final, TypeVar

import msgspec
from litestar.types import Receive

from seb_appliance import limits, zstd
from seb_appliance.api.encoding.formats import media_type
from seb_appliance.api.encoding.record_json import bad_json, check_utf8
from seb_appliance.api.server.auth import AnyRequest, Call
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import Reservation, Shares
from seb_appliance.errors import (
    BadRequestError,
    RequestTimeoutError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)

STEP_BYTES: Final = limits.MIB
_WINDOW_LOG_MAX: Final = 24  # a frame may make the decoder allocate 16 MiB, as much as a request
_WBITS: Final = {"gzip": 31, "deflate": 15}  # deflate has a zlib header (RFC 9110, 8.4.1.2)


class Inflater:
    """One gzip or deflate member, or zstd frame (`encoding`), inflated in bounded steps."""

    def __init__(self, encoding: str) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG_MAX}
        self._encoding = encoding
        self._inflater: Any = (
            zlib.decompressobj(wbits=_WBITS[encoding])
            if encoding in _WBITS
            else zstd.ZstdDecompressor(options=options)
        )

    @property
    def ended(self) -> bool:
        return bool(self._inflater.eof)

    @property
    def rest(self) -> bytes:
        """What follows the end of the member."""
        return bytes(self._inflater.unused_data)

    def step(self, data: bytes) -> bytes:
        """At most STEP_BYTES more. `data`: all of the input at the first step, nothing afterwards.
        Raises BadRequestError."""
        given = getattr(self._inflater, "unconsumed_tail", b"") or data
        try:
            part: bytes = self._inflater.decompress(given, STEP_BYTES)
        except (zlib.error, zstd.ZstdError) as error:
            raise BadRequestError(f"The body is not valid {self._encoding}: {error}.") from error
        if not part and not self.ended:
            raise BadRequestError(f"The {self._encoding} data of the body is incomplete.")
        return part


_INFLATE_IN_THREAD_BYTES: Final = 64 * limits.KIB
_JOINED_HERE_BYTES: Final = limits.MIB
_MEMBERS_MAX: Final = 64  # each costs a copy of what follows it


async def read_body(
    receive: Receive, headers: dict[bytes, bytes], owner: str, shares: Shares, max_bytes: int
) -> tuple[bytes, Reservation]:
    """The body, inflated, and what its bytes hold of `shares`; the caller owns both.

    Raises ShareExceededError and OverloadedError, before a byte is read if the announced length
    has no room; RequestTooLargeError, UnsupportedMediaTypeError for an unknown Content-Encoding,
    BadRequestError for one that does not decode.
    """
    encoding = content_encoding(headers)
    length = int(headers.get(b"content-length", b"0"))
    if length > max_bytes:
        raise _too_large(max_bytes)
    shares.check(owner, length)  # only asked: a length that is announced costs its sender nothing
    reservation = Reservation(shares, owner)
    try:
        body = await _read(receive, reservation, max_bytes)
        if encoding != "identity":
            body = await inflate(body, encoding, reservation, max_bytes)
            reservation.shrink_to(len(body))
    except BaseException:
        reservation.release()
        raise
    return body, reservation


def content_encoding(headers: dict[bytes, bytes]) -> str:
    """Raises UnsupportedMediaTypeError."""
    encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if encoding not in {"identity", "zstd", *_WBITS}:
        raise UnsupportedMediaTypeError(
            f"Content-Encoding {encoding[:100]!r} is not supported; send zstd, gzip, deflate or "
            "none."
        )
    return encoding


def _too_large(max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"The body has more than {max_bytes} bytes after decompression; send smaller requests.",
        max_request_bytes=max_bytes,
    )


async def _read(receive: Receive, reservation: Reservation, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            # Nobody is left to read this answer; it ends the handler and frees the reservation.
            raise RequestTimeoutError("The connection ended before the body was complete.")
        assert message["type"] == "http.request", message["type"]
        part = message["body"]
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        reservation.grow(len(part))
        parts.append(part)
        if not message["more_body"]:
            return await _joined(parts, size)


async def inflate(body: bytes, encoding: str, reservation: Reservation, max_bytes: int) -> bytes:
    """The inflated body; several gzip members or zstd frames may follow each other. Raises
    BadRequestError, RequestTooLargeError, and what `Reservation.grow` raises."""
    in_thread = len(body) > _INFLATE_IN_THREAD_BYTES
    parts: list[bytes] = []
    size = 0
    rest = body
    members = 0
    while rest or not members:
        members += 1
        if members > _MEMBERS_MAX:
            raise BadRequestError(f"The body has more than {_MEMBERS_MAX} {encoding} members.")
        member = Inflater(encoding)
        while not member.ended:
            part = await asyncio.to_thread(member.step, rest) if in_thread else member.step(rest)
            in_thread = True  # there may be a thousand times as much
            rest = b""
            size += len(part)
            if size > max_bytes:
                raise _too_large(max_bytes)
            reservation.grow(len(part))
            parts.append(part)
        rest = member.rest
    return await _joined(parts, size)


async def _joined(parts: list[bytes], size_bytes: int) -> bytes:
    if len(parts) == 1:
        return parts[0]
    if size_bytes > _JOINED_HERE_BYTES:
        return await asyncio.to_thread(b"".join, parts)  # it lets go of the interpreter
    return b"".join(parts)


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
