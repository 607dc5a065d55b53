"""`/v1/topics/{topic}/keys…`: which record keys there are, the newest record of one, its history,
and a tombstone for it.

A record key holds any bytes, so it travels in the query (or in the body of a POST, which asks the
same), never in the path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from seb_appliance import limits
from seb_appliance.api.encoding import conditions, parameters
from seb_appliance.api.encoding.answers import JSON, RAW, Answer, Headers, format_time, json_line
from seb_appliance.api.encoding.formats import negotiate
from seb_appliance.api.encoding.record_encoding import (
    VALUE_SHAPES,
    PartEncoder,
    RecordOut,
    framed,
    record_parts,
    records,
)
from seb_appliance.api.openapi.parameters import (
    RECORD_KEY,
    SAFE_APPEND,
    TIMEOUT,
    VALUES,
    Json,
    query,
)
from seb_appliance.api.openapi.shared import (
    BYTES,
    DURABILITY_HEADER,
    RECORD,
    REPLAYED_HEADER,
    SAFE_APPEND_ERRORS,
    TIME,
)
from seb_appliance.api.routes.records.by_key import (
    HistoryQuestion,
    KeysQuestion,
    LatestQuestion,
    check_numbers,
    key_bytes,
    optional_bytes,
    question,
)
from seb_appliance.api.routes.records.consume import raw_answer
from seb_appliance.api.routes.records.produce import Produced, produced, timeout_ms
from seb_appliance.api.routes.records.reading import VARY, encoded
from seb_appliance.api.routes.route import (
    Content,
    ErrorTypes,
    Reply,
    RequestContext,
    Route,
    json_body,
    json_reply,
    route,
)
from seb_appliance.broker.record_keys.queries import KeyedRecords
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import (
    CorruptObjectError,
    KeyIndexOffError,
    NotAcceptableError,
    RecordKeyNotFoundError,
    RecordTooLargeError,
    StoreUnavailableError,
    TopicNotFoundError,
)
from seb_appliance.formats.columns import Bytes

_ONE: Final = (JSON.decode(), RAW.decode())


class KeyOut(msgspec.Struct):
    """A record key and its newest record. If the key is not UTF-8, `key` is null and `key_base64`
    has the bytes."""

    key: str | None
    offset: int
    timestamp: str
    key_base64: bytes | UnsetType = UNSET


class KeysOut(msgspec.Struct):
    """Record keys in the order of their bytes. Send `next_after` as `after` (or `next_after_base64`
    as `after_base64`) to get the next page; both are null on the last page."""

    topic: str
    topic_id: int
    keys: list[KeyOut]
    next_after: str | None
    next_after_base64: bytes | None
    indexed_offset: int


class LatestOut(msgspec.Struct):
    """Correct up to `indexed_offset`: later records are not indexed yet."""

    topic: str
    topic_id: int
    record: RecordOut
    indexed_offset: int


class HistoryOut(msgspec.Struct):
    """Newest first, including tombstones. Send `next_before` as `before` to get the next page; null
    on the last page."""

    topic: str
    topic_id: int
    records: list[RecordOut]
    next_before: int | None
    indexed_offset: int


def _text_or_bytes(key: bytes | None) -> tuple[str | None, bytes | None]:
    if key is None:
        return None, None
    try:
        return key.decode(), None
    except UnicodeDecodeError:
        return None, key


async def _list(ctx: RequestContext, asked: KeysQuestion) -> Answer:
    broker, topic = ctx.broker, ctx.topic
    check_numbers(asked)
    prefix = optional_bytes(asked.prefix, asked.prefix_base64, "prefix") or b""
    after = optional_bytes(asked.after, asked.after_base64, "after")
    page = await broker.record_keys.keys(topic, prefix, after, asked.limit, fresh=asked.fresh)
    keys: list[KeyOut] = []
    for row in page.rows:
        text, binary = _text_or_bytes(row.key)
        timestamp = format_time(row.timestamp_us)
        keys.append(KeyOut(text, row.offset, timestamp, UNSET if binary is None else binary))
    next_after, next_after_base64 = _text_or_bytes(page.next_after)
    listed = KeysOut(topic, page.topic_id, keys, next_after, next_after_base64, page.indexed_offset)
    return await _answer(ctx, page.indexed_offset, [json_line(listed)])


async def _latest(ctx: RequestContext, asked: LatestQuestion) -> Answer:
    broker, call, topic = ctx.broker, ctx.call, ctx.topic
    key = key_bytes(asked.key, asked.key_base64)
    shape = parameters.choice(asked.values, "values", VALUE_SHAPES)
    chosen = negotiate(call.headers.get(b"accept"), _ONE)
    found = await broker.record_keys.latest(topic, key, fresh=asked.fresh)
    if chosen == RAW.decode():
        answer = raw_answer(broker, call, found.result)
        answer.headers.append(_indexed(found.indexed_offset))
        return answer
    record = next(iter(records(found.result, shape)))
    topic_id = found.result.topic_id
    latest = LatestOut(topic, topic_id, record, found.indexed_offset)
    encoder = PartEncoder()
    parts = encoder.pieces(encoder.encode(latest) + b"\n")
    return await _answer(ctx, found.indexed_offset, parts)


async def _history(ctx: RequestContext, asked: HistoryQuestion) -> Answer:
    broker, topic = ctx.broker, ctx.topic
    check_numbers(asked)
    key = key_bytes(asked.key, asked.key_base64)
    shape = parameters.choice(asked.values, "values", VALUE_SHAPES)
    found: KeyedRecords = await broker.record_keys.history(
        topic, key, asked.before, asked.limit, fresh=asked.fresh
    )
    topic_id = found.result.topic_id
    history = HistoryOut(topic, topic_id, [], found.next_before, found.indexed_offset)
    newest_first = [part[::-1] for part in record_parts(found.result, shape)][::-1]
    return await _answer(ctx, found.indexed_offset, framed(history, newest_first))


def _indexed(offset: int) -> tuple[bytes, bytes]:
    return b"seb-indexed-offset", str(offset).encode()


async def _answer(ctx: RequestContext, indexed_offset: int, parts: Iterable[Bytes]) -> Answer:
    headers: Headers = [(b"content-type", JSON), _indexed(indexed_offset), VARY]
    return await encoded(ctx.broker, ctx.call, headers, parts)


_ERRORS: Final[ErrorTypes] = (
    TopicNotFoundError,
    KeyIndexOffError,
    RecordTooLargeError,
    CorruptObjectError,
    StoreUnavailableError,
)
_FRESH: Final = query(
    "fresh",
    f"Wait until the index has reached the log end, {limits.KEY_INDEX_FRESH_S} s at most.",
    type="string",
    enum=["true", "false"],
    default="false",
)
_LIMIT: Final = query(
    "limit",
    "At most so many.",
    type="integer",
    minimum=1,
    maximum=limits.KEYS_PER_PAGE_MAX,
    default=limits.KEYS_PER_PAGE_DEFAULT,
)
_KEYS: Final[list[Json]] = [
    query("prefix", "Only record keys with this prefix.", "customer-"),
    query("prefix_base64", "Like `prefix`, as base64, for any bytes."),
    query("after", "Only record keys after this one: `next_after` of the previous page."),
    query("after_base64", "Like `after`, as base64, for any bytes."),
    _LIMIT,
    _FRESH,
]
_LATEST: Final[list[Json]] = [*RECORD_KEY, VALUES, _FRESH]
_HISTORY: Final[list[Json]] = [
    *_LATEST,
    query(
        "before",
        "Only records below this offset: `next_before` of the previous page.",
        type="integer",
        minimum=0,
        maximum=limits.OFFSET_MAX,
    ),
    _LIMIT,
]
_TRUE_UP_TO: Final = "The answer takes into account the records below `indexed_offset`."
_INDEXED: Final = {
    "Seb-Indexed-Offset": "The answer takes into account the records below this offset."
}
_KEYS_REPLY: Final = json_reply(
    KeysOut,
    {
        "topic": "orders.eu",
        "topic_id": 3,
        "keys": [{"key": "customer-7", "offset": 17, "timestamp": TIME}],
        "next_after": None,
        "next_after_base64": None,
        "indexed_offset": 18,
    },
    "Record keys, perhaps none",
    headers=_INDEXED,
)
_LATEST_REPLY: Final = {
    200: Reply(
        description="The newest record of the record key",
        content={
            "application/json": Content(
                struct=LatestOut,
                example={
                    "topic": "orders.eu",
                    "topic_id": 3,
                    "record": RECORD,
                    "indexed_offset": 18,
                },
            ),
            "application/octet-stream": Content(schema=BYTES),
        },
        headers=_INDEXED,
    ),
    304: Reply(description="Raw: the client already has this value (If-None-Match)"),
}
_HISTORY_REPLY: Final = json_reply(
    HistoryOut,
    {
        "topic": "orders.eu",
        "topic_id": 3,
        "records": [RECORD],
        "next_before": None,
        "indexed_offset": 18,
    },
    "Records of the record key, newest first",
    headers=_INDEXED,
)


def _both_ways(
    path: str,
    names: tuple[str, str],
    summary: str,
    description: str,
    parameters: list[Json],
    body: Mapping[str, Content],
    answer: Callable[[RequestContext, Any], Awaitable[Answer]],
    **declared: Any,
) -> list[Route]:
    """The same question as GET, from the query, and as POST, from a JSON body."""
    declared = {"tag": "Record keys", "grant": "consume", **declared}

    @route(
        "GET",
        path,
        names[0],
        summary=summary,
        description=description,
        parameters=parameters,
        **declared,
    )
    async def get(ctx: RequestContext) -> object:
        return await answer(ctx, question(body[JSON.decode()].struct, ctx.call.query))

    @route(
        "POST",
        path,
        names[1],
        summary=f"{summary.partition(',')[0]}, asked in a body",
        description="The same question as GET, for record keys that are too long for a URL.",
        body=body,
        body_required=path.endswith(("latest", "history")),
        **declared,
    )
    async def find(ctx: RequestContext) -> object:
        return await answer(ctx, ctx.body)

    return [get, find]


_QUESTIONS: Final = [
    *_both_ways(
        "/v1/topics/{topic}/keys",
        ("listRecordKeys", "findRecordKeys"),
        "List record keys",
        "In the order of their bytes. Record keys whose newest record is a tombstone are left "
        f"out. {_TRUE_UP_TO}",
        _KEYS,
        json_body(KeysQuestion, {"prefix": "customer-"}),
        _list,
        replies=_KEYS_REPLY,
        errors=_ERRORS,
    ),
    *_both_ways(
        "/v1/topics/{topic}/keys/latest",
        ("getLatestOfRecordKey", "findLatestOfRecordKey"),
        "Read the newest record of a record key",
        "404 if there is no record, or if it is a tombstone. The answer is JSON, or the raw "
        f"value with `Accept: application/octet-stream`. {_TRUE_UP_TO}",
        _LATEST,
        json_body(LatestQuestion, {"key": "customer-7"}),
        _latest,
        replies=_LATEST_REPLY,
        errors=(*_ERRORS, RecordKeyNotFoundError, NotAcceptableError),
    ),
    *_both_ways(
        "/v1/topics/{topic}/keys/history",
        ("getHistoryOfRecordKey", "findHistoryOfRecordKey"),
        "Read the records of a record key, newest first",
        "Every record that is still stored, including tombstones. The topic needs `key_index` "
        f"`history`. {_TRUE_UP_TO}",
        _HISTORY,
        json_body(HistoryQuestion, {"key": "customer-7"}),
        _history,
        replies=_HISTORY_REPLY,
        errors=_ERRORS,
    ),
]


@route(
    "DELETE",
    "/v1/topics/{topic}/keys",
    "deleteRecordKey",
    tag="Record keys",
    summary="Append a tombstone for a record key",
    description="A tombstone is a record with this record key and a null value. It is stored and "
    "acknowledged like any other record. Needs the grant `produce`.",
    parameters=[
        *RECORD_KEY,
        *SAFE_APPEND,
        TIMEOUT,
    ],
    replies=json_reply(
        Produced,
        {
            "topic": "orders.eu",
            "topic_id": 3,
            "offset": 18,
            "count": 1,
            "last_offset": 18,
            "timestamp": TIME,
        },
        "Stored",
        headers={**DURABILITY_HEADER, **REPLAYED_HEADER},
    ),
    errors=SAFE_APPEND_ERRORS,
    grant="produce",
)
async def delete_key(ctx: RequestContext) -> object:
    """A tombstone is a record like any other: admitted, stored and acknowledged as one."""
    broker, call = ctx.broker, ctx.call
    key = key_bytes(call.query.get("key"), call.query.get("key_base64"))
    asked = conditions.read_conditions(call)
    deadline_ms = timeout_ms(call.headers)
    path = ctx.request.scope["path"]
    agreed = await asked.conditions(call, path, b"tombstone of " + key)
    broker.topics.get(ctx.topic)  # a tombstone creates no topic
    appended = await broker.appends.append(
        call.key,
        ctx.topic,
        NewRecords([None], keys=[key]),
        broker.pending.reserve(call.owner, len(key)),
        deadline_ms,
        agreed,
        address=call.address,
    )
    _, headers, body = produced(appended, agreed)
    return Answer(200, headers, body)


ROUTES: Final = [*_QUESTIONS, delete_key]
