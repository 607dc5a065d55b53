"""How one topic is read: the newest record of each record key first, if asked for, then the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.exchange import Answer
from seb_appliance.client.leasing import Commits
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
    """What a consumer asks of each topic. `offset`: where to begin; in a group, where it has none
    yet. `follow` False: up to the log end of the first answer, or `until` (exclusive: an
    offset or `@time`). `most`: at most so many records; None: all."""

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
    """Records of the topic that had the name `topic` when it was first asked. Each answer is held
    to that one, so that nobody goes on in another that was made since under its name."""

    def __init__(self, caller: Caller, topic: str) -> None:
        self.topic = topic
        self._caller = caller
        self._topic_id: str | None = None

    async def get(self, query: Mapping[str, object], group: str | None = None) -> Answer:
        """Raises ApplianceError, TopicReplacedError."""
        named = ("topics", self.topic, "records")
        path = path_of(*named) if group is None else path_of("groups", group, *named)
        answer = await self._caller.get(path, {**query, "topic_id": self._topic_id})
        self._topic_id = answer.headers.get("seb-topic-id")  # an older appliance may not tell it
        return answer


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
