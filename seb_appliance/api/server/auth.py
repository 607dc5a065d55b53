"""The caller: the peer's address, the origin of a web page, and the API key.

A page sends a ticket or a Bearer key itself, so an allowed origin may do what its key may. A
browser attaches Basic credentials to requests of any page: for these, and where no API key is
needed, `is_let_in` decides.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from litestar import Request
from litestar.types import HTTPScope, Scope

from seb_appliance import limits
from seb_appliance.addresses import is_loopback, known_as
from seb_appliance.api.encoding.answers import Headers
from seb_appliance.api.encoding.parameters import DEFAULTS, read_headers, read_query
from seb_appliance.api.encoding.problems import API_KEY_STATE
from seb_appliance.broker.access.access import Access
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.access.tickets import Ticket
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.errors import (
    ApiKeyChangedError,
    BadParameterError,
    ForbiddenError,
    SebError,
    UnauthenticatedError,
)

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_FORWARDED: Final = frozenset({b"forwarded", b"x-forwarded-for", b"x-real-ip"})


def forwarded_for(scope: Scope, trusted: Sequence[Network]) -> str | None:
    """The client's address from `trusted` proxies: the last address in X-Forwarded-For that is not
    a proxy's; the client may invent those before it. None without a trusted proxy."""
    if not is_in(peer_address(scope), trusted):
        return None
    lines = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    found = None
    for text in reversed(b",".join(lines).decode("latin-1").split(",")):
        address = _ip(text.strip())
        if address is None:
            break
        found = str(address)
        if not any(address in network for network in trusted):
            break
    return found


def is_in(address: str, networks: Sequence[Network]) -> bool:
    """Whether it is an address of one of them."""
    if not networks:
        return False
    found = _ip(address)
    return found is not None and any(found in network for network in networks)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def peer_address(scope: Scope) -> str:
    """The address that opened the connection, or for which a trusted proxy did; "" for a Unix
    socket."""
    client = scope.get("client")
    return known_as(client[0]) if client is not None else ""


def is_local(scope: Scope) -> bool:
    """Whether a process on this machine sends its own request: neither as a proxy for another, nor
    for a page whose host name points here."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if not all(map(is_loopback_host, hosts)):
        return False
    address = peer_address(scope)
    if not address:  # a Unix socket
        return True
    return is_loopback(address) and not any(name in _FORWARDED for name, _ in scope["headers"])


def is_loopback_host(host: str) -> bool:
    """Whether `host` (with or without a port) is localhost or a loopback address."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


ANY: Final = "*"
ORIGINS_STATE: Final = "seb_cors_origins"  # of a request: `ApiOptions.cors_origins`
# Sec-Fetch-Site of the appliance's own pages, and of a typed address.
_OWN_SITES: Final = (b"same-origin", b"none")
_PATHS: Final = "/v1/"
_PREFLIGHT: Final[Headers] = [
    (b"access-control-allow-methods", b"GET, HEAD, POST, PUT, PATCH, DELETE"),
    # The star does not cover Authorization.
    (b"access-control-allow-headers", b"Authorization, *"),
    (b"access-control-max-age", b"600"),
]


def is_let_in(headers: dict[bytes, bytes], origins: frozenset[str]) -> bool:
    """Whether the request is not of a page, or of a page of the appliance or of a named origin.
    `*` names none: any page in the world could do everything."""
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1") in origins - {ANY}:
        return True
    # A page that embeds an image or a script sends no Origin.
    if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
        return False
    host = headers.get(b"host", b"")
    return origin is None or (bool(host) and origin.partition(b"://")[2] == host)


class Cors:
    """`origins`: as `https://a.example`, or `*` for all; none turns it off."""

    def __init__(self, origins: frozenset[str]) -> None:
        self.origins = origins

    def headers(self, scope: HTTPScope) -> Headers:
        """The CORS headers of every answer to this request."""
        if not self.origins or not scope["path"].startswith(_PATHS):
            return []
        vary = (b"vary", b"Origin")
        origin = self._allowed(scope)
        if origin is None:
            return [vary]
        exposed = (b"access-control-expose-headers", b"*")
        return [vary, (b"access-control-allow-origin", origin), exposed]

    def preflight(self, scope: HTTPScope) -> Headers | None:
        """The headers of the answer to a preflight request; None for any other."""
        asks = any(name == b"access-control-request-method" for name, _ in scope["headers"])
        if scope["method"] != "OPTIONS" or not asks or not self.headers(scope):
            return None
        return _PREFLIGHT if self._allowed(scope) is not None else []

    def _allowed(self, scope: HTTPScope) -> bytes | None:
        origin = next((value for name, value in scope["headers"] if name == b"origin"), None)
        if origin is None:
            return None
        known = ANY in self.origins or origin.decode("latin-1") in self.origins
        return origin if known else None


BY_PROXY_STATE: Final = "seb_by_proxy"  # whether a trusted proxy passed the request on
METER_STATE: Final = "seb_meter"  # charged with the bytes of a request and its answer
IN_USE_STATE: Final = "seb_key_in_use"
# Who asks from within this process, as an API key that needs no secret. No request of a client has
# it: the state of those is made by the server.
OWN_KEY_STATE: Final = "seb_own_key"
AnyRequest = Request[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """An authenticated request whose query parameters are all known ones. `address`: the peer's.
    `ticket`: sent in place of the API key."""

    key: ApiKeyView
    headers: dict[bytes, bytes]
    query: dict[str, str]
    address: str
    ticket: Ticket | None = None

    def without_defaults(self) -> Call:
        """Without read parameters that equal the default: generated clients send them all, also
        beside parameters that exclude them."""
        asked = {n: text for n, text in self.query.items() if text != DEFAULTS.get(n)}
        return replace(self, query=asked)

    @property
    def owner(self) -> str:
        """Whose share of common resources is used; see `broker/shares.py`."""
        return self.key.api_key_id

    @property
    def actor(self) -> Actor:
        agent = self.headers.get(b"user-agent", b"")[: limits.USER_AGENT_CHARACTERS_MAX]
        return Actor.of_key(self.key, self.address, agent.decode("latin-1"))


@dataclass(frozen=True, slots=True)
class KeyInUse:
    """The API key of a request; `until_us` as of `Access.holds_until_us`."""

    access: Access
    key: ApiKeyView
    until_us: int
    authenticate: Callable[[], ApiKeyView]

    def look_again(self) -> None:
        """After a wait the API key must still have its grants. Raises UnauthenticatedError,
        ApiKeyChangedError."""
        if self.access.still_holds(self.key, self.until_us):
            return
        if not set(self.key.grants) <= set(self.authenticate().grants):
            raise ApiKeyChangedError(
                "The API key lost a grant during the request. Nothing was done; send the "
                "request again."
            )


def let_in(
    scope: Scope, access: Access, key: ApiKeyView, authenticate: Callable[[], ApiKeyView]
) -> None:
    """The request is that key's from now on. Raises QuotaExceededError."""
    state = scope["state"]
    state[API_KEY_STATE] = key
    state[IN_USE_STATE] = KeyInUse(access, key, access.holds_until_us(key), authenticate)
    state[METER_STATE] = access.meters.enter(key)


def look_again(scope: Scope) -> None:
    """See `KeyInUse`; does nothing for requests without an API key."""
    in_use: KeyInUse | None = scope["state"].get(IN_USE_STATE)
    if in_use is not None:
        in_use.look_again()


def is_still_let_in(scope: Scope) -> bool:
    """Whether `look_again` finds nothing wrong."""
    try:
        look_again(scope)
    except SebError:
        return False
    return True


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
        except ValueError as error:  # binascii.Error, or bytes beyond ASCII
            raise UnauthenticatedError("The Basic credentials are not base64.") from error
    raise UnauthenticatedError("The Authorization scheme is neither Bearer nor Basic.")


def refuse_attached_key(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """A browser attaches Basic credentials to requests of any page, so the page must be allowed.
    Raises ForbiddenError."""
    if headers.get(b"authorization", b"").partition(b" ")[0].lower() != b"basic":
        return
    if not is_let_in(headers, scope["state"].get(ORIGINS_STATE, frozenset())):
        raise ForbiddenError(
            "A page of another origin can use Basic credentials only if cors_origins lists its "
            "origin. Send the API key as Bearer."
        )


def _as_it_is(key: ApiKeyView) -> ApiKeyView:
    return key


def enter(
    request: AnyRequest,
    broker: Broker,
    known: frozenset[str] = frozenset(),
    *,
    token_of: Callable[[bytes | None], str] = token_of,
) -> Call:
    """`known`: the query parameters of the route. Raises, in this order, ForbiddenError,
    UnauthenticatedError, QuotaExceededError, BadParameterError."""
    scope = request.scope
    headers = read_headers(list(scope["headers"]))
    refuse_attached_key(scope, headers)
    own: ApiKeyView | None = scope["state"].get(OWN_KEY_STATE)
    if own is None:
        authenticate = partial(broker.access.authenticate, token_of(headers.get(b"authorization")))
    else:
        authenticate = partial(_as_it_is, own)
    key = authenticate()
    let_in(scope, broker.access, key, authenticate)
    return Call(key, headers, read_query(scope["query_string"], known), peer_address(scope))


def enter_to_read(request: AnyRequest, broker: Broker, known: frozenset[str]) -> Call:
    """As `enter`, also with `?ticket=`: an EventSource in a browser cannot send a header."""
    scope = request.scope
    query = scope["query_string"]
    if not (query.startswith(b"ticket=") or b"&ticket=" in query):
        return enter(request, broker, known)
    headers = read_headers(list(scope["headers"]))
    if b"authorization" in headers:
        raise BadParameterError("Send a ticket or Authorization, not both.")
    named = read_query(query, known | {"ticket"})
    ticket = broker.access.tickets.find(named["ticket"])
    broker.access.last_used.note(ticket.key.api_key_id)
    let_in(scope, broker.access, ticket.key, lambda: broker.access.tickets.find(ticket.text).key)
    return Call(ticket.key, headers, named, peer_address(scope), ticket)


async def within_quota(
    scope: Scope,
    is_over: Callable[[], bool],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Before each part of a stream: wait until its API key may send bytes again, or `is_over`.
    `pause` may return early."""
    meter: Meter | None = scope["state"].get(METER_STATE)
    while meter is not None and meter.overdrawn_s > 0 and not is_over():
        await pause(min(meter.overdrawn_s, 1.0))


def authenticated_again(broker: Broker, call: Call) -> ApiKeyView:
    """The API key of an older request, as it is now. Raises UnauthenticatedError."""
    if call.ticket is not None:
        return broker.access.tickets.find(call.ticket.text).key
    return broker.access.authenticate(token_of(call.headers.get(b"authorization")))


def authorize_to_read(broker: Broker, call: Call, topic: str) -> None:
    """Raises ForbiddenError."""
    broker.authorize(call.key, "consume", topic)
    if call.ticket is not None and not call.ticket.topics.cover(topic):
        raise ForbiddenError(
            f"The ticket is for {','.join(call.ticket.topics.patterns)}, not for {topic!r}."
        )


def may_see(broker: Broker, key: ApiKeyView, topic: str) -> bool:
    """Whether the key may know that the topic exists: it has a grant on it or manages one above."""
    granted = ("consume", "produce", "manage")
    return any(broker.may(key, operation, topic) for operation in granted) or manages_above(
        broker, key, topic
    )


def manages_above(broker: Broker, key: ApiKeyView, topic: str) -> bool:
    """Whether the key may manage a topic from which this one was forked, also by forks between."""
    return any(broker.may(key, "manage", above) for above in broker.topics.above(topic))


def authorize_to_fork(broker: Broker, key: ApiKeyView, parent: str) -> None:
    """A fork shows records and the name of its parent to others. Raises ForbiddenError."""
    broker.authorize(key, "manage", parent)
    broker.authorize(key, "consume", parent)


def authorize_to_delete(broker: Broker, key: ApiKeyView, topic: str) -> None:
    """Who manages a topic may delete its forks, too. Raises ForbiddenError."""
    if not manages_above(broker, key, topic):
        broker.authorize(key, "manage", topic)
