"""How one topic is read: the newest record of each record key first, if asked for, then the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from seb_appliance import limits
from seb_appliance.client.calling import Caller
from seb_appliance.client.commits import Commits
from seb_appliance.client.exchange import Answer, path_of
from seb_appliance.client.records import RecordBatch, decode_batches, decode_lines

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


async def batches(
    caller: Caller, topic: str, reading: Reading, commits: Commits | None
) -> AsyncIterator[RecordBatch]:
    """Raises ApplianceError, UnreadableAnswerError."""
    begin: int | str = reading.offset
    if reading.view is not None:
        async for page in _view(caller, topic, reading):
            yield page
            begin = page.next_offset
    query: dict[str, object] = {
        "format": "batch",
        "max_records": limits.FETCH_RECORDS_MAX,
        "max_bytes": reading.max_bytes,
        "wait": WAIT if reading.follow else None,
    }
    end: int | None = None
    if commits is not None:
        path = path_of("groups", reading.group or "", "topics", topic, "records")
        # Where the group stands is asked without waiting: it may be told at the log end, too.
        first = {**query, "default": begin, "wait": None}
        answer = await caller.get(path, first)
        commits.began(topic, answer)
        batch = _batch(topic, answer, 0)
        yield batch
        begin, end = batch.next_offset, batch.log_end_offset
        if not reading.follow and begin >= end:
            return
    while True:
        answer = await caller.get(path_of("topics", topic, "records"), {**query, "offset": begin})
        batch = _batch(topic, answer, begin if isinstance(begin, int) else 0)
        end = batch.log_end_offset if end is None else end
        moved = batch.next_offset != begin
        begin = batch.next_offset
        if moved:
            yield batch
        if not reading.follow and (begin >= end or not moved):
            return


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


def _batch(topic: str, answer: Answer, begin: int) -> RecordBatch:
    reached = answer.number("seb-next-offset")
    return RecordBatch(
        topic,
        decode_batches(topic, answer.body, begin, reached),
        reached,
        answer.number("seb-log-end-offset"),
    )
