"""Errors, callers and properties of Iceberg's REST protocol.

https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl

from litestar import Request, Response
from litestar.exceptions import MethodNotAllowedException, NotFoundException

from seb_appliance.api.encoding.answers import json_line
from seb_appliance.api.encoding.problems import (
    answer_error_as,
    error_of,
    is_for_admin,
    problem,
)
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.routes.route import Services
from seb_appliance.api.server.auth import AnyRequest, Call, enter, token_of
from seb_appliance.errors import (
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    SebError,
)

PREFIX: Final = b"/iceberg/"
ROOT: Final = "/iceberg/v1"
TOKENS: Final = f"{ROOT}/oauth/tokens"
JSON_MEDIA: Final = "application/json"

# What clients turn into their own exceptions.
_TYPES: Final = {
    400: "BadRequestException",
    401: "NotAuthorizedException",
    403: "ForbiddenException",
    404: "NoSuchTableException",
    429: "TooManyRequestsException",
    503: "ServiceUnavailableException",
}
_OAUTH: Final = {401: "invalid_client", 403: "unauthorized_client"}


def no_such_namespace(name: str) -> NotFoundError:
    return NotFoundError(
        f"There is no namespace {name[:100]!r}; the only one is topics.",
        iceberg="NoSuchNamespaceException",
    )


def answer_error(request: Request[Any, Any, Any], exception: Exception) -> Response[bytes]:
    """The exception handler of all paths below PREFIX. What is not served would write."""
    if isinstance(exception, NotFoundException | MethodNotAllowedException):
        exception = ForbiddenError(
            "This catalog is read-only: the appliance alone writes its tables. It has namespaces, "
            "tables and no views."
        )
    error = error_of(request, exception)
    detail = str(problem(error, "", to_admin=is_for_admin(request))["detail"])
    told = _oauth_error if request.scope["path"].rstrip("/") == TOKENS else _iceberg_error
    return answer_error_as(error, JSON_MEDIA, json_line(told(error, detail)))


def _iceberg_error(error: SebError, detail: str) -> Json:
    kind = error.data.get("iceberg") or _TYPES.get(error.status)
    if kind is None:
        kind = _TYPES[400] if error.status < 500 else "InternalServerError"
    return {"error": {"message": detail, "type": kind, "code": error.status}}


def _oauth_error(error: SebError, detail: str) -> Json:
    kind = error.data.get("oauth") or _OAUTH.get(error.status)
    if kind is None:
        kind = "invalid_request" if error.status < 500 else "temporarily_unavailable"
    return {"error": kind, "error_description": detail}


def enter_catalog(request: AnyRequest, services: Services, known: frozenset[str]) -> Call:
    """As `enter`; parameters that a newer client sends are ignored, but never an API key."""
    pairs = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    others = {name for name, value in pairs if not value.startswith("seb_")}
    return enter(request, services.broker, known | others)


# Where each grant type has the API key; the second one refreshes a token.
_SECRETS: Final = {
    "client_credentials": "client_secret",
    "urn:ietf:params:oauth:grant-type:token-exchange": "subject_token",
}


def secret_of(form: dict[str, str], authorization: bytes | None) -> str:
    """The API key that a client shows to get a token: in the form, or where `token_of` finds it.
    Raises BadRequestError, UnauthenticatedError."""
    if form.get("grant_type") not in _SECRETS:
        raise BadRequestError(
            f"grant_type must be one of {', '.join(_SECRETS)}.", oauth="unsupported_grant_type"
        )
    sent = form.get(_SECRETS[form["grant_type"]])
    if sent:
        return sent
    return token_of(authorization)
