"""Bodies that are not in the envelope of the API: records are taken from them as they were sent.

`value` makes the whole body one record; `items` each member of a JSON array or each document of
NDJSON, a JSON sequence (RFC 7464) or JSON texts in a row; `lines` each line of text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Raw

from seb_appliance import limits
from seb_appliance.api.encoding.answers import parse_time
from seb_appliance.api.encoding.formats import media_type
from seb_appliance.api.encoding.parameters import choice
from seb_appliance.api.encoding.record_json import (
    NUMBER_TOO_LARGE,
    bad_json,
    check_numbers,
    check_utf8,
    count_one,
    decode_counted,
    may_be_huge,
    too_many_records,
)
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.broker.values import NewRecords, check_key, pack_headers
from seb_appliance.errors import BadJsonError, BadParameterError, UnsupportedMediaTypeError
from seb_appliance.formats.topic_settings import BODY_SHAPES, BodyShape

PARAMETERS: Final = ("body", "key", "key_header", "timestamp", "keep_headers")
_JSON_SEQUENCE: Final = "application/json-seq"
_LINE_TYPES: Final = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
_POINTER: Final = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
# These carry secrets, and records are read by others.
_NEVER_KEPT: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
_SLOW_BYTES: Final = 8 * limits.KIB
_RECORD_SEPARATOR: Final = b"\x1e"
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
# A number is a Unix time in seconds, ms, us or ns, by its size: seconds reach to the year 5138.
_UNITS_US: Final = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (float("inf"), 1e-3))
_array_decoder: Final = msgspec.json.Decoder(list[Raw])
_object_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_text_decoder: Final = msgspec.json.Decoder(str)
_any_decoder: Final = msgspec.json.Decoder()
_NOT_JSON: Final = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)


class _Member:
    """A member of an array that is only counted."""


_MEMBER: Final = _Member()


def _counted(_type: type, _member: object) -> _Member:
    count_one()
    return _MEMBER


_counting_decoder: Final = msgspec.json.Decoder(list[_Member], dec_hook=_counted)


@dataclass(frozen=True, slots=True)
class BodyReader:
    """How a body becomes records. `key`, `timestamp`: JSON Pointers (RFC 6901) into each record's
    value, None for none; `key_header`, `keep_headers`: lower-case names of request headers."""

    shape: BodyShape
    key: str | None = None
    key_header: str | None = None
    timestamp: str | None = None
    keep_headers: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: Mapping[str, str], default: BodyShape) -> BodyReader | None:
        """What a request asks for; `default`: the topic's setting. None: the API's own envelope.
        Raises BadParameterError."""
        shape = choice(query.get("body", default), "body", BODY_SHAPES)
        if shape == "envelope":
            given = [name for name in PARAMETERS[1:] if name in query]
            if given:
                raise BadParameterError(
                    f"{given[0]} needs body=value, body=items or body=lines: in the envelope, each "
                    "record has its own key, timestamp and headers."
                )
            return None
        if "key" in query and "key_header" in query:
            raise BadParameterError("Send key or key_header, not both.")
        kept = tuple(name.strip().lower() for name in query.get("keep_headers", "").split(","))
        reader = cls(
            shape,
            _pointer(query, "key"),
            query["key_header"].lower() if "key_header" in query else None,
            _pointer(query, "timestamp"),
            tuple(filter(None, kept)),
        )
        for name in (*reader.keep_headers, *filter(None, [reader.key_header])):
            if not _HEADER_NAME.fullmatch(name) or name in _NEVER_KEPT:
                raise BadParameterError(f"{name[:100]!r} is not a header that a record can keep.")
        return reader

    def takes_long(self, body: bytes) -> bool:
        """Whether it may take 5 ms although it is small: each item takes a few Python calls."""
        return self.shape == "items" and len(body) > _SLOW_BYTES

    def parse(self, body: bytes, headers: dict[bytes, bytes]) -> NewRecords:
        """At least one record. Raises BadJsonError, RequestTooLargeError, RecordTooLargeError,
        UnsupportedMediaTypeError."""
        values = self._values(body, media_type(headers.get(b"content-type", b"")))
        if len(values) > limits.RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
        if not values:
            raise BadJsonError(f"The body has no record: it is empty, and body={self.shape}.")
        records = NewRecords(list(values))
        if self.key is not None:
            keys = [_key_at(value, self.key, i) for i, value in enumerate(values)]
            records.keys = keys if any(key is not None for key in keys) else None
        elif self.key_header is not None and (key := headers.get(self.key_header.encode())):
            records.keys = [check_key(key)] * len(values)
        if self.timestamp is not None:
            records.timestamps_us = [
                _time_at(value, self.timestamp, i) for i, value in enumerate(values)
            ]
        kept = {name: value for name in self.keep_headers if (value := headers.get(name.encode()))}
        if kept:
            records.headers = [pack_headers(kept)] * len(values)
        return keep_traceparent(records, headers)

    def _values(self, body: bytes, named: str) -> list[bytes]:
        if self.shape == "value":
            return [body]
        if self.shape == "lines":
            if body.count(b"\n") > limits.RECORDS_PER_REQUEST_MAX:
                raise too_many_records()
            return [line for one in body.split(b"\n") if (line := one.removesuffix(b"\r"))]
        if named.startswith(("image/", "multipart/")):
            raise UnsupportedMediaTypeError(
                f"{named[:100]!r} has no items; body=value stores the whole body as one record."
            )
        return items(body, named)


def text_at(body: bytes, pointer: str) -> bytes | None:
    """What is at a pointer into the whole body, as a record key. Raises BadJsonError."""
    return _key_at(body, pointer, 0)


def read_plain(body: bytes, reader: BodyReader, headers: dict[bytes, bytes]) -> NewRecords:
    """`reader.parse`, as a function that a child process can be asked for."""
    return reader.parse(body, headers)


def _pointer(query: Mapping[str, str], name: str) -> str | None:
    text = query.get(name)
    if text is None:
        return None
    if not _POINTER.fullmatch(text) or text.count("/") > limits.POINTER_TOKENS_MAX:
        raise BadParameterError(
            f"{name}={text[:100]!r} is not a JSON Pointer such as /user/id (RFC 6901) with at most "
            f"{limits.POINTER_TOKENS_MAX} parts."
        )
    return text


def items(body: bytes, named: str) -> list[bytes]:
    """Members of an array, or documents in a row. Raises BadJsonError, RequestTooLargeError."""
    check_utf8(body)
    if named == _JSON_SEQUENCE or body.startswith(_RECORD_SEPARATOR):
        found = [part.strip() for part in body.split(_RECORD_SEPARATOR)]
        return _checked([part for part in found if part], "Document")
    if body.lstrip()[:1] == b"[" and named not in _LINE_TYPES:
        if body.count(b",") >= limits.RECORDS_PER_REQUEST_MAX:
            decode_counted(body, _counting_decoder)  # stops at the limit, and keeps no member
        try:
            return _numbers_checked([bytes(one) for one in _array_decoder.decode(body)])
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_json(error) from error
    lines = [line for one in body.split(b"\n") if (line := one.strip())]
    if len(lines) > 1 or named in _LINE_TYPES:
        try:
            return _checked(lines, "Line")
        except BadJsonError:
            if named in _LINE_TYPES:
                raise
    return _in_a_row(body.decode())


def _checked(documents: list[bytes], word: str) -> list[bytes]:
    """The documents, if each is one JSON text. `word`: what errors call one."""
    if len(documents) > limits.RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    for number, document in enumerate(documents, 1):
        try:
            _any_decoder.decode(document)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_json(error, where=f"{word} {number}: ") from error
    return _numbers_checked(documents)


def _in_a_row(text: str) -> list[bytes]:
    """JSON texts one after another, with white space or nothing between them."""
    documents: list[bytes] = []
    decode, find_next = _document_decoder.raw_decode, _NOT_SPACE.search
    at, length = len(text) - len(text.lstrip()), len(text.rstrip())
    try:
        while at < length:
            if len(documents) == limits.RECORDS_PER_REQUEST_MAX:
                raise too_many_records()
            end = decode(text, at)[1]
            documents.append(text[at:end].encode())
            following = find_next(text, end)
            at = length if following is None else following.start()
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise BadJsonError(
            f"Record {len(documents)} is not JSON: {error.msg} ({place}).",
            errors=[{"path": place, "message": error.msg}],
        ) from error
    except RecursionError as error:
        raise bad_json(error) from error
    except ValueError as error:  # Python makes no integer of more than 4,300 digits
        raise BadJsonError(f"Record {len(documents)}: {NUMBER_TOO_LARGE}.") from error
    return _numbers_checked(documents)


def _no_constant(name: str) -> None:
    raise BadJsonError(f"The body is not JSON: {name} is not a JSON value.")


_document_decoder: Final = json.JSONDecoder(parse_constant=_no_constant)


def _numbers_checked(values: list[bytes]) -> list[bytes]:
    if may_be_huge(b"\n".join(values)):
        for i, value in enumerate(values):
            try:
                check_numbers(value)
            except BadJsonError as error:
                raise BadJsonError(f"Record {i}: {error.detail}.") from None
    return values


def _key_at(value: bytes, pointer: str, number: int) -> bytes | None:
    """A text's UTF-8, a number or boolean as it is written; None for all else."""
    try:
        found = _at(value, pointer)
        if found is None or found[:1] in (b"{", b"[", b"n"):
            return None
        key = _text_decoder.decode(found).encode() if found[:1] == b'"' else found
    except _NOT_JSON as error:
        raise bad_json(error, where=f"Record {number}: ") from error
    return check_key(key)


def _time_at(value: bytes, pointer: str, number: int) -> int | None:
    """Microseconds since 1970 of an RFC 3339 time or a Unix time; None if there is nothing."""
    try:
        found = _at(value, pointer)
        given: Any = None if found is None else _any_decoder.decode(found)
    except _NOT_JSON as error:
        raise bad_json(error, where=f"Record {number}: ") from error
    if given is None:
        return None
    try:
        return _time_us(given)
    except (ValueError, OverflowError) as error:
        raise BadJsonError(f"Record {number}: the timestamp at {pointer}: {error}.") from error


def _time_us(given: Any) -> int:
    """Raises ValueError."""
    if isinstance(given, str):
        return parse_time(given)
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return int(given * next(unit for below, unit in _UNITS_US if given < below))
    raise ValueError("it is neither a time such as 2026-11-21T10:00:00Z nor a Unix time")


def _at(value: bytes, pointer: str) -> bytes | None:
    """The JSON text at a pointer, None if there is none. Raises one of _NOT_JSON."""
    found: bytes | None = value.strip()
    for token in pointer.split("/")[1:]:
        if found is not None:
            found = _member(found, token.replace("~1", "/").replace("~0", "~"))
    return found


def _member(found: bytes, name: str) -> bytes | None:
    """Of an object or an array; None if it has none of that name. Raises msgspec.DecodeError."""
    member: Raw | None = None
    if found[:1] == b"{":
        member = _object_decoder.decode(found).get(name)
    elif found[:1] == b"[":
        members = _array_decoder.decode(found)
        if name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(members):
            member = members[int(name)]
    else:
        _any_decoder.decode(found)
    return None if member is None else bytes(member).strip()
