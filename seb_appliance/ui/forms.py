"""Forms and queries: read within limits, decoded strictly, only fields that the page knows."""

from __future__ import annotations

import hashlib
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

CONTENT_TYPE = b"application/x-www-form-urlencoded"


class Form:
    """Values by field; a field may have several."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def text(self, name: str, default: str = "") -> str:
        """The one value without space at its ends. Raises BadRequestError for several."""
        return self.raw(name, default).strip()

    def raw(self, name: str, default: str = "") -> str:
        """The one value as it is. Raises BadRequestError for several."""
        values = self._values.get(name, [default])
        if len(values) != 1:
            raise BadRequestError(f"{name} was given more than once.")
        return values[0]

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    @property
    def digest(self) -> bytes:
        """The same for two forms with the same content only."""
        return hashlib.sha256(repr(sorted(self._values.items())).encode()).digest()

    @property
    def values(self) -> dict[str, str]:
        """The first value of each field, to show a form again."""
        return {name: values[0] for name, values in self._values.items()}


def parse(data: bytes, known: frozenset[str]) -> Form:
    """Raises BadRequestError for what is no form, or has a field that is not in `known`."""
    try:
        pairs = parse_qsl(
            data.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(data),
            errors="strict",
            max_num_fields=limits.FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequestError(f"This is no form: {error}.") from error
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
            raise RequestTimeoutError("The form did not arrive.")
        if len(data) + len(part["body"]) > limits.FORM_BYTES_MAX:
            raise RequestTooLargeError(f"A form has at most {limits.FORM_BYTES_MAX} bytes.")
        reservation.grow(len(part["body"]))
        data += part["body"]
        if not part["more_body"]:
            return parse(data, known)
