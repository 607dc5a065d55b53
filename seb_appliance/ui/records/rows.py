"""Records of a read as rows of a table."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadRequestError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
)
from seb_appliance.ui.records.json_paths import NOTHING, JsonPath, paths_in
from seb_appliance.ui.units import Show, Shown, short, shown, visible

_IN_LIST: Final = 1_000  # characters of a value in a list
_IN_LINE: Final = 160  # of its line
_MEMBERS_OF_BYTES: Final = 4 * limits.KIB  # in larger values nobody looks for members
_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True)
class RecordRow:
    """`key`: None if the record has none. `key64`: the record key in base64url, for queries.
    `line`: the beginning of the value in one line. `size_bytes`: that of the value. `cells`: what
    the value has at the paths of `Look.columns`. `members`: paths that would be columns."""

    offset: int
    timestamp_us: int
    key: str | None
    key64: str
    headers: list[tuple[str, str]]
    value: Shown
    line: str
    size_bytes: int
    cells: list[str]
    members: list[str]


@dataclass(frozen=True, slots=True)
class Look:
    """How rows show values. `most`: characters of each; `members`: how many of each are told."""

    show: Show = "json"
    most: int = _IN_LIST
    columns: Sequence[JsonPath] = ()
    members: int = 0


def unpacked(packed: bytes | None) -> dict[str, bytes]:
    return _headers.decode(packed) if packed else {}


def key64(key: bytes) -> str:
    return base64.urlsafe_b64encode(key).decode().rstrip("=")


def key_of(text: str) -> bytes:
    """Raises BadRequestError."""
    try:
        return base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequestError("The record key is not base64url.") from error


def places(result: ReadResult) -> Iterator[tuple[BatchSlice, int]]:
    for piece in result.slices:
        for i in range(piece.begin, piece.end):
            yield piece, i


def parts(piece: BatchSlice, i: int) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Record key, value and packed headers of record `i`."""
    columns = piece.batch.columns
    return (
        None if columns.keys is None else columns.keys.get(i),
        columns.values.get(i),
        None if columns.headers is None else columns.headers.get(i),
    )


def row(piece: BatchSlice, i: int, look: Look) -> RecordRow:
    key, value, packed = parts(piece, i)
    whole = shown(value, look.show, look.most)
    return RecordRow(
        int(piece.batch.offsets()[i]),
        int(piece.batch.columns.timestamps_us[i]),
        None if key is None else short(key),
        "" if key is None else key64(key),
        [(visible(name), short(content)) for name, content in unpacked(packed).items()],
        whole,
        _line(value or b"", whole),
        len(value or b""),
        [visible(text) for text in cells(value, look.columns)],
        _members(value, look.members),
    )


def _members(value: bytes | None, most: int) -> list[str]:
    if not most or len(value or b"") > _MEMBERS_OF_BYTES:
        return []
    found = (path for path in paths_in(decoded(value)) if visible(path) == path)
    return list(islice(found, most))


def _line(value: bytes, whole: Shown) -> str:
    text = (
        whole.text[:_IN_LINE]
        if whole.kind == "hex"
        else value[: 4 * _IN_LINE].decode("utf-8", "ignore")
    )
    return visible(" ".join(text.split())[:_IN_LINE])


def cells(value: bytes | None, columns: Sequence[JsonPath]) -> list[str]:
    """What a JSON value has at each path, as text; "" for nothing."""
    if not columns:
        return []
    document = decoded(value)
    return [path.text(document) for path in columns]


def decoded(value: bytes | None) -> object:
    """The JSON value; NOTHING if it is not JSON."""
    try:
        return msgspec.json.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NOTHING


async def read_one(broker: Broker, topic: str, offset: int) -> tuple[BatchSlice, int]:
    """That record alone. Raises RecordNotFoundError, TopicNotFoundError."""
    wanted = ReadRequest(From(offset=offset), max_records=1, max_bytes=1)
    try:
        result = await broker.read(topic, wanted)
    except (OffsetExpiredError, OffsetOutOfRangeError) as error:
        raise RecordNotFoundError(error.detail) from error
    for piece, i in places(result):
        if piece.batch.offsets()[i] == offset:
            return piece, i
    raise RecordNotFoundError(f"Topic {topic} has no record at offset {offset}.")
