"""How one topic is read: the newest record of each record key first, if asked for, then the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.commits import Commits
from seb_appliance.client.records import (
    Record,
    RecordBatch,
    UnreadableAnswerError,
    decode_batches,
    decode_lines,
)

T = TypeVar("T")

WAIT: Final = "30s"
VIEW_RECORDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What a consumer asks of each topic. `offset`: where to begin; in a group, where it has no
    offset yet. `follow` False: up to the log end of the first answer, or `until` (exclusive: an
    offset or `@time`). `most`: at most so many records; None: all."""

    offset: int | str
    view: Literal["latest"] | None
    group: str | None
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


class Page(NamedTuple, Generic[T]):
    """What one answer holds, in order. `next_offset`: what to read and to commit after it."""

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
    offset = reading.offset
    if reading.view is not None:
        async for view in _view(caller, topic, reading):
            yield view
            offset = view.next_offset
    end: int | None = None
    if commits is not None or not isinstance(offset, int):
        offset, end = await begin(caller, topic, reading, commits)
    async for page in pages(caller, topic, reading, BATCHES, offset, end):
        yield RecordBatch(topic, page.records, page.next_offset, page.log_end_offset)


async def pages(
    caller: Caller,
    topic: str,
    reading: Reading,
    form: Form[T],
    offset: int,
    end: int | None,
) -> AsyncIterator[Page[T]]:
    """From `offset` on. `end`: where it ends unless it follows; None: the log end of the first
    answer. Raises ApplianceError, and what `form.decode` raises."""
    path = path_of("topics", topic, "records")
    query: dict[str, object] = {
        "format": form.name,
        "until": reading.until,
        "max_bytes": reading.max_bytes,
        "wait": WAIT if reading.follow else None,
    }
    left = reading.most
    while (reading.follow or end is None or offset < end) and left != 0:
        most = limits.FETCH_RECORDS_MAX if left is None else min(left, limits.FETCH_RECORDS_MAX)
        answer = await caller.get(path, {**query, "offset": offset, "max_records": most})
        reached = answer.number("seb-next-offset")
        log_end_offset = answer.number("seb-log-end-offset")
        if reached != offset:
            records = form.decode(topic, answer.body, offset, reached)
            if left is not None:
                left -= len(records)
            yield Page(records, reached, log_end_offset)
        elif not reading.follow:
            return
        end = log_end_offset if end is None else end
        offset = reached


async def begin(
    caller: Caller, topic: str, reading: Reading, commits: Commits | None
) -> tuple[int, int]:
    """The offset to begin at, and the log end. Asked for as JSON, because record batches begin
    where they were stored, which may be before it. `commits`: of the group, if there is one.
    Raises ApplianceError, UnreadableAnswerError."""
    query: dict[str, object] = {"format": "json", "max_records": 1, "until": reading.until}
    if commits is None:
        path = path_of("topics", topic, "records")
        answer = await caller.get(path, {**query, "offset": reading.offset})
    else:
        path = path_of("groups", reading.group or "", "topics", topic, "records")
        answer = await caller.get(path, {**query, "default": reading.offset})
        commits.began(topic, answer)
    try:
        first = msgspec.json.decode(answer.body, type=_First)
    except msgspec.DecodeError as error:
        raise UnreadableAnswerError(f"the answer cannot be read ({error})") from error
    found = first.records[0].offset if first.records else first.next_offset
    return found, first.log_end_offset


async def _view(caller: Caller, topic: str, reading: Reading) -> AsyncIterator[RecordBatch]:
    query: dict[str, object] = {
        "view": "latest",
        "format": "ndjson",
        "values": "base64",
        "max_records": VIEW_RECORDS,
        "max_bytes": reading.max_bytes,
    }
    cursor: str | None = None
    while True:
        answer = await caller.get(path_of("topics", topic, "records"), {**query, "cursor": cursor})
        yield RecordBatch(
            topic,
            decode_lines(topic, answer.body),
            answer.number("seb-next-offset"),
            answer.number("seb-log-end-offset"),
            is_view=True,
        )
        cursor = answer.headers.get("seb-next-cursor")
        if cursor is None:
            return
