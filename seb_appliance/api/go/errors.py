"""Errors as the Go broker tells them: the status, and a sentence as plain text."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, Response

from seb_appliance.api.answers import Headers
from seb_appliance.api.problems import error_of, is_for_admin, problem, problem_headers
from seb_appliance.errors import SebError, TopicNotFoundError, UnauthenticatedError

TEXT: Final = b"text/plain; charset=utf-8"

# What its clients may look for.
_WORDS: Final[dict[type[SebError], str]] = {
    UnauthenticatedError: "invalid auth",
    TopicNotFoundError: "topic not found",
}


def text_of(error: SebError, *, to_admin: bool = False) -> bytes:
    """Details of the inside go to admin keys only."""
    known = _WORDS.get(type(error))
    return (known or str(problem(error, "", to_admin=to_admin)["detail"])).encode()


def text_headers(error: SebError) -> Headers:
    """As `problem_headers`, of a text."""
    headers = [header for header in problem_headers(error) if header[0] != b"content-type"]
    return [(b"content-type", TEXT), *headers]


def answer_in_text(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """The exception handler of these routes."""
    error = error_of(request, exception)
    body = text_of(error, to_admin=is_for_admin(request))
    headers = {name.decode(): value.decode() for name, value in text_headers(error)}
    del headers["content-type"]  # Litestar wants it apart, and adds the charset
    return Response(body, status_code=error.status, headers=headers, media_type="text/plain")
