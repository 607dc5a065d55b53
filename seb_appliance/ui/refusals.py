"""What is not answered with what was asked for: a page in words."""

from __future__ import annotations

import logging
from typing import Any, Final

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.types import ExceptionHandlersMap

from seb_appliance.errors import (
    BadRequestError,
    InternalError,
    MethodNotAllowedError,
    NotFoundError,
    RefusedError,
    SebError,
)
from seb_appliance.ui.answers import Sent
from seb_appliance.ui.page_context import VISIT_STATE, Desk, NotLoggedInError

_REQUEST_ID_STATE: Final = "seb_request_id"  # as the API's wrapper names it
_log = logging.getLogger("seb.ui")


def handlers(desk: Desk) -> ExceptionHandlersMap:
    """Litestar's exception handlers for the routes of the pages."""

    def refused(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
        if isinstance(exception, NotLoggedInError):
            return _response(desk.log_in_first(request))
        state = request.scope["state"]
        request_id = str(state.get(_REQUEST_ID_STATE, ""))
        error = _as_seb_error(exception)
        if isinstance(error, InternalError):
            path = request.scope["path"]
            _log.error("request %s: %s failed", request_id, path, exc_info=exception)
            error = InternalError("A bug; the log has it under the id of this request.")
        return _response(desk.refused(state.get(VISIT_STATE), error, request_id))

    return {Exception: refused}


def _response(sent: Sent) -> Response[bytes]:
    """As Litestar wants it of an exception handler."""
    headers = {name.decode(): value.decode() for name, value in sent.headers}
    media_type = headers.pop("content-type").partition(";")[0]  # Litestar adds the charset
    return Response(sent.body, status_code=sent.status, headers=headers, media_type=media_type)


def _as_seb_error(exception: Exception) -> SebError:
    if isinstance(exception, SebError):
        return exception
    if isinstance(exception, HTTPException) and exception.status_code < 500:
        kinds: dict[int, type[RefusedError]] = {404: NotFoundError, 405: MethodNotAllowedError}
        kind = kinds.get(exception.status_code, BadRequestError)
        return kind("There is nothing to be had here in this way.")
    return InternalError(f"{type(exception).__name__}: {exception}")
