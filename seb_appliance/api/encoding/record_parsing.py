"""The records in the body of a produce request, by what its headers say it is.

Functions of a body alone, which run in a child process when the body is large (api/parsing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from seb_appliance.api.encoding.formats import BODY_FORMATS, BodyFormat
from seb_appliance.api.encoding.media_types import media_type
from seb_appliance.api.encoding.record_bodies import (
    batches_at,
    check_batches,
    parse_single,
    refuse_record_headers,
)
from seb_appliance.api.encoding.record_json import parse_json, parse_ndjson
from seb_appliance.api.encoding.trace_context import keep_traceparent
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.values import NewBatches, NewRecords
from seb_appliance.errors import UnsupportedMediaTypeError

BodyKind = Literal["single", "json", "ndjson", "batch"]

_KINDS: Final[dict[str, BodyKind]] = {
    "application/json": "json",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/vnd.seb.batch": "batch",
    "application/octet-stream": "single",
    "application/x-www-form-urlencoded": "single",  # what plain `curl -d` sends
    "": "single",
}
_SINGLE_FAMILIES: Final = ("text/", "image/")


def body_kind(content_type: bytes | None) -> BodyKind:
    """Raises UnsupportedMediaTypeError that says which would do."""
    named = media_type(content_type or b"")
    if named.startswith(_SINGLE_FAMILIES):
        return "single"
    if named not in _KINDS:
        raise UnsupportedMediaTypeError(
            f"{named[:100]!r} is not taken here. application/octet-stream, text/* and image/* make "
            "the body one record; application/json, application/x-ndjson and "
            "application/vnd.seb.batch hold many; so do CloudEvents.",
            supported=[*filter(None, _KINDS), *(t for f in BODY_FORMATS for t in f.media_types)],
        )
    return _KINDS[named]


async def parse_records(
    parser: Parser,
    owner: str,
    kind: BodyKind,
    body: bytes,
    headers: dict[bytes, bytes],
    max_bytes: int,
) -> NewRecords | NewBatches:
    """The records of a body of the API key `owner`. Raises what the parsers raise."""
    if kind == "single":
        return keep_traceparent(parse_single(body, headers), headers)
    refuse_record_headers(headers)
    if kind == "batch":
        return batches_at(body, await parser.parse(owner, check_batches, body, max_bytes))
    return await parser.parse(owner, _of_json, body, kind, headers)


async def parse_registered(
    parser: Parser,
    owner: str,
    body_format: BodyFormat,
    mode: str,
    body: bytes,
    headers: dict[bytes, bytes],
) -> tuple[NewRecords, Sequence[bytes]]:
    """The records, and what identifies each. Raises what the parsers raise."""
    refuse_record_headers(headers)
    return await parser.parse(owner, body_format.parse, body, mode, headers)


def _of_json(body: bytes, kind: BodyKind, headers: dict[bytes, bytes]) -> NewRecords:
    return keep_traceparent(parse_json(body) if kind == "json" else parse_ndjson(body), headers)
