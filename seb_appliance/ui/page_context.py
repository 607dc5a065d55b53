"""What every page needs: who asks, whether they may, and how to answer.

A page module declares its routes in a `Routes`; a handler gets a `Visit` and its path parameters.
A page is `templates/pages/NAME.html`; a part of it that htmx fetches alone is
`templates/partials/ID.html`, where ID (with `-` for `_`) is the id of the element in that page.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode, urlsplit

from litestar import Request
from litestar.types import ASGIApp, Receive, Scope

from seb_appliance import limits
from seb_appliance.addresses import known_as, network_of
from seb_appliance.broker.access.audit import USER, Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import UserRow
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import ForbiddenError, NotFoundError, RefusedError, SebError
from seb_appliance.ui import answers, forms
from seb_appliance.ui.answers import Renderer, Sent
from seb_appliance.ui.forms import Form
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.sessions import Answer, Session, Sessions, Throttle, cookie_header, token_in

AnyRequest = Request[Any, Any, Any]
Handler = Callable[..., Awaitable[ASGIApp]]
Endpoint = tuple[str, str, Callable[[AnyRequest], Awaitable[ASGIApp]]]
"""Method, path, and what answers."""
Role = Literal["anyone", "viewer", "admin"]
VISIT_STATE: Final = "seb_visit"
LOGIN: Final = "/ui/login"
# No name has a slash, so an escaped one would lead to the page of something else; as would dots.
_NO_PATH: Final = re.compile(rb"%2f|%5c|//|/(?:\.|%2e){1,2}(?:/|$)|/$", re.IGNORECASE)
FORM_ID: Final = "form_id"  # a hidden field of each form, see SentForms


@dataclass(frozen=True, slots=True)
class Route:
    """`query` and `fields`: the query parameters and form fields that the page knows. A POST by a
    viewer (a log-out) has no form. `again` shows the form again when it is refused; it is called
    like the handler, with a FormProblem as `problem`."""

    method: Literal["GET", "POST"]
    path: str
    role: Role
    query: frozenset[str]
    fields: frozenset[str]
    again: Handler | None


class Routes:
    """The routes of one page module. A handler is an async function that takes a Visit and the
    path parameters by name."""

    def __init__(self) -> None:
        self.all: list[tuple[Route, Handler]] = []

    def get(
        self,
        path: str,
        query: Iterable[str] = (),
        role: Role = "viewer",
        again: Handler | None = None,
    ) -> Callable[[Handler], Handler]:
        return self._declare(Route("GET", path, role, frozenset(query), frozenset(), again))

    def post(
        self,
        path: str,
        fields: Iterable[str] = (),
        role: Role = "admin",
        query: Iterable[str] = (),
        again: Handler | None = None,
    ) -> Callable[[Handler], Handler]:
        """An admin's form is handled once, even if it is submitted twice."""
        return self._declare(Route("POST", path, role, frozenset(query), frozenset(fields), again))

    def _declare(self, route: Route) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self.all.append((route, handler))
            return handler

        return declare


def check_same_origin(headers: Mapping[bytes, bytes]) -> None:
    """Raises ForbiddenError unless an unsafe request comes from one of our own pages.

    Browsers say so in headers that no page can set: Sec-Fetch-Site over HTTPS and on localhost,
    Origin everywhere. So forms need no token. A request with neither header is refused.
    """
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        allowed = site == b"same-origin"
    else:
        # The scheme is not compared: behind a proxy that speaks TLS, ours differs.
        origin = headers.get(b"origin", b"").decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        allowed = bool(host) and _host_of(origin) == host.lower()
    if not allowed:
        raise ForbiddenError(
            "The request comes from another site, or from a client that sends neither "
            "Sec-Fetch-Site nor Origin. Use the admin page itself; programs use the API."
        )


def _page_of(url: bytes) -> str:
    """Path and query of a URL; "" if it is none."""
    try:
        parts = urlsplit(url.decode("latin-1"))
    except ValueError:
        return ""
    return parts.path + ("?" + parts.query).rstrip("?")


def _host_of(origin: str) -> str:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""


class NotLoggedInError(Exception):
    """There is no session. After the log-in, the user returns to the requested path."""


@dataclass(frozen=True, slots=True)
class FormProblem:
    """Why a form was refused, and its values, to show it again."""

    detail: str
    values: dict[str, str]

    @classmethod
    def of(cls, error: RefusedError, form: Form) -> FormProblem:
        """With what is wrong with each field, if the error lists it."""
        listed = error.data.get("errors")
        found = listed if isinstance(listed, list) else []
        parts = [f"{one['path']}: {one['message']}." for one in found]
        return cls(" ".join([error.detail, *parts]), form.values)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request to a page, and how to answer it. `form`: the query of a GET, the body of a POST.
    `receive`: tells that the client has left. `origin`: the address by which it reached us, for
    command lines. `part`: the id of the element that htmx requests, "" for a whole page."""

    desk: Desk
    session: Session | None
    token: str
    form: Form
    receive: Receive
    origin: str
    path: str
    part: str
    address: str
    user_agent: str
    secure: bool

    @property
    def broker(self) -> Broker:
        return self.desk.broker

    @property
    def options(self) -> UiOptions:
        return self.desk.options

    @property
    def now_us(self) -> int:
        return self.desk.options.clock.wall_us()

    @property
    def user(self) -> UserRow:
        assert self.session is not None, self.path
        return self.session.user

    @property
    def is_admin(self) -> bool:
        return self.session is not None and self.session.user.role == "admin"

    @property
    def actor(self) -> Actor:
        """For the audit."""
        return Actor(USER + self.user.name, self.address, self.user_agent)

    def page(
        self,
        name: str,
        *,
        parts: Iterable[str] = (),
        status: int | None = None,
        address: str = "",
        **model: Any,
    ) -> Sent:
        """Page `name`, or the one of its `parts` (ids of elements) that htmx requests. The status
        is 422 if the model has a problem. `address`: what the browser shows as the address of the
        page once it has the part; "" for what the link says."""
        if status is None:
            problems = [value for value in model.values() if isinstance(value, FormProblem)]
            status = 422 if problems else 200
        if self.part in parts:
            shown = [(b"hx-replace-url", address.encode())] if address else []
            return answers.html(status, self.fragment(self.part.replace("-", "_"), **model), shown)
        notice = ""
        if self.session is not None:
            notice, self.session.notice = self.session.notice, ""
        template = f"pages/{name}.html"
        return answers.html(status, self.desk.render(self, template, notice=notice, **model))

    def fragment(self, name: str, **model: Any) -> str:
        """Partial `name` alone."""
        return self.desk.render(self, f"partials/{name}.html", **model)

    def see_other(self, path: str, notice: str = "") -> Sent:
        """A redirect after a change; the next page shows `notice` once."""
        if self.session is not None:
            self.session.notice = notice
        return answers.see_other(path)

    def with_cookie(self, path: str, token: str) -> Sent:
        """A redirect that sets the session cookie, or deletes it if `token` is empty."""
        return answers.see_other(path, [cookie_header(token, secure=self.secure)])


class Desk:
    """What all pages share: the broker, the sessions and the templates."""

    def __init__(self, broker: Broker, options: UiOptions, renderer: Renderer) -> None:
        self.broker = broker
        self.options = options
        self.sessions = Sessions(broker.accounts.get, options.clock, options.random_bytes)
        self.throttle = Throttle(options.clock)
        self.navigation = renderer.navigation
        self._renderer = renderer

    def endpoint(self, route: Route, work_on: Handler) -> Endpoint:
        """What answers a route: it admits the visitor, then calls the route's handler."""

        async def handle(request: AnyRequest) -> ASGIApp:
            visit = await self._admit(route, request)

            async def work() -> ASGIApp:
                parameters = request.scope["path_params"]
                try:
                    return await work_on(visit, **parameters)
                except RefusedError as error:
                    if route.again is None or isinstance(error, ForbiddenError):
                        raise
                    problem = FormProblem.of(error, visit.form)
                    return await route.again(visit, **parameters, problem=problem)

            if route.method == "POST" and route.role == "admin":
                return await self._once(visit, work)
            return await work()

        return route.method, f"/ui{route.path}".rstrip("/"), handle

    async def _admit(self, route: Route, request: AnyRequest) -> Visit:
        """Raises NotLoggedInError, ForbiddenError, BadRequestError and what `forms.read` raises."""
        headers = _headers(request.scope)
        if route.method == "POST":
            check_same_origin(headers)
        visit = self.look(request, route.query)
        if visit.session is None and route.role != "anyone":
            raise NotLoggedInError
        if route.role == "admin" and not visit.is_admin:
            raise ForbiddenError(
                "You are logged in as a viewer, who can see everything and change nothing. Ask for "
                "a user with the role admin: seb admin add-user NAME --role admin"
            )
        if route.method == "GET" or (not route.fields and route.role == "viewer"):
            return visit
        fields, room = route.fields, self.broker.strangers.reserve(network_of(visit.address), 0)
        if route.role == "admin":
            fields, room = fields | {FORM_ID}, self.broker.pending.reserve(OPERATOR, 0)
        with room as reservation:
            form = await forms.read(request.receive, headers, fields, reservation)
        # The session may have ended while the form arrived.
        if route.role == "admin" and self.sessions.find(visit.token) is not visit.session:
            raise NotLoggedInError
        return dataclasses.replace(visit, form=form)

    @staticmethod
    async def _once(visit: Visit, work: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp:
        session = visit.session
        assert session is not None, visit.path

        async def answer() -> Answer:
            return Answer(await work(), session.notice)

        if not visit.form.text(FORM_ID):  # sent by a program
            return (await answer()).sent
        answered = await session.forms.once(visit.path.encode() + visit.form.digest, answer)
        session.notice = answered.notice
        return answered.sent

    def look(self, request: AnyRequest, query: frozenset[str] = frozenset()) -> Visit:
        """The visit, logged in or not. Raises BadRequestError, NotFoundError."""
        scope = request.scope
        if _NO_PATH.search(scope["raw_path"]):
            raise NotFoundError("The admin page has no such page.")
        headers = _headers(scope)
        token = token_in(headers.get(b"cookie"))
        client = scope.get("client")
        agent = headers.get(b"user-agent", b"")[: limits.USER_AGENT_CHARACTERS_MAX]
        # A client that sends a false header only loses its own cookie.
        proto = headers.get(b"x-forwarded-proto", scope["scheme"].encode())
        visit = Visit(
            self,
            self.sessions.find(token, used=b"seb-by-itself" not in headers),
            token,
            Form([]),
            request.receive,
            f"{proto.decode('latin-1')}://{headers.get(b'host', b'').decode('latin-1')}",
            scope["path"],
            headers.get(b"hx-target", b"").decode("latin-1") if b"hx-request" in headers else "",
            known_as(client[0]) if client is not None else "",
            agent.decode("latin-1"),
            proto == b"https",
        )
        scope["state"][VISIT_STATE] = visit  # for the page that shows a refusal
        return dataclasses.replace(visit, form=forms.parse(scope["query_string"], query))

    def refused(self, visit: Visit | None, error: SebError, request_id: str) -> Sent:
        """The page of an error."""
        template = "partials/refused.html" if visit and visit.part else "pages/refused.html"
        text = self.render(visit, template, error=error, request_id=request_id)
        return answers.html(error.status, text)

    def render(self, visit: Visit | None, template: str, notice: str = "", **model: Any) -> str:
        now_us = self.options.clock.wall_us()
        return self._renderer.render(template, visit=visit, notice=notice, now_us=now_us, **model)


def log_in_first(request: AnyRequest) -> Sent:
    """To the log-in, and afterwards back to the page that the user saw; a part of a page takes the
    whole page there."""
    scope = request.scope
    headers = _headers(scope)
    requested = scope["path"] + ("?" + scope["query_string"].decode("latin-1")).rstrip("?")
    if b"hx-request" in headers:
        requested = _page_of(headers.get(b"hx-current-url", b""))
    elif request.method != "GET":
        requested = _page_of(headers.get(b"referer", b""))
    way_back = answers.local_path(requested)
    # The path is itself a query field of the log-in page.
    quoted = way_back.replace("%", "%25").replace("&", "%26").replace("+", "%2B")
    path = LOGIN if way_back == answers.START else f"{LOGIN}?next={quoted}"
    if b"hx-request" in headers:
        return answers.html(401, "", [(b"hx-redirect", path.encode())])
    return answers.see_other(path)


def link(path: str, **query: str | Sequence[str]) -> str:
    """A path with the query parameters that are not empty; one may have several values."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Names in lower case; of a repeated header, the first."""
    return dict(reversed(list(scope["headers"])))
