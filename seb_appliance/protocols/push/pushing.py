"""How a push protocol is declared, and how its requests are served with an API key.

Each is also served under an inlet (`protocols/inlets`), where the inlet names the topic. None of
them names a delivery, so a sender that repeats a request after a lost answer stores it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from litestar import Request, Response

from seb_appliance import limits
from seb_appliance.api.encoding.answers import Answer
from seb_appliance.api.encoding.formats import media_type
from seb_appliance.api.encoding.problems import answer_error_as, error_of, is_for_admin, problem
from seb_appliance.api.encoding.record_json import too_many_records
from seb_appliance.api.openapi.parameters import Json
from seb_appliance.api.openapi.shared import SAFE_APPEND_ERRORS
from seb_appliance.api.routes.route import Content, Reply, RequestContext, Route, Services, route
from seb_appliance.api.server.app import Protocol
from seb_appliance.api.server.auth import AnyRequest, Call, enter, look_again, token_of
from seb_appliance.api.server.bodies import read_body
from seb_appliance.api.server.parsing import Parser
from seb_appliance.broker.shares import Reservation
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import Appended, NewRecords
from seb_appliance.errors import RequestTooLargeError, SebError


@dataclass(frozen=True, slots=True)
class Sent:
    """What a request says beside its body."""

    headers: Mapping[bytes, bytes]
    query: Mapping[str, str]
    path: Mapping[str, str]

    @property
    def media_type(self) -> str:
        return media_type(self.headers.get(b"content-type", b""))


@dataclass(frozen=True, slots=True)
class Bounds:
    """`record_bytes`: of a value in the topic; `total_bytes`: of all records of a request;
    `latest_us`: of a timestamp."""

    record_bytes: int
    total_bytes: int
    latest_us: int


@dataclass(slots=True)
class Pushed:
    """The records of a request, as they are collected. `topic`: that the body names, "" for none.
    `answer`: the body of the success, where it depends on the request alone."""

    bounds: Bounds
    topic: str = ""
    answer: bytes = b""
    size_bytes: int = 0
    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    timestamps_us: list[int | None] = field(default_factory=list)

    def add(
        self,
        value: bytes | None,
        *,
        timestamp_us: int | None = None,
        key: bytes | None = None,
        headers: bytes = b"",
    ) -> None:
        """A timestamp that cannot be is that of a wrong clock: the time of arrival takes its place,
        because a sender that is refused drops all its records. A few bytes of a request may become
        many: what all records share is stored with each. Raises RequestTooLargeError."""
        if timestamp_us is not None and not 0 <= timestamp_us <= self.bounds.latest_us:
            timestamp_us = None
        self.size_bytes += len(value or b"") + len(key or b"") + len(headers)
        if len(self.values) == limits.RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
        if self.size_bytes > self.bounds.total_bytes:
            raise RequestTooLargeError(
                f"The records of the request have more than {self.bounds.total_bytes} bytes; send "
                "smaller requests."
            )
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.timestamps_us.append(timestamp_us)

    def records(self) -> NewRecords:
        return NewRecords(
            self.values,
            self.keys if any(key is not None for key in self.keys) else None,
            self.headers if any(self.headers) else None,
            self.timestamps_us,
        )


Reader = Callable[[bytes, Sent, Bounds], Pushed]


@dataclass(frozen=True, kw_only=True)
class Push:
    """A protocol. `read` is a function of a module, for a child process runs it.

    `topic_of`: where a request at the root names its topic, "" if its body does; None for a
    protocol that is served under inlets only. `answer`: of a success; no Appended if there was no
    record. `refusal`: of an error, its detail and the media type of the request, the media type
    and the body of the answer. `inflated_bytes`: how long a body of a media type will become.
    """

    name: str
    title: str
    paths: Sequence[str]
    media_types: Sequence[str]
    error_media: Sequence[str]
    read: Reader
    answer: Callable[[Appended | None, Pushed, Sent], Answer]
    refusal: Callable[[SebError, str, str], tuple[str, bytes]]
    topic_of: Callable[[Sent], str] | None = None
    token_of: Callable[[bytes | None], str] = token_of
    inflated_bytes: Callable[[bytes, str], int] = lambda body, _media_type: len(body)
    parameters: Sequence[Json] = ()
    others: Sequence[Route] = ()  # checks of a connection; before Litestar's own OPTIONS

    async def parse(
        self,
        parser: Parser,
        owner: str,
        body: bytes,
        sent: Sent,
        reservation: Reservation,
        bounds: Bounds,
    ) -> Pushed:
        """Raises what `read` raises. Afterwards the reservation covers the records."""
        inflated_bytes = self.inflated_bytes(body, sent.media_type)
        if inflated_bytes > limits.PUSH_BYTES_MAX:
            raise RequestTooLargeError(
                f"The body has {inflated_bytes} bytes (after inflating); at most "
                f"{limits.PUSH_BYTES_MAX} are allowed here. Send smaller requests."
            )
        reservation.grow(inflated_bytes)
        pushed = await parser.parse_apart(owner, self.read, body, sent, bounds)
        reservation.grow(max(0, pushed.size_bytes - inflated_bytes))
        return pushed

    @property
    def query(self) -> frozenset[str]:
        """The names of its query parameters."""
        return frozenset(one["name"] for one in self.parameters if one["in"] == "query")

    def documented(self) -> dict[str, Any]:
        """What each of its routes declares."""
        return {
            "summary": f"Append records as {self.title}",
            "parameters": list(self.parameters),
            "body": {media_type: Content(schema={}) for media_type in self.media_types},
            "error_media": self.error_media,
            "replies": {200: Reply(description="Stored"), 204: Reply(description="Stored")},
        }

    def operations(self) -> Iterator[tuple[str, str]]:
        """Each path, and how the id of its operation ends."""
        for i, path in enumerate(self.paths):
            yield path, self.name + (str(i + 1) if i else "")

    def protocol(self) -> Protocol:
        """Its routes at the root, with an API key."""
        routes = [
            route(
                "POST",
                path,
                f"push{suffix}",
                tag="Log shippers",
                errors=SAFE_APPEND_ERRORS,
                decodes=False,
                authenticate=partial(_enter, self),
                **self.documented(),
            )(partial(_take, self))
            for path, suffix in self.operations()
            if self.topic_of is not None
        ]
        return Protocol(routes=[*self.others, *routes], answer_error=partial(answer_error, self))


def bounds_of(ctx: RequestContext, topic: str) -> Bounds:
    """`topic` may not exist yet, and may be unknown ("")."""
    latest_us = ctx.broker.clock.wall_us() + limits.TIMESTAMP_AHEAD_US_MAX
    return Bounds(
        ctx.broker.topics.record_bytes_of(topic), ctx.options.max_request_bytes, latest_us
    )


def _enter(push: Push, request: AnyRequest, services: Services, known: frozenset[str]) -> Call:
    return enter(request, services.broker, known, token_of=push.token_of)


async def _take(push: Push, ctx: RequestContext) -> object:
    call, options, broker = ctx.call, ctx.options, ctx.broker
    assert push.topic_of is not None
    sent = Sent(call.headers, call.query, ctx.path)
    topic = push.topic_of(sent)
    broker.authorize(call.key, "produce", check_topic_name(topic) if topic else None)
    body, reservation = await read_body(
        ctx.request.receive, call.headers, call.owner, broker.pending, limits.PUSH_BYTES_MAX
    )
    try:
        owner = call.key.api_key_id
        bounds = bounds_of(ctx, topic)
        pushed = await push.parse(options.parser, owner, body, sent, reservation, bounds)
        look_again(ctx.request.scope)
        if not pushed.values:
            reservation.release()
            return push.answer(None, pushed, sent)
        named = check_topic_name(topic or pushed.topic)
        broker.authorize(call.key, "produce", named)
    except BaseException:
        reservation.release()
        raise
    appended = await broker.appends.append(
        call.key, named, pushed.records(), reservation, address=call.address
    )
    return push.answer(appended, pushed, sent)


def answer_error(
    push: Push, request: Request[Any, Any, Any], exception: Exception
) -> Response[bytes]:
    """The exception handler of its routes: the status and the headers are those of all errors."""
    error = error_of(request, exception)
    detail = problem(error, "", to_admin=is_for_admin(request))["detail"]
    given = media_type(request.headers.get("content-type", "").encode("latin-1"))
    return answer_error_as(error, *push.refusal(error, detail, given))


JSON_MEDIA: Final = "application/json"
