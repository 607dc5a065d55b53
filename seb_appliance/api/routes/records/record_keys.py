"""`/v1/topics/{topic}/keys…`: which record keys there are, the newest record of one, its history,
and a tombstone for it.

A record key holds any bytes, so it travels in the query (or in the body of a POST, which asks the
same), never in the path.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from litestar import delete, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp
from msgspec import UNSET, UnsetType

from seb_appliance.api.encoding import conditions, parameters
from seb_appliance.api.encoding.answers import JSON, RAW, Answer, Headers, json_line
from seb_appliance.api.encoding.json_bodies import read_json
from seb_appliance.api.encoding.media_types import negotiate
from seb_appliance.api.encoding.record_encoding import VALUE_SHAPES, RecordOut, records
from seb_appliance.api.encoding.times import format_time
from seb_appliance.api.routes.records.consume import held, raw_answer
from seb_appliance.api.routes.records.key_parameters import (
    HistoryQuestion,
    KeysQuestion,
    LatestQuestion,
    check_numbers,
    history_question,
    key_bytes,
    keys_question,
    latest_question,
    optional_bytes,
)
from seb_appliance.api.routes.records.produce import produced, timeout_ms
from seb_appliance.api.server.auth import AnyRequest, Call, enter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.record_keys.key_index import KeyRow
from seb_appliance.broker.record_keys.queries import KeyedRecords
from seb_appliance.broker.values import NewRecords

T = TypeVar("T", bound=msgspec.Struct)

KEYS_QUERY: Final = frozenset(KeysQuestion.__struct_fields__)
LATEST_QUERY: Final = frozenset(LatestQuestion.__struct_fields__)
HISTORY_QUERY: Final = frozenset(HistoryQuestion.__struct_fields__)
TOMBSTONE_QUERY: Final = frozenset({"key", "key_base64"})
_ONE: Final = (JSON.decode(), RAW.decode())
_VARY: Final = (b"vary", b"Accept, Accept-Encoding, Authorization")

_keys_decoder: Final = msgspec.json.Decoder(KeysQuestion)
_latest_decoder: Final = msgspec.json.Decoder(LatestQuestion)
_history_decoder: Final = msgspec.json.Decoder(HistoryQuestion)


class KeyOut(msgspec.Struct):
    """A record key and its newest record. `key` is null, and `key_base64` stands beside it, where
    the bytes are no UTF-8."""

    key: str | None
    offset: int
    timestamp: str
    key_base64: bytes | UnsetType = UNSET


class KeysOut(msgspec.Struct):
    """Record keys as bytes in their order. Ask for the next page with `after` (or `after_base64`)
    = `next_after` (or `next_after_base64`); both are null at the end."""

    topic: str
    topic_id: int
    keys: list[KeyOut]
    next_after: str | None
    next_after_base64: bytes | None
    indexed_offset: int


class LatestOut(msgspec.Struct):
    """True as of `indexed_offset`: records from there on were not looked at."""

    topic: str
    topic_id: int
    record: RecordOut
    indexed_offset: int


class HistoryOut(msgspec.Struct):
    """Newest first, tombstones too. Ask for the next page with `before` = `next_before`; null at
    the end."""

    topic: str
    topic_id: int
    records: list[RecordOut]
    next_before: int | None
    indexed_offset: int


def _key_out(row: KeyRow) -> KeyOut:
    text, binary = _text_or_bytes(row.key)
    timestamp = format_time(row.timestamp_us)
    return KeyOut(text, row.offset, timestamp, UNSET if binary is None else binary)


def _text_or_bytes(key: bytes | None) -> tuple[str | None, bytes | None]:
    if key is None:
        return None, None
    try:
        return key.decode(), None
    except UnicodeDecodeError:
        return None, key


async def _list(broker: Broker, call: Call, topic: str, asked: KeysQuestion) -> Answer:
    check_numbers(asked)
    prefix = optional_bytes(asked.prefix, asked.prefix_base64, "prefix") or b""
    after = optional_bytes(asked.after, asked.after_base64, "after")
    page = await broker.record_keys.keys(topic, prefix, after, asked.limit, fresh=asked.fresh)
    keys = [_key_out(row) for row in page.rows]
    next_after, next_after_base64 = _text_or_bytes(page.next_after)
    told = KeysOut(topic, page.topic_id, keys, next_after, next_after_base64, page.indexed_offset)
    return _told(broker, call, told, page.indexed_offset)


async def _latest(broker: Broker, call: Call, topic: str, asked: LatestQuestion) -> Answer:
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
    return _told(broker, call, latest, found.indexed_offset)


async def _history(broker: Broker, call: Call, topic: str, asked: HistoryQuestion) -> Answer:
    check_numbers(asked)
    key = key_bytes(asked.key, asked.key_base64)
    shape = parameters.choice(asked.values, "values", VALUE_SHAPES)
    found: KeyedRecords = await broker.record_keys.history(
        topic, key, asked.before, asked.limit, fresh=asked.fresh
    )
    newest_first = list(records(found.result, shape))[::-1]
    topic_id = found.result.topic_id
    history = HistoryOut(topic, topic_id, newest_first, found.next_before, found.indexed_offset)
    return _told(broker, call, history, found.indexed_offset)


def _indexed(offset: int) -> tuple[bytes, bytes]:
    return b"seb-indexed-offset", str(offset).encode()


def _told(broker: Broker, call: Call, content: Any, indexed_offset: int) -> Answer:
    headers: Headers = [(b"content-type", JSON), _indexed(indexed_offset), _VARY]
    return held(broker, call, headers, [json_line(content)])


async def _delete(broker: Broker, request: AnyRequest, call: Call, topic: str) -> Answer:
    """A tombstone is a record like any other: admitted, stored and acknowledged as one."""
    key = key_bytes(call.query.get("key"), call.query.get("key_base64"))
    parameters.refuse_unsupported(call.headers, conditions.UNDERSTOOD)
    asked = conditions.read_conditions(call)
    deadline_ms = timeout_ms(call.headers)
    agreed = await asked.conditions(call, request.scope["path"], b"tombstone of " + key)
    broker.topics.get(topic)  # a tombstone makes no topic
    appended = await broker.appends.append(
        call.key,
        topic,
        NewRecords([None], keys=[key]),
        broker.pending.reserve(call.owner, len(key)),
        deadline_ms,
        agreed,
        address=call.address,
    )
    _, headers, body = produced(appended, agreed)
    return Answer(200, headers, body)


def routes(broker: Broker) -> list[HTTPRouteHandler]:
    def entered(request: AnyRequest, known: frozenset[str], grant: str) -> tuple[Call, str]:
        call = enter(request, broker, known)
        topic: str = request.scope["path_params"]["topic"]
        broker.authorize(call.key, grant, topic)
        return call, topic

    @get("/v1/topics/{topic:str}/keys")
    async def list_keys(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, KEYS_QUERY, "consume")
        return await _list(broker, call, topic, keys_question(call.query))

    @post("/v1/topics/{topic:str}/keys", status_code=200)
    async def find_keys(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, frozenset(), "consume")
        asked = await read_json(request, call, broker, _keys_decoder)
        return await _list(broker, call, topic, asked)

    @get("/v1/topics/{topic:str}/keys/latest")
    async def get_latest(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, LATEST_QUERY, "consume")
        return await _latest(broker, call, topic, latest_question(call.query))

    @post("/v1/topics/{topic:str}/keys/latest", status_code=200)
    async def find_latest(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, frozenset(), "consume")
        asked = await read_json(request, call, broker, _latest_decoder)
        return await _latest(broker, call, topic, asked)

    @get("/v1/topics/{topic:str}/keys/history")
    async def get_history(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, HISTORY_QUERY, "consume")
        return await _history(broker, call, topic, history_question(call.query))

    @post("/v1/topics/{topic:str}/keys/history", status_code=200)
    async def find_history(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, frozenset(), "consume")
        asked = await read_json(request, call, broker, _history_decoder)
        return await _history(broker, call, topic, asked)

    @delete("/v1/topics/{topic:str}/keys", status_code=200)
    async def delete_key(request: AnyRequest) -> ASGIApp:
        call, topic = entered(request, TOMBSTONE_QUERY | conditions.QUERY, "produce")
        return await _delete(broker, request, call, topic)

    return [
        list_keys,
        find_keys,
        get_latest,
        find_latest,
        get_history,
        find_history,
        delete_key,
    ]
