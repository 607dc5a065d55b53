"""Forms and queries: read within limits, decoded strictly, only fields that the page knows."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import parse_qsl

from litestar.types import Receive

from seb_appliance import limits
from seb_appliance.broker.shares import Reservation
from seb_appliance.errors import (
    BadRequestError,
    RequestTimeoutError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)
from seb_appliance.formats.declared import Declared

CONTENT_TYPE = b"application/x-www-form-urlencoded"


class Form:
    """Values by field; a field may have several."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def text(self, name: str, default: str = "") -> str:
        """The only value, stripped. Raises BadRequestError if there are several."""
        return self.raw(name, default).strip()

    def raw(self, name: str, default: str = "") -> str:
        """The only value, not stripped. Raises BadRequestError if there are several."""
        values = self._values.get(name, [default])
        if len(values) != 1:
            raise BadRequestError(f"{name} was given more than once.")
        return values[0]

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    @property
    def digest(self) -> bytes:
        """Equal for two forms if and only if they have the same content."""
        return hashlib.sha256(repr(sorted(self._values.items())).encode()).digest()

    @property
    def values(self) -> dict[str, str]:
        """The first value of each field, to show a form again."""
        return {name: values[0] for name, values in self._values.items()}


def parse(data: bytes, known: frozenset[str]) -> Form:
    """Raises BadRequestError if the bytes are not a form, or if a field is not in `known`."""
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=limits.FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequestError(f"The form is invalid: {error}.") from error
    for name, value in pairs:
        if name not in known:
            raise BadRequestError(f"There is no field {name[:100]!r} here.")
        if "\0" in value:
            raise BadRequestError(f"{name} holds a NUL character.")
    return Form(pairs)


async def read(
    receive: Receive, headers: dict[bytes, bytes], known: frozenset[str], reservation: Reservation
) -> Form:
    """The form in a request's body, whose bytes `reservation` holds as they arrive. Raises
    BadRequestError, RequestTooLargeError, UnsupportedMediaTypeError, ShareExceededError,
    OverloadedError, RequestTimeoutError when the client leaves in the middle."""
    if headers.get(b"content-type", b"").partition(b";")[0].strip() != CONTENT_TYPE:
        raise UnsupportedMediaTypeError(f"Send a form: {CONTENT_TYPE.decode()}.")
    data = b""
    while True:
        part = await receive()
        if part["type"] != "http.request":
            raise RequestTimeoutError("The form did not arrive completely.")
        if len(data) + len(part["body"]) > limits.FORM_BYTES_MAX:
            raise RequestTooLargeError(f"A form has at most {limits.FORM_BYTES_MAX} bytes.")
        reservation.grow(len(part["body"]))
        data += part["body"]
        if not part["more_body"]:
            return parse(data, known)


# What fields of forms hold, as the broker takes it.


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parsed(one: Declared, form: Form) -> Any:
    """The value of the field; None if it is empty. Raises BadRequestError."""
    text = form.text(one.name)
    if one.choices and text and text not in one.choices:
        raise BadRequestError(f"{one.label} must be one of {', '.join(one.choices)}.")
    try:
        value = one.parse(text) if text else None
    except ValueError as error:
        raise BadRequestError(f"{one.label}: {error}.") from error
    if allowed := one.out_of_bounds(value):
        raise BadRequestError(f"{one.label}: {allowed}.")
    return value


def time_us(text: str, name: str) -> int | None:
    """A time as a browser's field sends it. Without a time zone it is UTC. None if the field is
    empty. Raises BadRequestError."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise BadRequestError(f"{name} must be a time in UTC, such as 2026-11-21T10:00.") from error


def time_field(at_us: int | None) -> str:
    """A time as the value of a browser's field, in UTC; "" for None."""
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
    raise BadRequestError(f"{name} must be a whole number from {smallest} to {largest}.")
