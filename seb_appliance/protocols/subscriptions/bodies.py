"""What a request of a subscription holds: its body, its headers, its id."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from seb_appliance import __version__, limits
from seb_appliance.api.encoding.record_encoding import RecordOut, listed, record_parts
from seb_appliance.api.encoding.record_json import text_of
from seb_appliance.broker.queues.takers import Lent, Taken
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.values import ReadResult
from seb_appliance.protocols.cloud_events import (
    BATCHED,
    CONTENT_TYPE_HEADER,
    STRUCTURED,
    event_parts,
    guessed_type,
    one_event,
)
from seb_appliance.protocols.inlets.verifying import sign_standard
from seb_appliance.protocols.subscriptions.settings import Shape

_JSON: Final = "application/json"
_CONTENT_TYPE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,198}[\x21-\x7e])?")
_HASHED_HERE_BYTES: Final = 256 * limits.KIB
_unpack: Final = msgspec.msgpack.Decoder(dict[str, bytes]).decode


@dataclass(frozen=True, slots=True)
class Place:
    """Which record a request begins with."""

    topic: str
    offset: int


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes
    content_type: str


class RecordPushed(RecordOut, kw_only=True):
    """A record as in RecordOut, with its topic. `attempt`: 1 for the first time."""

    topic: str
    attempt: int


def offsets_of(taken: Sequence[Lent]) -> Iterator[tuple[int, int]]:
    """Topic id and offset of each record."""
    for one in taken:
        for offset in one.offsets:
            yield one.topic.topic_id, offset


def id_of(bucket_id: bytes, queue: str, taken: Sequence[Taken]) -> str:
    """The same for the same records, whenever and however often they are sent. Their timestamps are
    part of it: after a restore as of an earlier time, others get the same offsets, and receivers
    ignore an id that they know."""
    digest = hashlib.sha256(bucket_id + queue.encode())
    for one in taken:
        times = one.piece.batch.columns.timestamps_us[one.piece.begin : one.piece.end]
        for offset, timestamp_us in zip(one.offsets, times, strict=True):
            digest.update(b"/%d/%d/%d" % (one.topic.topic_id, offset, timestamp_us))
    return "msg_" + digest.hexdigest()[:32]


def first_of(taken: Sequence[Lent]) -> Place:
    return Place(taken[0].topic.name, taken[0].offsets[0])


async def body_of(shape: Shape, taken: Sequence[Taken], reservation: Reservation) -> Body:
    """Encoded a millisecond at a time, in the share of `reservation`. Raises ShareExceededError,
    OverloadedError."""
    if shape == "value":
        body = _value(taken[0])
        reservation.grow(len(body.content))
        return body
    if shape == "event":
        made, content_type = one_event(_result(taken[0])), STRUCTURED
    elif shape == "events":
        made, content_type = event_parts(*map(_result, taken)), BATCHED
    else:
        made, content_type = listed(_records(taken), b'{"records":[', b"]}"), _JSON
    parts = []
    for part in made:
        reservation.grow(len(part))
        parts.append(part)
        await asyncio.sleep(0)
    return Body(b"".join(parts), content_type)


def _result(one: Taken) -> ReadResult:
    return ReadResult(one.topic.name, one.topic.topic_id, [one.piece], 0, 0, 0)


def _value(one: Taken) -> Body:
    columns, row = one.piece.batch.columns, one.piece.begin
    value = columns.values.get(row) or b""
    packed = None if columns.headers is None else columns.headers.get(row)
    said = text_of(_unpack(packed).get(CONTENT_TYPE_HEADER, b"")) if packed else None
    if not said or not _CONTENT_TYPE.fullmatch(said):
        said = guessed_type(value)
    return Body(value, said)


def _records(taken: Sequence[Taken]) -> Iterator[list[RecordPushed]]:
    for one in taken:
        deliveries = iter(one.deliveries)
        for part in record_parts(_result(one), "text"):
            yield [
                RecordPushed(
                    *msgspec.structs.astuple(record),
                    topic=one.topic.name,
                    attempt=next(deliveries).attempt,
                )
                for record in part
            ]


async def head_of(
    name: str, secrets: Sequence[str], at_s: int, body: Body, more: Mapping[str, str]
) -> bytes:
    """The signed headers. `name`: the id; `more`: those of the subscription, and of the record."""
    sign = partial(sign_standard, secrets, name, at_s, body.content)
    is_large = len(body.content) > _HASHED_HERE_BYTES
    signatures = await asyncio.to_thread(sign) if is_large else sign()
    headers = {
        "User-Agent": f"Seb-Appliance/{__version__}",
        "Content-Type": body.content_type,
        "webhook-id": name,
        "webhook-timestamp": str(at_s),
        "webhook-signature": b" ".join(signatures).decode(),
        **more,
    }
    return "".join(f"{header}: {value}\r\n" for header, value in headers.items()).encode("ascii")
