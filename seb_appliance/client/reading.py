"""How one topic is read: the newest record of each record key first, if asked for, then the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.commits import Commits
from seb_appliance.client.records import (
    RecordBatch,
    UnreadableAnswerError,
    decode_batches,
    decode_lines,
)

WAIT: Final = "30s"
VIEW_RECORDS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Reading:
    """What a consumer asks of each topic. `offset`: where to begin; in a group, where it has no
    offset yet. `follow` False: up to the log end of the first answer."""

    offset: int | str
    view: Literal["latest"] | None
    group: str | None
    follow: bool
    max_bytes: int


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
    begin = reading.offset
    if reading.view is not None:
        async for page in _view(caller, topic, reading):
            yield page
            begin = page.next_offset
    end: int | None = None
    if commits is not None or not isinstance(begin, int):
        begin, end = await _begin(caller, topic, reading, commits)
    query: dict[str, object] = {
        "format": "batch",
        "max_records": limits.FETCH_RECORDS_MAX,
        "max_bytes": reading.max_bytes,
        "wait": WAIT if reading.follow else None,
    }
    while reading.follow or end is None or begin < end:
        answer = await caller.get(path_of("topics", topic, "records"), {**query, "offset": begin})
        reached = answer.number("seb-next-offset")
        log_end_offset = answer.number("seb-log-end-offset")
        if reached != begin:
            records = decode_batches(topic, answer.body, begin, reached)
            yield RecordBatch(topic, records, reached, log_end_offset)
        elif not reading.follow:
            return
        end = log_end_offset if end is None else end
        begin = reached


async def _begin(
    caller: Caller, topic: str, reading: Reading, commits: Commits | None
) -> tuple[int, int]:
    """The offset to begin at, and the log end. Asked for as JSON, because record batches begin
    where they were stored, which may be before it."""
    query: dict[str, object] = {"format": "json", "max_records": 1}
    if commits is None:
        answer = await caller.get(
            path_of("topics", topic, "records"), {**query, "offset": reading.offset}
        )
    else:
        path = path_of("groups", reading.group or "", "topics", topic, "records")
        answer = await caller.get(path, {**query, "default": reading.offset})
        commits.began(topic, answer)
    try:
        first = msgspec.json.decode(answer.body, type=_First)
    except msgspec.DecodeError as error:
        raise UnreadableAnswerError(f"the answer cannot be read ({error})") from error
    begin = first.records[0].offset if first.records else first.next_offset
    return begin, first.log_end_offset


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
