"""Who comes in: API keys as everywhere, and anybody where the door stands open.

An open door is for this machine: the appliance listens on loopback addresses then. A web page on
it is somebody else's program all the same, and a proxy on it speaks for others, so a request that
another origin sent, or that was sent to another name, or on somebody's behalf, needs an API key.
"""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from litestar.types import Scope

from seb_appliance.api.encoding.parameters import read_headers
from seb_appliance.api.routes.route import Services
from seb_appliance.api.server.auth import (
    AnyRequest,
    Call,
    is_let_in,
    is_local,
    let_in,
    peer_address,
    refuse_attached_key,
    token_of,
)
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import BadParameterError, UnauthenticatedError

_PARAMETERS: Final = frozenset({"offset", "live", "cursor"})


def enter(request: AnyRequest, services: Services, _known: frozenset[str]) -> Call:
    """Raises ForbiddenError, UnauthenticatedError, QuotaExceededError, BadParameterError."""
    scope = request.scope
    broker, options = services.broker, services.options
    headers = read_headers(list(scope["headers"]))
    if b"authorization" in headers or not options.streams_open:
        refuse_attached_key(scope, headers)
        token = token_of(headers.get(b"authorization"))
        authenticate = partial(broker.access.authenticate, token)
    else:
        authenticate = partial(_anybody, scope, headers, broker, options)
    key = authenticate()
    let_in(scope, broker.access, key, authenticate)
    return Call(key, headers, _query(scope["query_string"]), peer_address(scope))


def _anybody(
    scope: Scope, headers: dict[bytes, bytes], broker: Broker, options: ApiOptions
) -> ApiKeyView:
    if not (is_local(scope) and is_let_in(headers, options.cors_origins)):
        raise UnauthenticatedError(
            "The door of streams is open to programs of this machine; a page of another origin "
            "needs an API key, or its origin in cors_origins."
        )
    return broker.access.let_in_anybody()


def _query(query_string: bytes) -> dict[str, str]:
    """The parameters that have a meaning; others are let be, as the protocol asks. Raises
    BadParameterError for one that is there twice."""
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=32
        )
    except ValueError as error:
        raise BadParameterError("The query is not name=value pairs in UTF-8.") from error
    query: dict[str, str] = {}
    for name, value in pairs:
        if name in query and name in _PARAMETERS:
            raise BadParameterError(f"The query parameter {name!r} is given twice.")
        query[name] = value
    return query
