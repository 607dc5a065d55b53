"""Errors as `application/problem+json` (RFC 9457), for Litestar's handlers and for the protocol."""

from __future__ import annotations

import http
import logging
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException

from seb_appliance.api.encoding.answers import Headers, json_line
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    BadRequestError,
    CorruptObjectError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    RequestTooLargeError,
    SebError,
    StoreError,
    UnsupportedMediaTypeError,
)

CONTENT_TYPE: Final = b"application/problem+json"
REQUEST_ID_STATE: Final = "seb_request_id"
API_KEY_STATE: Final = "seb_api_key"
_RETRY_LATER: Final = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE)
_RETRY_AFTER_S: Final = 1  # where the error itself does not say
_log = logging.getLogger("seb.api")

# What anybody may know of the errors that speak of our inside: the rest is for an admin key.
_PUBLIC_DETAIL: Final[dict[type[SebError], str]] = {
    StoreError: "The object store did not answer this request; try again.",
    CorruptObjectError: "Stored bytes fail their check and are not served; tell the operator.",
    InternalError: "A bug; the operator finds it in the log under this request's id.",
}
_PUBLIC_DATA: Final = frozenset({"topic", "offset", "until"})


def problem(error: SebError, request_id: str, *, to_admin: bool = False) -> dict[str, Any]:
    """The members of the problem document. Only admin keys get internal details."""
    detail, data = error.detail, error.data
    if not to_admin:
        for kind, public in _PUBLIC_DETAIL.items():
            if isinstance(error, kind):
                detail = public
                data = {name: value for name, value in data.items() if name in _PUBLIC_DATA}
    return {
        "type": f"urn:seb:error:{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": detail,
        "code": error.code,
        "retryable": error.retryable,
        "side_effects": error.side_effects,
        "instance": f"urn:seb:request:{request_id}",
        **data,
    }


def problem_body(error: SebError, request_id: str, *, to_admin: bool = False) -> bytes:
    return json_line(problem(error, request_id, to_admin=to_admin))


def problem_headers(error: SebError) -> Headers:
    """Content type, and what belongs to the status."""
    headers: Headers = [(b"content-type", CONTENT_TYPE), (b"cache-control", b"no-store")]
    if error.status == http.HTTPStatus.UNAUTHORIZED:
        # curl --anyauth, wget, urllib and collectd send Basic only after such a challenge.
        headers.append((b"www-authenticate", b'Bearer realm="seb", Basic realm="seb"'))
    if error.status == http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        headers.append((b"connection", b"close"))  # else the rest of the body would be drained
    if error.status in _RETRY_LATER:
        after_s = getattr(error, "retry_after_s", _RETRY_AFTER_S)
        headers.append((b"retry-after", str(after_s).encode()))
    if isinstance(error, MethodNotAllowedError) and error.data.get("allow"):
        allow = error.data["allow"]
        assert isinstance(allow, list), allow
        headers.append((b"allow", ", ".join(allow).encode()))
    return headers


def answer_exception(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """The exception handler of all routes, unless a protocol has its own."""
    error = error_of(request, exception)
    body = problem_body(error, _request_id(request), to_admin=is_for_admin(request))
    return answer_error_as(error, CONTENT_TYPE.decode(), body)


def answer_error_as(error: SebError, media_type: str, body: bytes) -> Response[bytes]:
    """The error in words of another protocol, with our status and headers."""
    headers = {name.decode(): value.decode() for name, value in problem_headers(error)}
    del headers["content-type"]  # Litestar wants it apart
    return Response(body, status_code=error.status, headers=headers, media_type=media_type)


def error_of(request: Request[Any, Any, Any], exception: Exception) -> SebError:
    """The SebError for an exception. Any other exception is a bug: it is logged here and becomes an
    InternalError."""
    error = _as_seb_error(request, exception)
    if isinstance(error, InternalError):
        where = f"request {_request_id(request)}: {request.method} {_logged_path(request)}"
        _log.error("%s failed", where, exc_info=exception)
    return error


def _logged_path(request: Request[Any, Any, Any]) -> str:
    path, secret = request.scope["path"], request.scope.get("path_params", {}).get("secret")
    return path.replace(f"/{secret}", "/…") if secret else path


def is_for_admin(request: Request[Any, Any, Any]) -> bool:
    """Whether the request has an admin key, which may see internal details."""
    key: ApiKeyView | None = request.scope["state"].get(API_KEY_STATE)
    return key is not None and any(grant.operation == "admin" for grant in key.grants)


def _request_id(request: Request[Any, Any, Any]) -> str:
    return str(request.scope["state"].get(REQUEST_ID_STATE, ""))


def _as_seb_error(request: Request[Any, Any, Any], exception: Exception) -> SebError:
    if isinstance(exception, SebError):
        return exception
    if isinstance(exception, NotFoundException):
        return NotFoundError("There is nothing at this path; /schema lists all paths.")
    if isinstance(exception, MethodNotAllowedException):
        listed = (exception.headers or {}).get("allow", "").split(", ")
        allow = sorted({*listed, "HEAD"} if "GET" in listed else listed)
        return MethodNotAllowedError(
            f"{request.method} is not possible here. Use {', '.join(allow)}.", allow=allow
        )
    if isinstance(exception, HTTPException) and exception.status_code < 500:
        kind: type[SebError] = {413: RequestTooLargeError, 415: UnsupportedMediaTypeError}.get(
            exception.status_code, BadRequestError
        )
        return kind(f"{exception.detail}.")
    return InternalError(f"{type(exception).__name__}: {exception}")
