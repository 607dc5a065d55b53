"""Questions about record keys (docs/RECORD-KEYS.md). They are asked in a body: a record key may be
any bytes, and too long for a URL."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from seb_appliance import limits
from seb_appliance.addresses import path_of
from seb_appliance.client.calling import Caller
from seb_appliance.client.failures import ApplianceError
from seb_appliance.client.new_records import Data, bytes_of
from seb_appliance.client.records import (
    Record,
    Shown,
    UnreadableAnswerError,
    of_shown,
    timestamp_us,
)

T = TypeVar("T")

_LIMIT: Final = limits.KEYS_PER_PAGE_MAX


class RecordKey(msgspec.Struct, frozen=True, gc=False):
    """A record key, and where its newest record is. `timestamp_us`: µs since 1970, UTC."""

    key: bytes
    offset: int
    timestamp_us: int


class Found(NamedTuple, Generic[T]):
    """A page. `following`: asks for the next one; None at the end."""

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
    """Record keys that begin with `prefix`, behind `after`, as bytes in their order. Asking raises
    as `latest`."""

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
    """Every record of a record key that is still stored, below an offset, newest first. Asking
    raises as `latest`."""

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
