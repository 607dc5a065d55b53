"""Answers as the bytes of HTTP/1.1, for those that no application sends."""

from __future__ import annotations

import http
from collections.abc import Iterable
from typing import Final

from seb_appliance import __version__
from seb_appliance.api.encoding.answers import DEFAULT_HEADERS, Headers

VERSION_HEADER: Final = (b"seb-version", __version__.encode())
REQUEST_ID_HEADER: Final = b"seb-request-id"


def status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n".encode()


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%b: %b\r\n" % header for header in headers)


def with_defaults(headers: Headers, request_id: bytes) -> Headers:
    """What every answer has is added where it is not given."""
    given = {name for name, _ in headers}
    defaults = [default for default in DEFAULT_HEADERS if default[0] not in given]
    return [*headers, *defaults, (REQUEST_ID_HEADER, request_id), VERSION_HEADER]
