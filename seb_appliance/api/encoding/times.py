"""Times on the wire: RFC 3339 in UTC with microseconds; µs since the epoch inside."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

import msgspec

from seb_appliance.errors import BadParameterError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_US: Final = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US: Final = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
AwareTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]


def format_time(timestamp_us: int) -> str:
    """`2026-11-21T10:00:00.000123Z`. Beyond the year 9999, which no record reaches, it raises."""
    seconds, us = divmod(timestamp_us, 1_000_000)
    return f"{_format_second(seconds)}.{us:06d}Z"


@lru_cache(maxsize=1024)  # what is written and read together is of few seconds
def _format_second(seconds: int) -> str:
    return (EPOCH + timedelta(seconds=seconds)).isoformat()[:-6]


def format_times(timestamps_us: Iterable[int]) -> list[str]:
    """`format_time` of many; the date is worked out once a second."""
    texts: list[str] = []
    prefix = ""
    prefix_s: int | None = None
    for timestamp_us in timestamps_us:
        second, fraction = divmod(timestamp_us, 1_000_000)
        if second != prefix_s:
            prefix, prefix_s = format_time(second * 1_000_000)[:-7], second
        texts.append(f"{prefix}{fraction:06d}Z")
    return texts


def to_us(moment: datetime) -> int:
    """µs since the epoch of a time that knows its zone. Raises BadParameterError for one that is
    in another year than 1 to 9999 in UTC: it could be kept, and never be shown."""
    since_us = (moment - EPOCH) // _MICROSECOND
    if not _FIRST_US <= since_us <= _LAST_US:
        raise BadParameterError(f"{moment.isoformat()} is not in the years 1 to 9999 in UTC.")
    return since_us


def parse_time(text: str) -> int:
    """µs since the epoch of an RFC 3339 time. Raises ValueError that ends a sentence."""
    try:
        moment = msgspec.convert(text, AwareTime)
        return to_us(moment)
    except (msgspec.ValidationError, OverflowError, BadParameterError) as error:
        raise ValueError(
            f"{text[:100]!r} is not a time such as 2026-11-21T10:00:00Z "
            "(in a URL write the + of a zone as %2B)"
        ) from error
