"""Records as a file: NDJSON as the API answers it, or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec
from litestar.types import HTTPResponseBodyEvent, Receive, Scope, Send

from seb_appliance.broker.broker import Broker
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.broker.values import From, ReadRequest, ReadResult
from seb_appliance.errors import UnauthenticatedError
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.records.json_paths import JsonPath
from seb_appliance.ui.records.rows import cells, parts, places, unpacked
from seb_appliance.ui.records.searching import Filter
from seb_appliance.ui.units import exact_time, short

FileFormat = Literal["NDJSON", "CSV"]
FILE_FORMATS: Final = ("NDJSON", "CSV")
_PART: Final = 500  # records read at one time
_PART_BYTES: Final = 256 * 1024


@dataclass(slots=True)
class Download:
    """An ASGI application that streams the matching records from offset `begin` on, and below
    `end`. After a failure, or once the visitor is not logged in any more, the answer is
    incomplete."""

    broker: Broker
    options: UiOptions
    is_logged_in: Callable[[], object]
    topic: str
    begin: int
    end: int
    most: int
    wanted: Filter
    format: FileFormat
    columns: Sequence[JsonPath] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        name = f'attachment; filename="{self.topic}-{self.begin}.{self.format.lower()}"'
        content_type = "text/csv; charset=utf-8" if self.format == "CSV" else "application/x-ndjson"
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-disposition", name.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if not scope["state"].get("seb_head"):
            if self.format == "CSV":
                await self._send(send, _line(_CSV_HEAD + [path.name for path in self.columns]))
            await self._stream(send)
        await send(_body(b"", more=False))

    async def _stream(self, send: Send) -> None:
        at, left = self.begin, self.most
        while left and at < self.end:
            if not self.is_logged_in():
                raise UnauthenticatedError("The log-in has ended.")
            wanted = ReadRequest(From(offset=at), From(offset=self.end), _PART, _PART_BYTES)
            result = await self.broker.read(self.topic, wanted)
            if result.next_offset <= at:
                break
            at = result.next_offset
            fitting = _first(self.wanted.of(result), left)
            left -= sum(piece.end - piece.begin for piece in fitting.slices)
            for part in self._encoded(fitting):
                await self._send(send, bytes(part))

    def _encoded(self, result: ReadResult) -> Iterable[bytes]:
        return self._csv(result) if self.format == "CSV" else self.options.ndjson(result)

    def _csv(self, result: ReadResult) -> Iterator[bytes]:
        lines = bytearray()
        for piece, i in places(result):
            key, value, packed = parts(piece, i)
            headers = {name: short(content) for name, content in unpacked(packed).items()}
            lines += _line(
                [
                    int(piece.batch.offsets()[i]),
                    exact_time(int(piece.batch.columns.timestamps_us[i])),
                    "" if key is None else short(key),
                    "" if value is None else short(value),
                    msgspec.json.encode(headers).decode() if headers else "",
                    *cells(value, self.columns),
                ]
            )
        if lines:
            yield bytes(lines)

    async def _send(self, send: Send, content: bytes) -> None:
        """Raises OverloadedError."""
        with self.broker.reading.reserve(OPERATOR, len(content)):
            await send(_body(content, more=True))
            await send(_body(b"", more=True))  # returns when the client has taken it


_CSV_HEAD: Final = ["offset", "timestamp", "key", "value", "headers"]


def _line(cells: Sequence[object]) -> bytes:
    """Quoted as RFC 4180 asks."""
    out = io.StringIO()
    csv.writer(out).writerow(cells)
    return out.getvalue().encode()


def _first(result: ReadResult, most: int) -> ReadResult:
    """The result with `most` records at most."""
    slices = []
    for piece in result.slices:
        kept = min(piece.end - piece.begin, most)
        most -= kept
        if kept:
            slices.append(replace(piece, end=piece.begin + kept))
    return replace(result, slices=slices)


def _body(content: bytes, *, more: bool) -> HTTPResponseBodyEvent:
    return {"type": "http.response.body", "body": content, "more_body": more}
