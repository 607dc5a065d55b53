"""Requests and answers of the Go broker's API: multipart bodies, API key, query, Accept."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from operator import sub
from typing import Annotated, Final

import msgspec

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Headers
from seb_appliance.api.encoding.formats import negotiate
from seb_appliance.api.encoding.record_json import too_many_records
from seb_appliance.api.server.auth import token_of
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import BatchSlice, From, NewRecords, ReadRequest, ReadResult
from seb_appliance.errors import BadParameterError, BadRequestError, NotAcceptableError
from seb_appliance.formats.columns import Bytes

MULTIPART: Final = "multipart/form-data"
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_TYPE: Final = re.compile(rb"[ \t]*(%b(?:/%b)?)" % (_TOKEN, _TOKEN))
_PARAMETER: Final = re.compile(
    rb'[ \t]*;[ \t]*(%b)=(?:(%b)|"((?:[^"\\]|\\.)*)")' % (_TOKEN, _TOKEN)
)
_ESCAPED: Final = re.compile(rb"\\(.)")
_BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_LINE_END: Final = b"\r\n"
_HEADERS_END: Final = b"\r\n\r\n"
_ENDS: Final = (b"--", b"--\r\n")
_USUAL_HEADERS: Final = {  # what the Go broker's own client sends need not be taken apart
    name: b'Content-Disposition: form-data; name="%b"' % name for name in (b"sizes", b"records")
}
_PLAIN_ENCODINGS: Final = frozenset({b"7bit", b"8bit", b"binary"})
_Size = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_sizes_decoder: Final = msgspec.json.Decoder(list[_Size])
_encoder: Final = msgspec.json.Encoder()


def parameters_of(value: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """What a header such as Content-Type says: the type and the names of its parameters in lower
    case. Raises BadRequestError."""
    found = _TYPE.match(value)
    parameters: dict[bytes, bytes] = {}
    at = found.end() if found else 0
    while found and (parameter := _PARAMETER.match(value, at)):
        name, token, quoted = parameter[1].lower(), parameter[2], parameter[3]
        if name in parameters:
            raise BadRequestError(f"{name[:50].decode('latin-1')} is given twice in one header.")
        parameters[name] = token if token is not None else _ESCAPED.sub(rb"\1", quoted)
        at = parameter.end()
    if not found or value[at:].strip(b" \t"):
        raise BadRequestError("A header of the multipart body does not follow RFC 7578.")
    return found[1].lower(), parameters


def boundary_of(content_type: bytes | None) -> bytes:
    """The boundary that a Content-Type names. Raises BadRequestError."""
    if content_type is None or not content_type.lower().startswith(MULTIPART.encode()):
        raise BadRequestError(f"expected Content-Type {MULTIPART}")
    kind, parameters = parameters_of(content_type)
    if kind != MULTIPART.encode():
        raise BadRequestError(f"expected Content-Type {MULTIPART}")
    boundary = parameters.get(b"boundary", b"")
    if not _BOUNDARY.fullmatch(boundary):
        raise BadRequestError(
            "The boundary in Content-Type is missing, or not 1 to 70 characters of RFC 2046."
        )
    return boundary


def parse_records(body: bytes, boundary: bytes) -> NewRecords:
    """The records of a request. Raises BadRequestError, RequestTooLargeError."""
    delimiter = b"\r\n--" + boundary
    if not body.startswith(delimiter[2:] + _LINE_END):
        raise BadRequestError("The body does not begin with its boundary.")
    begin, end = _part(body, len(delimiter), delimiter, b"sizes")
    sizes = _sizes(body[begin:end])
    at = end + len(delimiter)
    if body[at : at + 2] != _LINE_END:
        raise BadRequestError("The part records is missing; send it after the part sizes.")
    begin, end = _part(body, at + 2, delimiter, b"records")
    if body[end + len(delimiter) :] not in _ENDS:
        raise BadRequestError("The part records must be the last part.")
    places = list(accumulate(sizes, initial=begin))
    if places[-1] != end:
        raise BadRequestError(
            f"sizes add up to {places[-1] - begin} bytes, and records has {end - begin}."
        )
    return NewRecords([body[first:stop] for first, stop in pairwise(places)])


def _part(body: bytes, at: int, delimiter: bytes, name: bytes) -> tuple[int, int]:
    """Where the content of the part that begins at `at` begins and ends (exclusive)."""
    headers_end = body.find(_HEADERS_END, at - 2, at + limits.PART_HEADERS_BYTES_MAX)
    if headers_end < 0:
        raise BadRequestError(
            f"The headers of the part {name.decode()} do not end within "
            f"{limits.PART_HEADERS_BYTES_MAX} bytes."
        )
    _check_part_headers(body[at : max(at, headers_end)], name)
    begin = headers_end + len(_HEADERS_END)
    end = body.find(delimiter, begin)
    if end < 0:
        raise BadRequestError(f"The boundary after the part {name.decode()} is missing.")
    return begin, end


def _check_part_headers(headers: bytes, name: bytes) -> None:
    if headers == _USUAL_HEADERS[name]:
        return
    found: dict[bytes, bytes] = {}
    for line in headers.split(_LINE_END):
        header, colon, value = line.partition(b":")
        if not colon or header.lower() in found:
            raise BadRequestError(f"The headers of the part {name.decode()} are malformed.")
        found[header.lower()] = value.strip(b" \t")
    kind, parameters = parameters_of(found.get(b"content-disposition", b""))
    if kind != b"form-data" or parameters.get(b"name") != name:
        raise BadRequestError(
            "The parts must be sizes and records, in this order: Content-Disposition: "
            f'form-data; name="{name.decode()}" is expected here.'
        )
    encoding = found.get(b"content-transfer-encoding", b"binary").lower()
    if encoding not in _PLAIN_ENCODINGS:
        raise BadRequestError(f"The part {name.decode()} is encoded; send its bytes as they are.")


def _sizes(content: bytes) -> list[int]:
    if len(content) > limits.PART_SIZES_BYTES_MAX:
        raise too_many_records()
    try:
        sizes = _sizes_decoder.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequestError(f"sizes is not a JSON list of uint32: {error}.") from error
    if not sizes:
        raise BadRequestError("sizes is empty: send at least one record.")
    if len(sizes) > limits.RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    return sizes


# --- answers ---


def offsets_body(offset: int, count: int) -> bytes:
    """The answer to an append."""
    return b'{"offsets":[%b]}' % ",".join(map(str, range(offset, offset + count))).encode()


def records_answer(
    result: ReadResult, offset: int, max_records: int, boundary: str
) -> tuple[int, Headers, list[Bytes]]:
    """Status, headers and body of a read from `offset` on: 206 and no part when there is no record.

    `boundary` is drawn for this answer alone, so that nobody can have stored it in a record.
    """
    headers: Headers = [
        (b"content-type", f"{MULTIPART}; boundary={boundary}".encode()),
        (b"cache-control", b"no-store"),
    ]
    sizes, data = _sizes_and_data(result.slices, offset, max_records)
    if not sizes:
        return 206, headers, [f"--{boundary}--\r\n".encode()]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="sizes"\r\n\r\n'.encode()
        + _encoder.encode(sizes)
        + f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="records"\r\n\r\n'.encode()
    )
    return 200, headers, [head, *data, f"\r\n--{boundary}--\r\n".encode()]


def _sizes_and_data(
    slices: Sequence[BatchSlice], offset: int, max_records: int
) -> tuple[list[int], list[Bytes]]:
    """Lengths of the records from `offset` on, and their bytes.

    A reader counts: its next offset is `offset` + how many records came. So an offset whose record
    compaction took comes as an empty record, and so does a tombstone.
    """
    sizes: list[int] = []
    data: list[Bytes] = []
    for piece in slices:
        values = piece.batch.columns.values
        starts = values.starts[piece.begin : piece.end + 1].tolist()
        lengths = list(map(sub, starts[1:], starts))
        offsets = piece.batch.offsets()[piece.begin : piece.end]
        taken = len(lengths)
        if offsets[-1] - taken + 1 == offset + len(sizes):
            sizes += lengths  # no gap before it, and none in it
        else:
            taken = _add_with_gaps(sizes, lengths, offsets, offset, max_records)
        data.append(values.data[starts[0] : starts[taken]])
    return sizes, data


def _add_with_gaps(
    sizes: list[int], lengths: list[int], offsets: Sequence[int], offset: int, max_records: int
) -> int:
    """How many of the records found room, with an empty one for each offset that is missing."""
    for i, (at, length) in enumerate(zip(offsets, lengths, strict=True)):
        missing = at - offset - len(sizes)
        room = max_records - len(sizes)
        if missing >= room:
            sizes += [0] * room
            return i
        sizes += [0] * missing
        sizes.append(length)
    return len(lengths)


TOPIC_QUERY: Final = frozenset({"topic-name"})
RECORD_QUERY: Final = TOPIC_QUERY | {"offset"}
RECORDS_QUERY: Final = RECORD_QUERY | {"max-records", "max-bytes", "timeout"}
MAX_RECORDS_DEFAULT: Final = 10
TIMEOUT_DEFAULT: Final = "10s"
_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_UINT64_MAX: Final = 2**64 - 1
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+|0")
_DURATION_CHARACTERS_MAX: Final = 50
_MS: Final = {
    "ns": Decimal("0.000001"),
    "us": Decimal("0.001"),
    "µs": Decimal("0.001"),  # the micro sign
    "μs": Decimal("0.001"),  # the Greek letter
    "ms": Decimal(1),
    "s": Decimal(1_000),
    "m": Decimal(60_000),
    "h": Decimal(3_600_000),
}


def go_token_of(authorization: bytes | None) -> str:
    """As `auth.token_of`, but the word `Bearer` may be left out. Raises UnauthenticatedError."""
    if authorization is None or b" " in authorization.strip():
        return token_of(authorization)
    return authorization.strip().decode("latin-1")


def topic_name(query: dict[str, str]) -> str:
    """Raises BadParameterError, BadNameError: a name has one spelling, once the URL is decoded."""
    return check_topic_name(_required(query, "topic-name"))


def offset(query: dict[str, str]) -> int:
    """A uint64. A number above the largest offset becomes `OFFSET_MAX`, which no record has."""
    return min(_number(_required(query, "offset"), "offset"), limits.OFFSET_MAX)


def read_request(query: dict[str, str], owner: str) -> ReadRequest:
    """The parameters of a read. A request for more than one answer can hold is not an error: the
    answer is shorter, or 206 is sent earlier. Raises BadParameterError."""
    max_records = _number(query.get("max-records", "0"), "max-records")
    max_bytes = _number(query.get("max-bytes", "0"), "max-bytes")
    return ReadRequest(
        start=From(offset=offset(query)),
        max_records=min(max_records or MAX_RECORDS_DEFAULT, limits.RECORDS_PER_REQUEST_MAX),
        max_bytes=min(max_bytes or limits.FETCH_BYTES_MAX, limits.FETCH_BYTES_MAX),
        wait_ms=duration_ms(query.get("timeout", TIMEOUT_DEFAULT)),
        owner=owner,
    )


def duration_ms(text: str) -> int:
    """A Go duration, rounded up: `10s`, `1m30s`, `1.5h`, `250ms`, `0`; at most `WAIT_MS_MAX`."""
    if len(text) > _DURATION_CHARACTERS_MAX or not _DURATION.fullmatch(text):
        raise BadParameterError(
            f"timeout={text[:100]!r} is not a duration such as 10s, 1m30s or 250ms."
        )
    parts = _DURATION_PART.findall(text)
    exact = sum((Decimal(number) * _MS[unit] for number, unit in parts), Decimal(0))
    return math.ceil(min(exact, Decimal(limits.WAIT_MS_MAX)))


def check_accept(accept: bytes | None) -> None:
    """Raises NotAcceptableError unless the client says that it takes a multipart answer."""
    if not accept:
        raise NotAcceptableError(f"set Accept: {MULTIPART}", supported=[MULTIPART])
    negotiate(accept, (MULTIPART,))


def _required(query: dict[str, str], name: str) -> str:
    if not query.get(name):
        raise BadParameterError(f"The query parameter {name} is missing.")
    return query[name]


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _UINT64_MAX:
        raise BadParameterError(f"{name}={text[:100]!r} is not a number (uint64).")
    return int(text)
