"""Reads of one topic: its log, the newest record of each key, and questions about record keys.

A record key is sent in a body: it may be any bytes, and too long for a URL.
"""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.leasing import Commits
from seb_appliance.client.records import (
    Data,
    Record,
    RecordBatch,
    Shown,
    UnreadableAnswerError,
    bytes_of,
    decode_batches,
    decode_lines,
    of_shown,
    timestamp_us,
)
from seb_appliance.client.transport import Answer, Caller

T = TypeVar("T")

WAIT: Final = "30s"
VIEW_RECORDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """How a consumer reads each topic. `offset`: where to begin; in a group, only if it has no
    committed offset. `follow` False: up to the log end of the first answer, or `until` (exclusive:
    an offset or `@time`). `most`: the largest number of records; None: all."""

    offset: int | str
    view: Literal["latest"] | None
    follow: bool
    max_bytes: int
    until: str | None = None
    most: int | None = None


class Form(NamedTuple, Generic[T]):
    """How records travel. `name`: of the parameter `format`. `decode`: topic, body, and the range
    begin ≤ offset < end that is wanted of it."""

    name: str
    decode: Callable[[str, bytes, int, int], Sequence[T]]


BATCHES: Final[Form[Record]] = Form("batch", decode_batches)


class Source:
    """Reads the topic that had the name `topic` at the first request, or has the id `topic_id`.
    Later requests name the id, so a new topic with the same name is detected."""

    def __init__(self, caller: Caller, topic: str, topic_id: int | None = None) -> None:
        self.topic = topic
        self._caller = caller
        self._topic_id: int | str | None = topic_id

    async def get(self, query: Mapping[str, object], group: str | None = None) -> Answer:
        """Raises ApplianceError, TopicReplacedError."""
        named = ("topics", self.topic, "records")
        path = path_of(*named) if group is None else path_of("groups", group, *named)
        answer = await self._caller.get(path, {**query, "topic_id": self._topic_id})
        self._topic_id = answer.headers.get("seb-topic-id")  # an older appliance may not tell it
        return answer


class Page(NamedTuple, Generic[T]):
    """The records of one answer, in order. `next_offset`: the offset to read and to commit next."""

    records: Sequence[T]
    next_offset: int
    log_end_offset: int


class _Offset(msgspec.Struct):
    offset: int


class _First(msgspec.Struct):
    """What is needed of a JSON answer."""

    records: list[_Offset]
    next_offset: int
    log_end_offset: int


async def batches(
    caller: Caller, topic: str, reading: Reading, commits: Commits | None
) -> AsyncIterator[RecordBatch]:
    """Raises ApplianceError, UnreadableAnswerError."""
    source = Source(caller, topic)
    offset = reading.offset
    if reading.view is not None:
        async for view in _view(source, reading):
            yield view
            offset = view.next_offset
    end: int | None = None
    if commits is not None or not isinstance(offset, int):
        offset, end = await begin(source, reading, commits)
    async for page in pages(source, reading, BATCHES, offset, end):
        yield RecordBatch(topic, page.records, page.next_offset, page.log_end_offset)


async def pages(
    source: Source,
    reading: Reading,
    form: Form[T],
    offset: int,
    end: int | None,
) -> AsyncIterator[Page[T]]:
    """From `offset` on. `end`: where it ends unless it follows; None: the log end of the first
    answer. Raises ApplianceError, and what `form.decode` raises."""
    query: dict[str, object] = {
        "format": form.name,
        "until": reading.until,
        "max_bytes": reading.max_bytes,
        "wait": WAIT if reading.follow else None,
    }
    left = reading.most
    while (reading.follow or end is None or offset < end) and left != 0:
        most = limits.FETCH_RECORDS_MAX if left is None else min(left, limits.FETCH_RECORDS_MAX)
        # `offset` comes first: the appliance remembers such a request without it.
        answer = await source.get({"offset": offset, **query, "max_records": most})
        reached = answer.number("seb-next-offset")
        log_end_offset = answer.number("seb-log-end-offset")
        if reached != offset:
            records = form.decode(source.topic, answer.body, offset, reached)
            if left is not None:
                left -= len(records)
            yield Page(records, reached, log_end_offset)
        elif not reading.follow:
            return
        end = log_end_offset if end is None else end
        offset = reached


async def begin(source: Source, reading: Reading, commits: Commits | None) -> tuple[int, int]:
    """The offset to begin at, and the log end. Asked for as JSON, because record batches begin
    where they were stored, which may be before it. `commits`: of the group, if there is one.
    Raises ApplianceError, UnreadableAnswerError."""
    query: dict[str, object] = {"format": "json", "max_records": 1, "until": reading.until}
    if commits is None:
        answer = await source.get({**query, "offset": reading.offset})
    else:
        answer = await source.get({**query, "default": reading.offset}, commits.group)
        commits.began(source.topic, answer)
    try:
        first = msgspec.json.decode(answer.body, type=_First)
    except msgspec.DecodeError as error:
        raise UnreadableAnswerError(f"the answer cannot be read ({error})") from error
    found = first.records[0].offset if first.records else first.next_offset
    return found, first.log_end_offset


async def _view(source: Source, reading: Reading) -> AsyncIterator[RecordBatch]:
    query: dict[str, object] = {
        "view": "latest",
        "format": "ndjson",
        "values": "base64",
        "max_records": VIEW_RECORDS,
        "max_bytes": reading.max_bytes,
    }
    cursor: str | None = None
    while True:
        answer = await source.get({**query, "cursor": cursor})
        yield RecordBatch(
            source.topic,
            decode_lines(source.topic, answer.body),
            answer.number("seb-next-offset"),
            answer.number("seb-log-end-offset"),
            is_view=True,
        )
        cursor = answer.headers.get("seb-next-cursor")
        if cursor is None:
            return


_LIMIT: Final = limits.KEYS_PER_PAGE_MAX


class RecordKey(msgspec.Struct, frozen=True, gc=False):
    """A record key, and where its newest record is. `timestamp_us`: µs since 1970, UTC."""

    key: bytes
    offset: int
    timestamp_us: int


class Found(NamedTuple, Generic[T]):
    """A page. `following` requests the next one; None on the last page."""

    items: Sequence[T]
    following: Callable[[], Coroutine[Any, Any, Found[T]]] | None


Ask: TypeAlias = Callable[[], Coroutine[Any, Any, Found[T]]]


class _Key(msgspec.Struct):
    key: str | None
    offset: int
    timestamp: datetime.datetime
    key_base64: bytes | None = None


class _Keys(msgspec.Struct):
    keys: list[_Key]
    next_after: str | None
    next_after_base64: bytes | None


class _Latest(msgspec.Struct):
    record: Shown


class _History(msgspec.Struct):
    records: list[Shown]
    next_before: int | None


async def latest(caller: Caller, topic: str, key: Data, *, fresh: bool) -> Record | None:
    """The newest record of a record key; None if there is none, or a tombstone. Raises
    ApplianceError, UnreadableAnswerError, BadRecordError."""
    asked = {"key_base64": bytes_of(key, "key"), "values": "base64", "fresh": fresh}
    try:
        found = await _asked(caller, (topic, "keys", "latest"), asked, _Latest)
    except ApplianceError as error:
        if error.code == "record_key_not_found":
            return None
        raise
    return of_shown(topic, found.record)


def keys(
    caller: Caller, topic: str, prefix: Data, after: Data | None, *, fresh: bool
) -> Ask[RecordKey]:
    """Record keys that begin with `prefix` and are greater than `after`, in byte order. Iterating
    raises as `latest`."""

    async def ask() -> Found[RecordKey]:
        asked = {"prefix_base64": bytes_of(prefix, "prefix"), "limit": _LIMIT, "fresh": fresh}
        if after is not None:
            asked["after_base64"] = bytes_of(after, "after")
        found = await _asked(caller, (topic, "keys"), asked, _Keys)
        rows = [
            RecordKey(_either(row.key, row.key_base64), row.offset, timestamp_us(row.timestamp))
            for row in found.keys
        ]
        if found.next_after is None and found.next_after_base64 is None:
            return Found(rows, None)
        return Found(rows, keys(caller, topic, prefix, rows[-1].key, fresh=fresh))

    return ask


def history(
    caller: Caller, topic: str, key: Data, before: int | None, *, fresh: bool
) -> Ask[Record]:
    """All stored records of a record key below an offset, newest first. Iterating raises as
    `latest`."""

    async def ask() -> Found[Record]:
        asked = {"key_base64": bytes_of(key, "key"), "values": "base64", "fresh": fresh}
        asked |= {"before": before, "limit": _LIMIT}
        found = await _asked(caller, (topic, "keys", "history"), asked, _History)
        records = [of_shown(topic, shown) for shown in found.records]
        if found.next_before is None:
            return Found(records, None)
        return Found(records, history(caller, topic, key, found.next_before, fresh=fresh))

    return ask


async def each(ask: Ask[T]) -> AsyncIterator[T]:
    """What is on all pages."""
    following: Ask[T] | None = ask
    while following is not None:
        items, following = await following()
        for item in items:
            yield item


def _either(text: str | None, binary: bytes | None) -> bytes:
    return (text or "").encode() if binary is None else binary


async def _asked(
    caller: Caller, place: tuple[str, ...], question: dict[str, Any], answer: type[T]
) -> T:
    """Raises ApplianceError, UnreadableAnswerError."""
    body = msgspec.json.encode(question)
    request = caller.endpoint.request("POST", path_of("topics", *place), body=body)
    told = await caller.ask(request._replace(is_read=True))
    try:
        return msgspec.json.decode(told.body, type=answer)
    except msgspec.DecodeError as error:
        raise UnreadableAnswerError(
            f"the answer cannot be read ({error}); is the appliance of another version?"
        ) from error
