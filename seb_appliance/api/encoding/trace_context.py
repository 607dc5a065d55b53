"""The header `traceparent` (W3C Trace Context): kept with the records that came with it, so that a
consumer's spans can join the producer's trace; and what our own spans of a request hang from.

It is never a reason to refuse: one that is no traceparent counts as none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from seb_appliance.broker.values import Appended, NewRecords, pack_headers
from seb_appliance.errors import RecordTooLargeError, SebError
from seb_appliance.traces import Span, Traces

TRACEPARENT: Final = b"traceparent"
_NAME: Final = "traceparent"
_FORM: Final = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_headers_decoder: Final = msgspec.msgpack.Decoder(dict[str, bytes])


def traceparent(headers: Mapping[bytes, bytes]) -> bytes | None:
    """The one that a request came with."""
    given = headers.get(TRACEPARENT)
    return given if given is not None and _FORM.fullmatch(given) else None


def keep_traceparent(records: NewRecords, headers: Mapping[bytes, bytes]) -> NewRecords:
    """`records`, each with the request's traceparent as a record header, unless it has a record
    header of that name, or no room for one."""
    given = traceparent(headers)
    if given is None:
        return records
    alone = pack_headers({_NAME: given})
    packed = records.headers if records.headers is not None else [b""] * len(records.values)
    records.headers = [_with(item, given) if item else alone for item in packed]
    return records


def _with(packed: bytes, given: bytes) -> bytes:
    try:
        return pack_headers({_NAME: given, **_headers_decoder.decode(packed)})
    except RecordTooLargeError:
        return packed


class RequestTrace:
    """A traced request, if traces are sent; `of` returns None for any other request."""

    def __init__(self, traces: Traces, parent: str) -> None:
        self._traces = traces
        self._parent = parent
        self._began_us = traces.now_us()

    @classmethod
    def of(cls, traces: Traces | None, headers: Mapping[bytes, bytes]) -> RequestTrace | None:
        if traces is None or (given := traceparent(headers)) is None:
            return None
        return cls(traces, given.decode())

    def produced(self, appended: Appended) -> None:
        """Its parts: until it is in a window, until that is sealed, until the bucket has it."""
        ended_us = self._traces.now_us()
        put_us = max(self._began_us, ended_us - int(appended.put_s * 1e6))
        window_us = max(self._began_us, put_us - int(appended.window_s * 1e6))
        parts = (
            Span("admission", self._began_us, window_us),
            Span("window", window_us, put_us),
            Span("PUT", put_us, ended_us),
        )
        told: dict[str, str | int] = {"seb.topic": appended.topic, "seb.records": appended.count}
        if appended.offset is not None:
            told["seb.offset"] = appended.offset
        self._end("produce", told, ended_us, () if appended.replayed else parts)

    def consumed(self, topic: str, next_offset: int) -> None:
        told: dict[str, str | int] = {"seb.topic": topic, "seb.next_offset": next_offset}
        self._end("consume", told, self._traces.now_us())

    def failed(self, name: str, topic: str, error: BaseException) -> None:
        code = error.code if isinstance(error, SebError) else type(error).__name__
        self._end(name, {"seb.topic": topic}, self._traces.now_us(), failure=code)

    def _end(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        ended_us: int,
        parts: tuple[Span, ...] = (),
        failure: str = "",
    ) -> None:
        span = Span(name, self._began_us, ended_us, attributes, parts, failure)
        self._traces.add(span, self._parent)
