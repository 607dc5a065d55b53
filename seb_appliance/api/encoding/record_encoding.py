"""Records as JSON, NDJSON and CSV: free functions from a read's result to bytes.

Columns become lists, lists become structs in one `map`, and msgspec writes a slice of them at a
time: no Python runs for a single record, unless its value has to be parsed. An answer comes in
parts of bounded size, so that whoever sends it can let others run in between.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from seb_appliance.api.encoding.answers import format_times
from seb_appliance.api.encoding.record_json import shown_json, text_of
from seb_appliance.broker.values import BatchSlice, ReadResult
from seb_appliance.formats.columns import BinaryColumn

ValueShape = Literal["text", "json", "base64"]
VALUE_SHAPES: Final[tuple[ValueShape, ...]] = ("text", "json", "base64")

# A part is made without a break: at most about a millisecond.
_PART_RECORDS: Final = 512
_PART_BYTES: Final = 256 * 1024
# A value that is longer is written in pieces: a control character takes ten times as long as a
# letter.
_PIECE: Final = 48 * 1024  # characters or bytes; a multiple of 3, for base64
_HERE: Final = b"\0"  # no JSON has it
_encoder: Final = msgspec.json.Encoder()
_headers_decoder: Final = msgspec.msgpack.Decoder(dict[str, bytes])
_NO_RECORDS: Final = b'"records":[]'
_NO_HEADERS: Final[dict[str, str]] = {}  # shared by all records that have none


class RecordOut(msgspec.Struct):
    """One record as a consumer gets it. The five fields are always there; a `…_base64` field
    stands beside one that is null (or, for headers, lacks names) because it is no UTF-8 text."""

    offset: int
    timestamp: str
    key: str | None
    value: str | Raw | None
    headers: dict[str, str]
    key_base64: bytes | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    headers_base64: dict[str, bytes] | UnsetType = UNSET


class Shown(Protocol):
    """A record with its value, and perhaps more."""

    value: str | Raw | None
    value_base64: bytes | UnsetType


R = TypeVar("R", bound=Shown)


class RecordsOut(msgspec.Struct):
    """The body of a consume answer as `application/json`."""

    topic: str
    topic_id: int
    records: list[RecordOut]
    next_offset: int
    log_start_offset: int
    log_end_offset: int


def json_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """`shape`: values as text (base64 where they are no UTF-8), as parsed JSON (base64 where they
    are none), or values, record keys and headers all in base64."""
    frame = RecordsOut(
        result.topic,
        result.topic_id,
        [],
        result.next_offset,
        result.log_start_offset,
        result.log_end_offset,
    )
    return framed(frame, result, shape)


def framed(frame: RecordsOut, result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """`frame` as JSON, with the result's records in the place of none."""
    # A quote inside of a text is escaped: this can only be the field itself.
    before, _, after = _encoder.encode(frame).partition(_NO_RECORDS)
    opening = before + _NO_RECORDS[:-1]
    for part in record_parts(result, shape):
        yield from listed(part, opening)
        opening = b","
    yield (b"" if opening == b"," else opening) + _NO_RECORDS[-1:] + after + b"\n"


def ndjson_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """One record per line."""
    for part in record_parts(result, shape):
        if is_large(part[0]):
            yield from in_pieces(part[0])
            yield b"\n"
        else:
            yield _encoder.encode_lines(part)


def written(record: Shown) -> Iterator[bytes]:
    """A record as JSON, to be joined."""
    if is_large(record):
        yield from in_pieces(record)
    else:
        yield _encoder.encode(record)


def listed(part: Sequence[Shown], opening: bytes) -> Iterator[bytes]:
    """A part as members of a list in JSON, behind `opening`."""
    if is_large(part[0]):
        yield opening
        yield from in_pieces(part[0])
    else:
        yield opening + _encoder.encode(part)[1:-1]


def is_large(record: Shown) -> bool:
    """Whether it is to be written in pieces; such a record is a part of its own."""
    value, packed = record.value, record.value_base64
    if isinstance(value, Raw):
        return memoryview(value).nbytes > _PART_BYTES
    return len((packed if isinstance(packed, bytes) else value) or "") > _PART_BYTES


def in_pieces(record: Shown) -> Iterator[bytes]:
    """A large record as JSON. Its value is taken from it."""
    value, packed = record.value, record.value_base64
    if isinstance(packed, bytes):
        record.value_base64 = Raw(_HERE)
    else:
        record.value = Raw(_HERE)
    before, _, after = _encoder.encode(record).partition(_HERE)
    if isinstance(value, Raw):
        yield before
        whole = memoryview(value).cast("B")
        for at in range(0, len(whole), _PIECE):
            yield bytes(whole[at : at + _PIECE])
        yield after
        return
    yield before + b'"'
    if isinstance(packed, bytes):
        for at in range(0, len(packed), _PIECE):
            yield base64.b64encode(packed[at : at + _PIECE])
    elif value is not None:
        for at in range(0, len(value), _PIECE):
            yield _encoder.encode(value[at : at + _PIECE])[1:-1]
    yield b'"' + after


def records(result: ReadResult, shape: ValueShape) -> Iterator[RecordOut]:
    for part in record_parts(result, shape):
        yield from part


def record_parts(result: ReadResult, shape: ValueShape) -> Iterator[list[RecordOut]]:
    """The records, some at a time, a large one alone."""
    for piece in result.slices:
        for begin, end, fields in record_columns(piece, shape):
            yield from apart(piece, begin, end, list(map(RecordOut, *fields)))


def apart(piece: BatchSlice, begin: int, end: int, part: list[R]) -> Iterator[list[R]]:
    """The part, which is these records of `piece`, cut so that none is too long where many bytes
    are in a few records; a large record is alone."""
    starts = piece.batch.columns.values.starts
    first = begin
    if starts[end] - starts[begin] > _PART_BYTES:  # not in most parts
        for at in range(begin + 1, end):
            if starts[at + 1] - starts[first] > _PART_BYTES:
                yield part[first - begin : at - begin]
                first = at
    yield part[first - begin :]


def record_columns(
    piece: BatchSlice, shape: ValueShape
) -> Iterator[tuple[int, int, tuple[Iterable[Any], ...]]]:
    """Some records at a time: where in the batch they begin and end (exclusive), and for each field
    of RecordOut what they have. What is the same for all of them may be endless."""
    mean_bytes = piece.batch.header.inflated_bytes // piece.batch.header.count + 1
    at_once = max(1, min(_PART_RECORDS, _PART_BYTES // mean_bytes))
    for begin in range(piece.begin, piece.end, at_once):
        end = min(begin + at_once, piece.end)
        yield begin, end, _fields(piece, begin, end, shape)


def _fields(
    piece: BatchSlice, begin: int, end: int, shape: ValueShape
) -> tuple[Iterable[Any], ...]:
    columns = piece.batch.columns
    timestamps = format_times(columns.timestamps_us[begin:end].tolist())
    if shape == "base64":
        keys, keys64 = _in_base64(columns.keys, begin, end)
        values, values64 = _in_base64(columns.values, begin, end)
    else:
        keys, keys64 = _as_text(columns.keys, begin, end)
        as_shaped = _as_json if shape == "json" else _as_text
        values, values64 = as_shaped(columns.values, begin, end)
    headers, headers64 = _headers(columns.headers, begin, end, as_text=shape != "base64")
    offsets = piece.batch.offsets()[begin:end]
    return offsets, timestamps, keys, values, headers, keys64, values64, headers64


# A column for a field, and one for the `…_base64` field beside it. One is endless when it is the
# same for all records.
_Plain: TypeAlias = "Iterable[str | Raw | None]"
_Base64: TypeAlias = "Iterable[bytes | UnsetType]"


def _as_text(column: BinaryColumn | None, begin: int, end: int) -> tuple[_Plain, _Base64]:
    if column is None:
        return repeat(None), repeat(UNSET)
    if column.valid is None:
        starts = column.starts[begin : end + 1].tolist()
        first = starts[0]
        try:
            text = str(column.data[first : starts[-1]], "ascii")
        except UnicodeDecodeError:
            pass
        else:
            # Characters are bytes here: the whole column is decoded once, and cut.
            return [text[a - first : b - first] for a, b in pairwise(starts)], repeat(UNSET)
    items = column.slice(begin, end)
    return _with_base64([None if item is None else text_of(item) for item in items], items)


def _as_json(column: BinaryColumn | None, begin: int, end: int) -> tuple[_Plain, _Base64]:
    assert column is not None, "there are always values"
    items = column.slice(begin, end)
    return _with_base64([None if item is None else _parsed(item) for item in items], items)


def _in_base64(column: BinaryColumn | None, begin: int, end: int) -> tuple[_Plain, _Base64]:
    if column is None:
        return repeat(None), repeat(UNSET)
    items = column.slice(begin, end)
    return repeat(None), [UNSET if item is None else item for item in items]


def _with_base64(
    plain: list[str | None] | list[Raw | None], items: list[bytes | None]
) -> tuple[_Plain, _Base64]:
    """`plain`, and in base64 what is None there though it has bytes."""
    if None not in plain:
        return plain, repeat(UNSET)
    return plain, [
        UNSET if shown is not None or item is None else item
        for shown, item in zip(plain, items, strict=True)
    ]


def _headers(
    column: BinaryColumn | None, begin: int, end: int, *, as_text: bool
) -> tuple[Iterable[dict[str, str]], Iterable[dict[str, bytes] | UnsetType]]:
    """Headers as text, and those that are none (or all of them) in base64."""
    if column is None:
        return repeat(_NO_HEADERS), repeat(UNSET)
    items = column.slice(begin, end)
    known = {packed: _unpacked(packed, as_text=as_text) for packed in set(items)}
    return [known[packed][0] for packed in items], [known[packed][1] for packed in items]


def _unpacked(
    packed: bytes | None, *, as_text: bool
) -> tuple[dict[str, str], dict[str, bytes] | UnsetType]:
    if not packed:
        return _NO_HEADERS, UNSET
    headers = _headers_decoder.decode(packed)
    if not as_text:
        return _NO_HEADERS, headers
    texts = {name: text_of(content) for name, content in headers.items()}
    binary = {name: headers[name] for name, text in texts.items() if text is None}
    return {name: text for name, text in texts.items() if text is not None}, binary or UNSET


def _parsed(value: bytes) -> Raw | None:
    """The value on one line if it is JSON, and not too large; else None. JSON `null` itself stays
    null in the answer, with its bytes in value_base64, since a null value alone is a tombstone."""
    compact = shown_json(value)
    return None if compact is None or compact == b"null" else Raw(compact)


# CSV (RFC 4180): the columns are the fields of a record in JSON. Texts are quoted; an empty field
# without quotes is null.

HEADER_ROW: Final = b",".join(map(str.encode, RecordOut.__struct_fields__)) + b"\r\n"


def csv_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """The rows, without the header row."""
    return map(_rows, record_parts(result, shape))


def _rows(records: list[RecordOut]) -> bytes:
    columns: tuple[Iterable[str], ...] = (
        [str(record.offset) for record in records],
        [record.timestamp for record in records],
        [_quoted(record.key) for record in records],
        [_quoted(record.value) for record in records],
        [_object(record.headers) for record in records],
        [_base64(record.key_base64) for record in records],
        [_base64(record.value_base64) for record in records],
        [_object(record.headers_base64) for record in records],
    )
    rows = map(",".join, zip(*columns, strict=True))
    return "".join([f"{row}\r\n" for row in rows]).encode()


def _quoted(text: str | Raw | None) -> str:
    if text is None:
        return ""
    if isinstance(text, Raw):
        text = bytes(text).decode()
    return '"' + text.replace('"', '""') + '"'


def _object(headers: dict[str, str] | dict[str, bytes] | UnsetType) -> str:
    if headers is UNSET:
        return ""
    return _quoted(_encoder.encode(headers).decode()) if headers else "{}"


def _base64(content: bytes | UnsetType) -> str:
    return "" if content is UNSET else base64.b64encode(content).decode()
