"""`Route`: the one declaration of a route. It serves the route and documents it.

Before the handler runs, a route authenticates the request, refuses unknown query parameters,
authorizes the caller and decodes a small JSON body, all as declared.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

import msgspec
from litestar.types import ASGIApp

from seb_appliance.api.encoding.answers import Answer, json_answer
from seb_appliance.api.encoding.parameters import refuse_unsupported
from seb_appliance.api.openapi.parameters import OF_PATH, Json
from seb_appliance.api.server.auth import AnyRequest, Call, enter, enter_to_read
from seb_appliance.api.server.bodies import read_json
from seb_appliance.api.server.endpoints import Endpoint
from seb_appliance.api.server.options import ApiOptions
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.status import Status
from seb_appliance.errors import (
    ApiKeyChangedError,
    BadJsonError,
    BadNameError,
    BadParameterError,
    BadRequestError,
    ForbiddenError,
    HeadersTooLargeError,
    InternalError,
    MethodNotAllowedError,
    OverloadedError,
    QuotaExceededError,
    RequestTimeoutError,
    RequestTooLargeError,
    SebError,
    ShareExceededError,
    TopicHeldError,
    TopicNotFoundError,
    TransferCodingError,
    UnauthenticatedError,
    UnsupportedMediaTypeError,
)

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
ErrorTypes = tuple[type[SebError], ...]
JSON: Final = "application/json"
_NAME: Final = re.compile(r"\{(\w+)\}")
# Any request can be answered with these.
_EVERYWHERE: Final[ErrorTypes] = (
    BadRequestError,
    MethodNotAllowedError,
    RequestTimeoutError,
    HeadersTooLargeError,
    InternalError,
    OverloadedError,
    TransferCodingError,
)
_WITH_API_KEY: Final[ErrorTypes] = (
    ApiKeyChangedError,
    BadParameterError,
    TopicHeldError,
    TopicNotFoundError,
    UnauthenticatedError,
    ForbiddenError,
    QuotaExceededError,
    ShareExceededError,
)

_WITH_BODY: Final[ErrorTypes] = (
    BadJsonError,
    RequestTooLargeError,
    UnsupportedMediaTypeError,
)


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers work with. `snapshot` makes one and returns the last entry in it; `openapi`
    returns the document as JSON."""

    broker: Broker
    options: ApiOptions
    status: Callable[[], Awaitable[Status]]
    costs: Callable[[], msgspec.Struct]
    snapshot: Callable[[], Awaitable[int]]
    samples: Callable[[], Awaitable[Iterable[Any]]]
    openapi: Callable[[], bytes]


class RequestContext:
    """A request that its route has let in. `body`: the decoded JSON body."""

    __slots__ = ("body", "broker", "call", "options", "path", "request", "services")

    call: Call  # not set where the route needs no API key

    def __init__(self, services: Services, request: AnyRequest) -> None:
        self.services = services
        self.broker = services.broker
        self.options = services.options
        self.request = request
        self.path: dict[str, str] = request.scope["path_params"]
        self.body: Any = None

    @property
    def topic(self) -> str:
        return self.path["topic"]

    @property
    def group(self) -> str:
        return self.path["group"]


# A handler returns an ASGI application, a struct to be sent as JSON, or None for 204.
Handler = Callable[[RequestContext], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class Content:
    """One media type of a body: a JSON schema, or the struct that has it, and an example. A union
    of structs is documented as any of them."""

    schema: Json = field(default_factory=dict)
    example: Any = None
    struct: Any = None

    @property
    def structs(self) -> tuple[Any, ...]:
        return get_args(self.struct) or (() if self.struct is None else (self.struct,))

    def documented(self) -> Json:
        schema = self.schema
        if self.structs:
            refs = [{"$ref": f"#/components/schemas/{struct.__name__}"} for struct in self.structs]
            schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        return {"schema": schema} | ({} if self.example is None else {"example": self.example})


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A success. `headers`: a description by name."""

    description: str
    content: Mapping[str, Content] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def json_body(struct: Any, example: Any) -> dict[str, Content]:
    return {JSON: Content(struct=struct, example=example)}


def json_reply(
    struct: Any,
    example: Any,
    description: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **others: Content,
) -> dict[int, Reply]:
    """The replies of a route with one kind of success, as JSON."""
    content = json_body(struct, example) | others
    return {status: Reply(description=description, content=content, headers=headers or {})}


def no_content(description: str) -> dict[int, Reply]:
    return {204: Reply(description=description)}


@dataclass(frozen=True, kw_only=True)
class Route:
    """One method of one path.

    `parameters`: OpenAPI parameter objects, without the ones of the path that all routes share.
    `grant`: what the API key needs on the topic and the group of the path; or what raises
    ForbiddenError. `decodes`: whether a body that is always JSON is decoded before the
    handler runs.
    `authenticate`: returns the call of a request, whose known query parameters it is given.
    """

    method: Method
    path: str
    operation_id: str
    handler: Handler
    tag: str
    summary: str
    description: str = ""
    parameters: Sequence[Json] = ()
    body: Mapping[str, Content] = field(default_factory=dict)
    body_required: bool = True
    decodes: bool = True
    replies: Mapping[int, Reply]
    errors: ErrorTypes = ()
    grant: str | Callable[[RequestContext], None] | None = None
    api_key: bool = True
    authenticate: Callable[[AnyRequest, Services, frozenset[str]], Call] | None = None
    refuses: bool = True  # headers that ask for a promise which the route does not give
    error_media: Sequence[str] = ()  # of errors that are no problem documents

    @cached_property
    def all_parameters(self) -> list[Json]:
        return [OF_PATH[name] for name in _NAME.findall(self.path) if name in OF_PATH] + [
            *self.parameters
        ]

    @property
    def all_errors(self) -> ErrorTypes:
        """Every error that the route can answer with."""
        with_api_key = _WITH_API_KEY if self.api_key else ()
        held = (TopicHeldError,) if TopicNotFoundError in self.errors else ()
        named = (BadNameError,) if re.search(r"\{(topic|group)\}", self.path) else ()
        of_body = _WITH_BODY if self._decoder is not None else ()
        return (*with_api_key, *_EVERYWHERE, *self.errors, *held, *named, *of_body)

    @cached_property
    def query(self) -> frozenset[str]:
        return self._named("query") - {"ticket"}

    @cached_property
    def _understood(self) -> frozenset[bytes]:
        return frozenset(name.lower().encode() for name in self._named("header"))

    def _named(self, place: str) -> frozenset[str]:
        return frozenset(known["name"] for known in self.parameters if known["in"] == place)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any] | None:
        if not self.decodes or list(self.body) != [JSON]:
            return None
        return msgspec.json.Decoder(self.body[JSON].struct)

    def served(self, services: Services) -> Endpoint:

        async def handle(request: AnyRequest) -> ASGIApp:
            return await self.respond(RequestContext(services, request))

        path = _NAME.sub(lambda found: f"{{{found[1]}:{_kind(found[1])}}}", self.path)
        return self.method, path, handle

    async def respond(self, ctx: RequestContext) -> ASGIApp:
        if self.api_key:
            await self._let_in(ctx)
        answer: Any = await self.handler(ctx)
        if answer is None:
            return Answer(204, [])
        if isinstance(answer, msgspec.Struct | dict):
            return json_answer(next(iter(self.replies)), answer)
        return answer  # type: ignore[no-any-return]

    async def _let_in(self, ctx: RequestContext) -> None:
        if self.authenticate is not None:
            ctx.call = self.authenticate(ctx.request, ctx.services, self.query)
        elif "ticket" in self._named("query"):
            ctx.call = enter_to_read(ctx.request, ctx.broker, self.query)
        else:
            ctx.call = enter(ctx.request, ctx.broker, self.query)
        if isinstance(self.grant, str):
            topic, group = ctx.path.get("topic"), ctx.path.get("group")
            ctx.broker.authorize(ctx.call.key, self.grant, topic, group)
        elif self.grant is not None:
            self.grant(ctx)
        if self.refuses and self.method != "GET":
            refuse_unsupported(ctx.call.headers, self._understood)
        if self._decoder is not None:
            ctx.body = await read_json(ctx.request, ctx.call, ctx.broker, self._decoder)


def _kind(name: str) -> str:
    return "path" if name == "path" else "str"


def route(
    method: Method, path: str, operation_id: str, **declared: Any
) -> Callable[[Handler], Route]:
    """Declares the decorated handler as a route."""
    return lambda handler: Route(
        method=method, path=path, operation_id=operation_id, handler=handler, **declared
    )
