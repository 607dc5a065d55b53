"""Places in many topics: the next offset in each, as a cursor, and where a read of them begins.

A topic that a place does not name is read from its log start: it was made later, or may only now be
read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seb_appliance import limits
from seb_appliance.api import parameters
from seb_appliance.api.auth import Call
from seb_appliance.api.records.consume import value_shape
from seb_appliance.api.records.encode_json import RecordOut, ValueShape
from seb_appliance.broker.names import check_pattern
from seb_appliance.broker.patterns import Patterns
from seb_appliance.broker.topic import Topic
from seb_appliance.errors import BadParameterError, OffsetExpiredError, OffsetOutOfRangeError

QUERY: Final = frozenset({"topics", "offset", "cursor", "max_records", "values", "format"})
STARTS: Final = ("earliest", "latest")
_CURSOR: Final = re.compile(r"[0-9]{1,16}-[0-9]{1,16}(?:\.[0-9]{1,16}-[0-9]{1,16})*")
_NOWHERE: Final = "0-0"  # no topic has the id 0


class FollowedRecordOut(RecordOut, kw_only=True):
    """A record of a stream of many topics."""

    topic: str


@dataclass(frozen=True, slots=True)
class ManyRequest:
    """`place`: next offset by topic id, of those that are known; the others begin at `latest` or
    at their log start. `most`: so many records, then the stream ends; None: it does not."""

    patterns: Patterns
    place: Mapping[int, int]
    latest: bool
    most: int | None
    shape: ValueShape


def patterns_of(text: str) -> Patterns:
    """Of `orders.*,iot.**`. Raises BadParameterError."""
    patterns = text.split(",")
    if len(patterns) > limits.PATTERNS_PER_FOLLOWER_MAX:
        raise BadParameterError(f"At most {limits.PATTERNS_PER_FOLLOWER_MAX} patterns are taken.")
    return Patterns(map(check_pattern, patterns))


def many_request(call: Call) -> ManyRequest:
    """Raises BadParameterError."""
    if "topics" not in call.query:
        raise BadParameterError("topics is missing: patterns with commas, as in orders.*,iot.**.")
    start = parameters.choice(call.query.get("offset", "earliest"), "offset", STARTS)
    most = call.query.get("max_records")
    last = call.headers.get(b"last-event-id", b"").decode("latin-1")
    cursor = last or call.query.get("cursor", "")
    return ManyRequest(
        patterns_of(call.query["topics"]),
        place_of(cursor),
        start == "latest" and not cursor,
        None
        if most is None
        else parameters.integer(most, "max_records", smallest=1, largest=limits.OFFSET_MAX),
        value_shape(call.query),
    )


def place_of(cursor: str) -> dict[int, int]:
    """Raises BadParameterError for what is no cursor of ours."""
    if not cursor:
        return {}
    if not _CURSOR.fullmatch(cursor):
        raise BadParameterError("The cursor is not the id of an event of such a stream.")
    pairs = (part.split("-") for part in cursor.split("."))
    return {int(topic_id): int(offset) for topic_id, offset in pairs}


def cursor_of(place: Mapping[int, int]) -> str:
    return ".".join(f"{topic_id}-{offset}" for topic_id, offset in place.items()) or _NOWHERE


def start_of(topic: Topic, place: Mapping[int, int], *, latest: bool) -> int:
    """Where a read of the topic begins. Raises OffsetExpiredError, OffsetOutOfRangeError."""
    offset = place.get(topic.topic_id)
    if offset is None:
        return topic.log_end_offset if latest else topic.log_start_offset
    if offset < topic.log_start_offset:
        raise OffsetExpiredError(
            f"Offset {offset} is gone; the log of {topic.name!r} starts at "
            f"{topic.log_start_offset}.",
            topic=topic.name,
            log_start_offset=topic.log_start_offset,
        )
    if offset > topic.log_end_offset:
        raise OffsetOutOfRangeError(
            f"Offset {offset} is beyond the log end {topic.log_end_offset} of {topic.name!r}.",
            log_end_offset=topic.log_end_offset,
        )
    return offset
