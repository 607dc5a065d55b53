"""The HTTP application: Litestar with all routes, inside a wrapper that every request passes.

The wrapper does what must hold for answers that no route makes, too (404, 405, a path that cannot
be): request id, version, security headers, HEAD, and the check of the raw path.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from litestar import Litestar, Request, Response
from litestar.enums import ScopeType
from litestar.types import (
    HTTPReceiveMessage,
    HTTPScope,
    Message,
    Receive,
    Scope,
    Send,
    WebSocketReceiveMessage,
)

from seb_appliance.api.encoding.answers import Answer, Headers, json_line, with_defaults
from seb_appliance.api.encoding.parameters import check_raw_path
from seb_appliance.api.encoding.problems import (
    REQUEST_ID_STATE,
    answer_exception,
    problem_body,
    problem_headers,
)
from seb_appliance.api.openapi.document import document
from seb_appliance.api.routes import schema
from seb_appliance.api.routes.groups import groups, offsets
from seb_appliance.api.routes.groups import records as group_records
from seb_appliance.api.routes.manage import (
    api_keys,
    audit,
    compactions,
    health,
    sql,
    status,
    tables,
    topics,
)
from seb_appliance.api.routes.manage.health import Sample
from seb_appliance.api.routes.manage.status import CostOut
from seb_appliance.api.routes.queues import moving, queues, work
from seb_appliance.api.routes.records import (
    consume,
    live_many,
    manifest,
    produce,
    record_keys,
    transactions,
)
from seb_appliance.api.routes.records.live import HEAD_STATE
from seb_appliance.api.routes.route import Route, Services
from seb_appliance.api.server.auth import (
    BY_PROXY_STATE,
    METER_STATE,
    ORIGINS_STATE,
    Cors,
    Network,
    forwarded_for,
    look_again,
)
from seb_appliance.api.server.endpoints import AnswerError, App, Site, path_handlers
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.api.server.plain_requests import PlainProtocol
from seb_appliance.broker.append.quotas import Meter
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import Status
from seb_appliance.errors import RefusedError

_ROUTES: Final[tuple[Route, ...]] = (
    *produce.ROUTES,
    *consume.ROUTES,
    *live_many.ROUTES,
    *record_keys.ROUTES,
    *transactions.ROUTES,
    *groups.ROUTES,
    *offsets.ROUTES,
    *group_records.ROUTES,
    *queues.ROUTES,
    *work.ROUTES,
    *moving.ROUTES,
    *api_keys.ROUTES,
    *audit.ROUTES,
    *topics.ROUTES,
    *manifest.ROUTES,
    *compactions.ROUTES,
    *tables.ROUTES,
    *sql.ROUTES,
    *status.ROUTES,
    *health.ROUTES,
    *schema.ROUTES,
)


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What a protocol adds to the application. `answer_error`: the exception handler of its routes;
    `plain` answers its plain requests; `path_prefix`: it checks the paths that begin so itself, and
    answers the errors of those that no route has; `begin` runs once the broker is open; `samples`
    are its metrics."""

    routes: Sequence[Route]
    answer_error: AnswerError
    plain: PlainProtocol | None = None
    path_prefix: bytes | None = None
    begin: Callable[[Broker, ApiOptions], None] = lambda _broker, _options: None
    samples: Callable[[Broker, ApiOptions], Iterable[Sample]] = lambda _broker, _options: ()


def all_routes(protocols: Sequence[Protocol]) -> list[Route]:
    return [*_ROUTES, *(route for protocol in protocols for route in protocol.routes)]


def openapi(protocols: Sequence[Protocol]) -> bytes:
    """The document as JSON."""
    return json_line(document(all_routes(protocols)))


def create_app(
    broker: Broker,
    *,
    options: ApiOptions,
    status: Callable[[], Awaitable[Status]],
    costs: Callable[[], CostOut],
    snapshot: Callable[[], Awaitable[int]],
    samples: Callable[[], Awaitable[Iterable[Sample]]],
    protocols: Sequence[Protocol] = (),
    described: Callable[[], bytes] | None = None,
    site: Site | None = None,
) -> Api:
    """The ASGI application. `described` returns the OpenAPI document and takes no time. `site` is
    not part of the API, and has its own error pages and rules of paths."""

    async def measured() -> Iterable[Sample]:
        own, others = await samples(), (one.samples(broker, options) for one in protocols)
        return itertools.chain(own, itertools.chain.from_iterable(others))

    services = Services(
        broker,
        options,
        status,
        costs,
        snapshot,
        measured,
        described or functools.cache(lambda: openapi(protocols)),
    )
    handlers = path_handlers(route.served(services) for route in _ROUTES)
    for protocol in protocols:
        endpoints = (route.served(services) for route in protocol.routes)
        handlers += path_handlers(endpoints, protocol.answer_error)
    if site is not None:
        handlers += path_handlers(site.endpoints, site.answer_error)
    assert len({tuple(handler.paths) for handler in handlers}) == len(handlers)
    litestar = App(
        route_handlers=handlers,
        openapi_config=None,  # routes/schema.py has it
        logging_config=None,  # the process sets logging up, once
        exception_handlers={Exception: partial(_answer_unrouted, protocols, site)},
        request_max_body_size=None,  # bodies.py counts, inflated bytes too
    )
    return Api(
        litestar,
        options.new_request_id,
        Cors(options.cors_origins),
        options.trusted_proxies,
        (
            *(protocol.path_prefix for protocol in protocols if protocol.path_prefix),
            *([] if site is None else [f"{site.path}/".encode()]),
        ),
    )


def _answer_unrouted(
    protocols: Sequence[Protocol],
    site: Site | None,
    request: Request[Any, Any, Any],
    exception: Exception,
) -> Response[bytes]:
    """The exception handler where a protocol's own, and that of the site, does not reach: paths and
    methods without a route."""
    path = request.scope["raw_path"]
    if site is not None and path.startswith(f"{site.path}/".encode()):
        return site.answer_error(request, exception)
    for protocol in protocols:
        if protocol.path_prefix and path.startswith(protocol.path_prefix):
            return protocol.answer_error(request, exception)
    return answer_exception(request, exception)


class Api:
    """The wrapper; see the module. `litestar` is public for tests that compare lists of routes.
    `asked`: requests that came this way, and not through the fast lane."""

    def __init__(
        self,
        litestar: Litestar,
        new_request_id: Callable[[], str],
        cors: Cors,
        trusted_proxies: Sequence[Network] = (),
        path_prefixes: tuple[bytes, ...] = (),
    ) -> None:
        self.litestar = litestar
        self._path_prefixes = path_prefixes
        self._cors = cors
        self._trusted_proxies = trusted_proxies
        self._new_request_id = new_request_id
        self.asked = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:  # the lifespan
            await self.litestar(scope, receive, send)
            return
        self.asked += 1
        request_id = self._new_request_id()
        state = scope.setdefault("state", {})
        state[REQUEST_ID_STATE] = request_id
        state[ORIGINS_STATE] = self._cors.origins
        address = forwarded_for(scope, self._trusted_proxies)
        state[BY_PROXY_STATE] = address is not None
        if address is not None:
            scope["client"] = (address, 0)
        cross_origin = self._cors.headers(scope)
        sender = _with_headers(send, request_id.encode(), state, cross_origin)
        preflight = self._cors.preflight(scope)
        if preflight is not None:
            await Answer(204, preflight)(scope, receive, sender)
            return
        try:
            check_raw_path(scope["raw_path"], self._path_prefixes)
        except RefusedError as error:
            body = problem_body(error, request_id)
            await Answer(error.status, problem_headers(error), body)(scope, receive, sender)
            return
        if scope["method"] == "HEAD":
            # A copy: the server looks at its own scope to leave the body out.
            state[HEAD_STATE] = True
            inner: dict[str, Any] = {**scope, "method": "GET"}
            scope = cast("HTTPScope", inner)
        await self.litestar(scope, _charged(receive, scope), sender)


def _charged(receive: Receive, scope: HTTPScope) -> Receive:
    """Received bytes are charged to the API key's meter, once the key is known and if it has one.
    At the end of a body the key is checked again, because the body may have taken a minute."""

    async def receiver() -> HTTPReceiveMessage | WebSocketReceiveMessage:
        message = await receive()
        if message["type"] == "http.request":
            meter: Meter | None = scope["state"].get(METER_STATE)
            if meter is not None:
                meter.charge_in(len(message["body"]))
            if not message["more_body"] and scope["method"] != "GET":  # a read looks for itself
                look_again(scope)
        return message

    return receiver


def _with_headers(
    send: Send, request_id: bytes, state: dict[str, Any], cross_origin: Headers
) -> Send:
    """Adds the headers of every answer, and charges its body to the API key's meter."""

    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = with_defaults([*message["headers"], *cross_origin], request_id)
        elif message["type"] == "http.response.body":
            meter: Meter | None = state.get(METER_STATE)
            if meter is not None:
                meter.charge_out(len(message["body"]))
        await send(message)

    return sender
