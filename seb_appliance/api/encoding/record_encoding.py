"""Records as JSON, NDJSON and CSV: free functions from a read's result to bytes.

Columns become lists, lists become structs in one `map`, and msgspec writes a slice of them at a
time: no Python runs for a single record, unless its value has to be parsed. An answer comes in
parts of bounded size, so that whoever sends it can let others run in between.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, repeat
from typing import Any, Final, Literal, TypeAlias

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
_HERE: Final = "\0"  # no JSON has it
_encoder: Final = msgspec.json.Encoder()
_headers_decoder: Final = msgspec.msgpack.Decoder(dict[str, bytes])
_NO_RECORDS: Final = b'"records":[]'
_NO_HEADERS: Final[dict[str, str]] = {}  # shared by all records that have none


class Large:
    """A value that is longer than a part, in the place of it."""

    __slots__ = ("value",)

    def __init__(self, value: str | bytes | Raw) -> None:
        self.value = memoryview(value).cast("B") if isinstance(value, Raw) else value

    def pieces(self, written: Mapping[type, Callable[[Any], bytes]]) -> Iterator[bytes]:
        """The value in some form, to be joined."""
        value = self.value
        write = written[type(value)]
        for at in range(0, len(value), _PIECE):
            yield write(value[at : at + _PIECE])


def unless_large(value: str | bytes | Raw | UnsetType | None) -> Any:
    """The value, or what stands for it."""
    if value is None or value is UNSET:
        return value
    size = memoryview(value).nbytes if isinstance(value, Raw) else len(value)
    return value if size <= _PART_BYTES else Large(value)


_IN_JSON: Final[Mapping[type, Callable[[Any], bytes]]] = {
    str: lambda text: _encoder.encode(text)[1:-1],
    bytes: base64.b64encode,
    memoryview: bytes,
}


class PartEncoder:
    """msgspec's encoder, for what may hold `Large` values."""

    def __init__(self) -> None:
        held = self._held = list[Large]()

        def hold(value: Large) -> Raw:
            held.append(value)
            return Raw(b"\0" if isinstance(value.value, memoryview) else b'"\0"')

        encoder = msgspec.json.Encoder(enc_hook=hold)
        self.encode, self.encode_lines = encoder.encode, encoder.encode_lines

    def pieces(self, encoded: bytes) -> Iterator[bytes]:
        """What was just encoded, with what others wrote around it: in one piece, or in more where
        it has large values, to be joined."""
        if not self._held:
            yield encoded
            return
        before, *texts = encoded.split(_HERE.encode())
        yield before
        for value, text in zip(self._held, texts, strict=True):
            yield from value.pieces(_IN_JSON)
            yield text
        self._held.clear()


def listed(
    parts: Iterable[Sequence[object]], opening: bytes = b"[", closing: bytes = b"]\n"
) -> Iterator[bytes]:
    """The members of a list, some at a time, as JSON: with the list's bracket, what stands before
    it is `opening`, and what comes behind it is `closing`."""
    encoder = PartEncoder()
    for part in parts:
        yield from encoder.pieces(opening + encoder.encode(part)[1:-1])
        opening = b","
    yield (b"" if opening == b"," else opening) + closing


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
    return framed(frame, record_parts(result, shape))


def framed(frame: msgspec.Struct, parts: Iterable[list[RecordOut]]) -> Iterator[bytes]:
    """`frame` as JSON, with these records in the place of none."""
    # A quote inside of a text is escaped: this can only be the field itself.
    before, _, after = _encoder.encode(frame).partition(_NO_RECORDS)
    return listed(parts, before + _NO_RECORDS[:-1], _NO_RECORDS[-1:] + after + b"\n")


def ndjson_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """One record per line."""
    encoder = PartEncoder()
    for part in record_parts(result, shape):
        yield from encoder.pieces(encoder.encode_lines(part))


def records(result: ReadResult, shape: ValueShape) -> Iterator[RecordOut]:
    for part in record_parts(result, shape):
        yield from part


def record_parts(result: ReadResult, shape: ValueShape) -> Iterator[list[RecordOut]]:
    """The records, some at a time; values may be `Large`."""
    for piece in result.slices:
        for _, _, fields in record_columns(piece, shape):
            yield list(map(RecordOut, *fields))


def steps(piece: BatchSlice, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Where in the batch records begin and end (exclusive) that may be encoded in one step; a
    record with a large value is alone."""
    columns, begin = piece.batch.columns, piece.begin
    may_be_long = piece.batch.header.inflated_bytes > _PART_BYTES

    def size_bytes(end: int) -> int:
        present = [c for c in (columns.values, columns.keys, columns.headers) if c is not None]
        return sum(column.starts[end] - column.starts[begin] for column in present)

    while begin < piece.end:
        end = min(begin + (most or _PART_RECORDS), piece.end)
        if may_be_long and size_bytes(end) > _PART_BYTES:
            ends = range(begin + 1, end + 1)
            end = begin + max(1, bisect_right(ends, _PART_BYTES, key=size_bytes))
        yield begin, end
        begin = end


def record_columns(
    piece: BatchSlice, shape: ValueShape
) -> Iterator[tuple[int, int, tuple[Iterable[Any], ...]]]:
    """Some records at a time: where in the batch they begin and end (exclusive), and for each field
    of RecordOut what they have. What is the same for all of them may be endless."""
    for begin, end in steps(piece):
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
    starts = columns.values.starts
    if starts[end] - starts[begin] > _PART_BYTES:  # then it is the value of one record
        values, values64 = map(unless_large, values), map(unless_large, values64)
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


_IN_CSV: Final[Mapping[type, Callable[[Any], bytes]]] = {
    str: lambda text: text.replace('"', '""').encode(),
    bytes: base64.b64encode,
    memoryview: lambda content: bytes(content).replace(b'"', b'""'),
}


def csv_parts(result: ReadResult, shape: ValueShape) -> Iterator[bytes]:
    """The rows, without the header row."""
    for part in record_parts(result, shape):
        rows = _rows(part)
        value = part[0].value or part[0].value_base64
        if isinstance(value, Large):  # it is one row, and behind its value are JSON and base64
            before, _, after = rows.rpartition(_HERE.encode())
            yield before
            yield from value.pieces(_IN_CSV)
            yield after
        else:
            yield rows


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


def _quoted(text: str | Raw | Large | None) -> str:
    if text is None:
        return ""
    if not isinstance(text, str):
        text = _HERE if isinstance(text, Large) else bytes(text).decode()
    return '"' + text.replace('"', '""') + '"'


def _object(headers: dict[str, str] | dict[str, bytes] | UnsetType) -> str:
    if headers is UNSET:
        return ""
    return _quoted(_encoder.encode(headers).decode()) if headers else "{}"


def _base64(content: bytes | Large | UnsetType) -> str:
    if content is UNSET:
        return ""
    return _HERE if isinstance(content, Large) else base64.b64encode(content).decode()
