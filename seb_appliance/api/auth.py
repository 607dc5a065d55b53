"""Who is calling: the API key of a request, and with it what every handler needs first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from litestar import Request

from seb_appliance import limits
from seb_appliance.api.parameters import read_headers, read_query
from seb_appliance.api.peers import peer_address
from seb_appliance.api.problems import API_KEY_STATE
from seb_appliance.broker.audit import Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import UnauthenticatedError

METER_STATE: Final = "seb_meter"  # who the bytes of a request and its answer are charged to

AnyRequest = Request[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request whose query parameters are all known ones. `address`: the peer's."""

    key: ApiKeyView
    headers: dict[bytes, bytes]
    query: dict[str, str]
    address: str

    @property
    def actor(self) -> Actor:
        agent = self.headers.get(b"user-agent", b"")[: limits.USER_AGENT_CHARACTERS_MAX]
        return Actor(self.key.api_key_id, self.address, agent.decode("latin-1"))


def token_of(authorization: bytes | None) -> str:
    """The API key in an Authorization header: Bearer, or Basic with the key as password."""
    if authorization is None:
        raise UnauthenticatedError("Send an API key: Authorization: Bearer seb_…")
    scheme, _, given = authorization.decode("latin-1").partition(" ")
    given = given.strip()
    if scheme.lower() == "bearer":
        return given
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).decode("latin-1").partition(":")[2]
        except binascii.Error as error:
            raise UnauthenticatedError("The Basic credentials are not base64.") from error
    raise UnauthenticatedError("The Authorization scheme is neither Bearer nor Basic.")


def enter(
    request: AnyRequest,
    broker: Broker,
    known: frozenset[str] = frozenset(),
    *,
    token_of: Callable[[bytes | None], str] = token_of,
) -> Call:
    """The call of a request; `known` are the query parameters of the route, `token_of` reads its
    Authorization.

    Raises UnauthenticatedError, then QuotaExceededError, then BadParameterError.
    """
    scope = request.scope
    headers = read_headers(list(scope["headers"]))
    key = broker.access.authenticate(token_of(headers.get(b"authorization")))
    scope["state"][API_KEY_STATE] = key
    scope["state"][METER_STATE] = broker.access.meters.enter(key)
    return Call(key, headers, read_query(scope["query_string"], known), peer_address(scope))


def may_see(broker: Broker, key: ApiKeyView, topic: str) -> bool:
    """Whether the key has any grant on the topic: then it may know that the topic exists."""
    return any(broker.may(key, operation, topic) for operation in ("consume", "produce", "manage"))
