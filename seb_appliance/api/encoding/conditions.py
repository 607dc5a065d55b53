"""Headers that make a write safe to repeat, or conditional: Idempotency-Key, Producer-*, If-Match.

Repeats are told by hashes: of who asks for what under which Idempotency-Key, and of all that a
request says, so that another request under the same key is found out.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.api.encoding import plain_bodies
from seb_appliance.api.encoding.parameters import integer
from seb_appliance.api.server.auth import Call
from seb_appliance.broker.append.appends import NO_CONDITIONS, Conditions
from seb_appliance.broker.append.deduplication import ProducerStamp, RequestStamp
from seb_appliance.broker.append.retry_results import owner_hash
from seb_appliance.broker.values import NewRecords
from seb_appliance.errors import BadParameterError

IDEMPOTENCY_KEY: Final = b"idempotency-key"
_PRODUCER_ID: Final = b"producer-id"
_PRODUCER: Final = (_PRODUCER_ID, b"producer-epoch", b"producer-seq")
_CHECKSUM: Final = b"producer-checksum"
_IF_MATCH: Final = b"if-match"
UNDERSTOOD: Final = frozenset({IDEMPOTENCY_KEY, *_PRODUCER, _CHECKSUM, _IF_MATCH})
_OF_EVENTS: Final = b"CloudEvents"  # tells their hashes from those of an Idempotency-Key
_VISIBLE: Final = re.compile(rb"[\x21-\x7e]+")
_ETAG: Final = re.compile(rb'"([0-9]{1,16})"')
_HASH_BYTES: Final = 16
_HASH_IN_THREAD_BYTES: Final = 64 * limits.KIB


@dataclass(frozen=True, slots=True)
class Asked:
    """The conditions of a request, before its body is read."""

    idempotency_key: bytes | None = None
    producer: ProducerStamp | None = None
    expected_offset: int | None = None

    async def conditions(self, call: Call, route: str, body: bytes) -> Conditions:
        """`route`: what the Idempotency-Key counts for, beside the API key."""
        if self == _NOTHING:
            return NO_CONDITIONS
        request = await stamp(self.idempotency_key, call, route, body)
        return Conditions(request, self.producer, self.expected_offset)

    async def of_events(
        self, call: Call, route: str, body: bytes, records: NewRecords, named: Iterable[bytes]
    ) -> Conditions:
        """Of CloudEvents, which tell repeats by themselves unless the request does: the same
        source and id (`named`, of each in order) with the same content is the same request."""
        if self.idempotency_key is not None or self.producer is not None:
            return await self.conditions(call, route, body)
        said = _stored(records)
        if len(body) > _HASH_IN_THREAD_BYTES:
            content = await asyncio.to_thread(_hash, said)
        else:
            content = _hash(said)
        scopes = _scopes(call, route, _OF_EVENTS, *named)
        return Conditions(RequestStamp(*scopes, content), None, self.expected_offset)


_NOTHING: Final = Asked()


def read_conditions(call: Call) -> Asked:
    """Raises BadParameterError."""
    if not call.query and not UNDERSTOOD & call.headers.keys():
        return _NOTHING
    key, producer = idempotency_key(call), producer_of(call.headers, call.key.api_key_id)
    if key is not None and producer is not None:
        raise BadParameterError(
            "Send either Idempotency-Key or the three Producer headers, not both."
        )
    return Asked(key, producer, _expected_offset(call))


def idempotency_key(call: Call) -> bytes | None:
    """Raises BadParameterError."""
    most = limits.IDEMPOTENCY_KEY_CHARACTERS_MAX
    return _visible(call.headers.get(IDEMPOTENCY_KEY), "Idempotency-Key", most)


async def stamp(key: bytes | None, call: Call, route: str, body: bytes) -> RequestStamp | None:
    """The identity of a request with an Idempotency-Key; None if it has none."""
    if key is None:
        return None
    said = [body, *_that_matter(call)]
    scopes = _scopes(call, route, key)
    if len(body) > _HASH_IN_THREAD_BYTES:
        return RequestStamp(*scopes, await asyncio.to_thread(_hash, said))
    return RequestStamp(*scopes, _hash(said))


def _scopes(call: Call, route: str, *parts: bytes) -> tuple[bytes, bytes]:
    """What the request is remembered by: the hash that owns it, then one of the API key, the route
    and `parts`; and what older releases remembered it by, which was the latter alone."""
    api_key_id = call.key.api_key_id
    alone = _hash([api_key_id.encode(), route.encode(), *parts])
    owner = owner_hash(api_key_id)
    return owner + alone[: len(alone) - len(owner)], alone


def _stored(records: NewRecords) -> Iterable[bytes]:
    """What is stored of CloudEvents, in whichever mode they came. Headers hold all but the data."""
    assert records.headers is not None
    for value, headers in zip(records.values, records.headers, strict=True):
        yield value or b""
        yield headers


def _that_matter(call: Call) -> Iterable[bytes]:
    """Names and values of the headers and parameters that belong to what is stored."""
    query, headers = call.query, call.headers
    named = f"{query.get('keep_headers', '')},{query.get('key_header', '')}".lower().encode()
    kept = {name.strip() for name in named.split(b",")}
    for name in sorted(headers):
        matters = name.startswith((b"seb-", b"ce-")) and name != b"seb-timeout"
        if matters or name == b"content-type" or name in kept:
            yield name
            yield headers[name]
    for parameter in plain_bodies.PARAMETERS:
        if parameter in query:
            yield parameter.encode()
            yield query[parameter].encode()


def _hash(parts: Iterable[bytes]) -> bytes:
    """Of the parts and where they end."""
    made = hashlib.blake2b(digest_size=_HASH_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.digest()


def producer_of(headers: dict[bytes, bytes], owner: str) -> ProducerStamp | None:
    """The Producer headers of a request of the API key `owner`. Raises BadParameterError."""
    given = [name for name in _PRODUCER if name in headers]
    checksum = headers.get(_CHECKSUM)
    if not given and checksum is None:
        return None
    if len(given) < len(_PRODUCER):
        raise BadParameterError("Send Producer-Id, Producer-Epoch and Producer-Seq together.")
    name, epoch, seq = (headers[name] for name in _PRODUCER)
    checked = _visible(name, "Producer-Id", limits.NAME_LENGTH_MAX)
    assert checked is not None
    return ProducerStamp.of(
        checked.decode("ascii"),
        owner,
        _number(epoch, "Producer-Epoch"),
        _number(seq, "Producer-Seq"),
        None if checksum is None else _number(checksum, "Producer-Checksum"),
    )


def _number(text: bytes, name: str) -> int:
    return integer(text.decode("latin-1"), name, smallest=0, largest=limits.OFFSET_MAX)


def _visible(text: bytes | None, name: str, most: int) -> bytes | None:
    if text is not None and (len(text) > most or not _VISIBLE.fullmatch(text)):
        raise BadParameterError(f"{name} must have 1 to {most} visible ASCII characters.")
    return text


def _expected_offset(call: Call) -> int | None:
    tag, asked = call.headers.get(_IF_MATCH), call.query.get("expected_offset")
    if tag is None:
        if asked is None:
            return None
        return integer(asked, "expected_offset", smallest=0, largest=limits.OFFSET_MAX)
    if asked is not None:
        raise BadParameterError("Send If-Match or expected_offset, not both.")
    found = _ETAG.fullmatch(tag)
    if found is None:
        raise BadParameterError(
            'If-Match must be the log end offset in quotes, such as If-Match: "17".'
        )
    return integer(found[1].decode(), "If-Match", smallest=0, largest=limits.OFFSET_MAX)
