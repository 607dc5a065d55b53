"""Records of a topic: a filtered list, one record, and a download."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlencode

import msgspec
from litestar.types import ASGIApp, HTTPResponseBodyEvent, Receive, Scope, Send

from seb_appliance import limits
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import BatchSlice, From, ReadRequest, ReadResult
from seb_appliance.errors import (
    BadRequestError,
    NotFoundError,
    OffsetExpiredError,
    OffsetOutOfRangeError,
    RecordNotFoundError,
)
from seb_appliance.ui.forms import Form, time_us
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.page_context import FormProblem, Routes, Visit
from seb_appliance.ui.units import SHOWS, Show, Shown, short, shown, visible

routes = Routes()
# Records as rows of a table, and a bounded look through a topic for those that fit.


_STEP_RECORDS: Final = 1_000  # looked through without a break; about a millisecond
_STEP_BYTES: Final = 256 * limits.KIB
_IN_LIST: Final = 1_000  # characters of a value in a list
_headers: Final = msgspec.msgpack.Decoder(dict[str, bytes])


@dataclass(frozen=True, slots=True)
class RecordRow:
    """`key`: None if the record has none. `key64`: the record key in base64url, for queries.
    `size_bytes`: that of the value."""

    offset: int
    timestamp_us: int
    key: str | None
    key64: str
    headers: list[tuple[str, str]]
    value: Shown
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter; empty members match everything. `text` is searched in the value and the record key.
    `header` is a name, or `name=text`."""

    text: bytes = b""
    header: str = ""
    key: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text and not self.header and self.key is None

    def fits(self, key: bytes | None, value: bytes | None, packed: bytes | None) -> bool:
        if self.key is not None and key != self.key:
            return False
        if self.text and self.text not in (value or b"") and self.text not in (key or b""):
            return False
        if not self.header:
            return True
        name, has_text, text = self.header.partition("=")
        found = unpacked(packed).get(name.strip())
        return found is not None and (not has_text or text.strip().encode() in found)


@dataclass(frozen=True, slots=True)
class Found:
    """The searched range `begin` to `next_offset`: it has `records` records of about `size_bytes`
    as stored."""

    rows: list[RecordRow]
    begin: int
    next_offset: int
    records: int
    size_bytes: int
    log_start_offset: int
    log_end_offset: int


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


def rows(result: ReadResult, show: Show, most: int = _IN_LIST) -> list[RecordRow]:
    """All records of a result; of each value at most `most` characters."""
    return [row(piece, i, show, most) for piece, i in places(result)]


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


def row(piece: BatchSlice, i: int, show: Show, most: int = _IN_LIST) -> RecordRow:
    key, value, packed = parts(piece, i)
    return RecordRow(
        int(piece.batch.offsets()[i]),
        int(piece.batch.columns.timestamps_us[i]),
        None if key is None else short(key),
        "" if key is None else key64(key),
        [(visible(name), short(content)) for name, content in unpacked(packed).items()],
        shown(value, show, most),
        len(value or b""),
    )


async def look(
    broker: Broker, topic: str, start: From, most: int, wanted: Filter, show: Show
) -> Found:
    """The first `most` records from `start` on that match, within the limit of one search. Raises
    what `Broker.read` raises."""
    step = ReadRequest(start, max_records=_STEP_RECORDS, max_bytes=_STEP_BYTES)
    if wanted.is_empty:
        step = ReadRequest(start, max_records=most, max_bytes=limits.FETCH_BYTES_DEFAULT)
    found: list[RecordRow] = []
    begin: int | None = None
    records, size_bytes = 0, 0
    while True:
        result = await broker.read(topic, step)
        next_offset = result.next_offset
        for piece, i in places(result):
            offset = int(piece.batch.offsets()[i])
            begin = offset if begin is None else begin
            records += 1
            if wanted.fits(*parts(piece, i)):
                found.append(row(piece, i, show))
                if len(found) == most:
                    next_offset = offset + 1
                    break
        size_bytes += sum(len(piece.stored) for piece in result.slices)
        done = (
            wanted.is_empty
            or len(found) == most
            or not result.slices
            or next_offset >= result.log_end_offset
        )
        if done or size_bytes >= limits.SCANNED_BYTES_MAX or records >= limits.SCANNED_RECORDS_MAX:
            begin = next_offset if begin is None else begin
            ends = (result.log_start_offset, result.log_end_offset)
            return Found(found, begin, next_offset, records, size_bytes, *ends)
        await asyncio.sleep(0)
        step = ReadRequest(From(offset=next_offset), None, _STEP_RECORDS, _STEP_BYTES)


_OFFSET_DIGITS: Final = len(str(limits.OFFSET_MAX))
_QUERY: Final = frozenset({"start", "at", "on", "show", "text", "header", "most"})
STARTS: Final = {
    "end": "the newest",
    "earliest": "the oldest",
    "offset": "offset",
    "time": "time (UTC)",
    "key": "record key",
}
_EMPTY: Final = {"start": "end", "at": "", "text": "", "header": "", "show": "json", "most": "25"}
_MOST: Final = ("25", "50", "100")
_PART: Final = 1_000  # records of a download, read at one time


@dataclass(frozen=True, slots=True)
class Ways:
    """Paths to other pages of the same list; "" for none."""

    earlier: str
    later: str


@routes.get("/topics/{topic:str}/records", _QUERY)
async def show(visit: Visit, topic: str) -> ASGIApp:
    return await _page(visit, topic)


@routes.get("/topics/{topic:str}/records/{offset:str}", {"show"})
async def one(visit: Visit, topic: str, offset: str) -> ASGIApp:
    number = _offset(offset)
    view, chosen = visit.broker.topics.get(topic), _show(visit.form)
    found = await read_one(visit.broker, topic, number)
    piece, i = next(places(found))
    return visit.page(
        "record",
        view=view,
        row=row(piece, i, chosen, limits.VALUE_SHOWN_BYTES_MAX),
        show=chosen,
        shows=SHOWS,
        earlier=await _earlier(visit.broker, topic, number, found.log_start_offset),
        later=await _later(visit.broker, topic, number),
    )


@routes.get("/topics/{topic:str}/download", {"offset", "most"})
async def download(visit: Visit, topic: str) -> ASGIApp:
    begin = number_of(visit.form.text("offset", "0"), "offset", limits.OFFSET_MAX)
    most = number_of(visit.form.text("most", "1000"), "most", limits.DOWNLOADED_RECORDS_MAX)
    start = From(offset=max(begin, visit.broker.topics.get(topic).log_start_offset))
    await visit.broker.read(topic, ReadRequest(start, max_records=1))  # refusals come first
    return _Download(visit.broker, visit.options, topic, start, most)


async def _page(visit: Visit, topic: str) -> ASGIApp:
    """Nothing is read before the user has chosen where to begin."""
    view, query = visit.broker.topics.get(topic), visit.form
    found, problem = None, None
    if query.text("start"):
        try:
            found = await _found(visit, topic)
        except (BadRequestError, OffsetExpiredError, OffsetOutOfRangeError) as error:
            problem = FormProblem(error.detail, query.values)
    filtered = bool(query.text("text") or query.text("header")) or query.text("start") == "key"
    return visit.page(
        "records",
        parts=["record-rows"],
        view=view,
        found=found,
        problem=problem,
        filtered=filtered,
        asked={**_EMPTY, **query.values},
        starts=STARTS,
        shows=SHOWS,
        mosts=_MOST,
        ways=_ways(topic, query, found, filtered=filtered) if found else None,
    )


async def _found(visit: Visit, topic: str) -> Found:
    """Raises BadRequestError, and what `Broker.read` raises."""
    query = visit.form
    most = int(_one_of(query.text("most", "25"), _MOST, "most"))
    kind, at = query.text("start"), query.text("at")
    wanted = Filter(
        query.raw("text").encode(),
        query.text("header"),
        query.raw("at").encode() if kind == "key" else None,
    )
    start = _start(_one_of(kind, tuple(STARTS), "start"), at, most, query.text("on"))
    return await look(visit.broker, topic, start, most, wanted, _show(query))


def _offset(text: str) -> int:
    """The offset in the path of a record's page. Raises NotFoundError."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _OFFSET_DIGITS):
        raise NotFoundError("The path must end with the offset of a record.")
    return int(text)


def _start(kind: str, at: str, most: int, on: str) -> From:
    """Raises BadRequestError. `on`: where a search for a record key continues."""
    if kind == "end":
        return From(last=most)
    if kind == "earliest":
        return From(earliest=True)
    if kind == "key":
        return From(offset=number_of(on, "on", limits.OFFSET_MAX)) if on else From(earliest=True)
    if kind == "offset":
        return From(offset=number_of(at.replace(",", ""), "The offset", limits.OFFSET_MAX))
    at_us = time_us(at, "The time")
    if at_us is None:
        raise BadRequestError("Enter the time to begin at, in UTC, such as 2026-11-21T10:00.")
    return From(timestamp_us=at_us)


def number_of(text: str, name: str, largest: int) -> int:
    """Raises BadRequestError."""
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > largest:
        raise BadRequestError(f"{name} is a number from 0 to {largest:,}.")
    return int(text)


def _one_of(text: str, choices: tuple[str, ...], name: str) -> str:
    if text not in choices:
        raise BadRequestError(f"{name} is one of {', '.join(choices)}.")
    return text


def _show(query: Form) -> Show:
    return cast("Show", _one_of(query.text("show", "json"), SHOWS, "show"))


def _ways(topic: str, query: Form, found: Found, *, filtered: bool) -> Ways:
    """Links to the previous and the next page; the previous page ignores the filter."""
    kept = {name: query.raw(name) for name in ("show", "most", "text", "header") if query.raw(name)}
    later = earlier = ""
    if found.next_offset < found.log_end_offset:
        place = {"start": "offset", "at": str(found.next_offset)}
        if query.text("start") == "key":
            place = {"start": "key", "at": query.raw("at"), "on": str(found.next_offset)}
        later = _path(topic, {**place, **kept})
    if found.begin > found.log_start_offset and not filtered:
        at = max(found.log_start_offset, found.begin - int(query.text("most", "25")))
        earlier = _path(topic, {"start": "offset", "at": str(at), **kept})
    return Ways(earlier, later)


def _path(topic: str, query: dict[str, str]) -> str:
    return f"/ui/topics/{topic}/records?{urlencode(query)}"


async def read_one(broker: Broker, topic: str, offset: int) -> ReadResult:
    """A result with that record alone. Raises RecordNotFoundError, TopicNotFoundError."""
    wanted = ReadRequest(From(offset=offset), max_records=1, max_bytes=1)
    try:
        result = await broker.read(topic, wanted)
        piece, i = next(places(result), (None, 0))
        if piece is not None and piece.batch.offsets()[i] == offset:
            return result
    except (OffsetExpiredError, OffsetOutOfRangeError) as error:
        raise RecordNotFoundError(error.detail) from error
    raise RecordNotFoundError(f"Topic {topic} has no record at offset {offset}.")


async def _earlier(broker: Broker, topic: str, offset: int, log_start: int) -> int | None:
    """The offset of the record before; None when there is none within a hundred offsets (there may
    be gaps)."""
    begin = max(log_start, offset - 100)
    if begin == offset:
        return None
    wanted = ReadRequest(From(offset=begin), From(offset=offset), max_bytes=limits.FETCH_BYTES_MAX)
    before = list(places(await broker.read(topic, wanted)))
    return int(before[-1][0].batch.offsets()[before[-1][1]]) if before else None


async def _later(broker: Broker, topic: str, offset: int) -> int | None:
    """The offset of the record after; None when there is none yet."""
    wanted = ReadRequest(From(offset=offset + 1), max_records=1, max_bytes=1)
    for piece, i in places(await broker.read(topic, wanted)):
        return int(piece.batch.offsets()[i])
    return None


class _Download:
    """An ASGI application that streams records as NDJSON, up to the log end at its start. After a
    failure the answer is incomplete."""

    def __init__(
        self, broker: Broker, options: UiOptions, topic: str, start: From, most: int
    ) -> None:
        self._broker = broker
        self._options = options
        self._topic = topic
        self._start = start
        self._left = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        until = From(offset=self._broker.topics.get(self._topic).log_end_offset)
        name = f'attachment; filename="{self._topic}-{self._start.offset}.ndjson"'
        headers = [
            (b"content-type", b"application/x-ndjson"),
            (b"content-disposition", name.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        start = self._start
        while self._left and not scope["state"].get("seb_head"):
            wanted = ReadRequest(start, until, min(_PART, self._left))
            result = await self._broker.read(self._topic, wanted)
            if not result.slices:
                break
            self._left -= sum(piece.end - piece.begin for piece in result.slices)
            for part in self._options.ndjson(result):
                with self._broker.reading.reserve(OPERATOR, len(part)):
                    await send(_body(bytes(part), more=True))
                    await send(_body(b"", more=True))  # returns when the client has taken it
            start = From(offset=result.next_offset)
        await send(_body(b"", more=False))


def _body(content: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}
