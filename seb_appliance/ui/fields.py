"""What fields of forms hold, as the broker takes it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from seb_appliance import limits
from seb_appliance.errors import BadRequestError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_us(text: str, name: str) -> int | None:
    """A time as a browser's field gives it, or with a zone; without, in UTC. None for none. Raises
    BadRequestError."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"{name} is a time in UTC, such as 2026-11-21T10:00.") from error


def time_field(at_us: int | None) -> str:
    """A time as a browser's field takes it, in UTC; "" for none."""
    if at_us is None:
        return ""
    return datetime.fromtimestamp(at_us // 10**6, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def whole(text: str, name: str, *, smallest: int = 0, largest: int = limits.OFFSET_MAX) -> int:
    """A whole number in a range, written plainly. Raises BadRequestError."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 17:
        number = int(text)
        if smallest <= number <= largest:
            return number
    raise BadRequestError(f"{name} is a whole number from {smallest} to {largest}.")
