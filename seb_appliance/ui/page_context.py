"""What every page needs: who asks, whether they may, and how to answer.

`enter` is for reading, `changes` for what changes something, `page` answers. A page is
`templates/pages/NAME.html`; a part of it that htmx fetches alone is `templates/partials/ID.html`,
where ID (with `-` for `_`) is the id of the element, and the page includes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import Request
from litestar.types import ASGIApp, Scope

from seb_appliance import limits
from seb_appliance.broker.access.audit import USER, Actor
from seb_appliance.broker.broker import Broker
from seb_appliance.broker.ports import UserRow
from seb_appliance.broker.shares import OPERATOR
from seb_appliance.errors import ForbiddenError, SebError
from seb_appliance.ui import answers, forms
from seb_appliance.ui.answers import Sent
from seb_appliance.ui.forms import Form
from seb_appliance.ui.once import Answer
from seb_appliance.ui.options import UiOptions
from seb_appliance.ui.rendering import Renderer
from seb_appliance.ui.sessions import Session, Sessions, cookie_header, token_in

# Whether an unsafe request comes from a page of ours.
#
# A browser says so itself, in headers that no page can set: Sec-Fetch-Site over HTTPS and on
# localhost, Origin everywhere. So there is no token in forms. What says neither is refused.


def check_same_origin(headers: Mapping[bytes, bytes]) -> None:
    """Raises ForbiddenError."""
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
            "This change was asked for from another site, or by a client that does not say where "
            "it comes from. Open the admin page itself; programs use the API with an API key."
        )


def _host_of(origin: str) -> str:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("http", "https") else ""


AnyRequest = Request[Any, Any, Any]
VISIT_STATE: Final = "seb_visit"
LOGIN: Final = "/ui/login"
STRANGERS: Final = "strangers"  # whose forms are read before it is known who they are
FORM_ID: Final = "form_id"  # a hidden field of each form, see once.py


class NotLoggedInError(Exception):
    """There is no session; the way back is the path that was asked for."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who is logged in, or (`session` None) of anybody. `query` holds only
    fields that the page knows. `origin`: how the client reached us, for command lines. `part`: the
    id of the element that htmx wants, "" for a page."""

    session: Session | None
    token: str
    query: Form
    origin: str
    path: str
    part: str
    address: str
    user_agent: str
    secure: bool

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


@dataclass(frozen=True, slots=True)
class Change:
    """A visit that may change something, and its form."""

    visit: Visit
    form: Form


Handler = Callable[[AnyRequest], Awaitable[ASGIApp]]
Changer = Callable[[AnyRequest, Change], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class FormProblem:
    """Why a form was not taken, and what it held, to show it again."""

    detail: str
    values: dict[str, str]


class Desk:
    """One for all pages."""

    def __init__(self, broker: Broker, options: UiOptions, renderer: Renderer) -> None:
        self.broker = broker
        self.options = options
        self.clock = options.clock
        self.sessions = Sessions(broker.accounts.get, options.clock, options.random_bytes)
        self._renderer = renderer

    def enter(self, request: AnyRequest, known: frozenset[str] = frozenset()) -> Visit:
        """Somebody who is logged in; `known` are the query fields of the page. Raises
        NotLoggedInError, BadRequestError."""
        visit = self.look(request, known)
        if visit.session is None:
            raise NotLoggedInError
        return visit

    def changes(self, fields: frozenset[str] = frozenset()) -> Callable[[Changer], Handler]:
        """Makes a handler of one that changes something: it is given a form of a page of ours with
        these `fields`, sent by an admin, and the same form only once. Raises ForbiddenError,
        SentBeforeError and what `enter` and `forms.read` raise."""

        def once(changer: Changer) -> Handler:
            async def handler(request: AnyRequest) -> ASGIApp:
                change = await self._change(request, fields | {FORM_ID})
                return await self._once(change, partial(changer, request, change))

            return handler

        return once

    async def _change(self, request: AnyRequest, fields: frozenset[str]) -> Change:
        check_same_origin(_headers(request.scope))
        visit = self.enter(request)
        if not visit.is_admin:
            raise ForbiddenError(
                "You are logged in as a viewer, who sees everything and changes nothing. Ask for a "
                "user with the role admin: seb admin add-user NAME --role admin"
            )
        form = await self.form(request, fields, OPERATOR)
        if self.sessions.find(visit.token) is not visit.session:  # ended while the form came
            raise NotLoggedInError
        return Change(visit, form)

    @staticmethod
    async def _once(change: Change, work: Callable[[], Awaitable[ASGIApp]]) -> ASGIApp:
        session, form = change.visit.session, change.form
        assert session is not None, change.visit.path

        async def answer() -> Answer:
            return Answer(await work(), session.notice)

        if not form.text(FORM_ID):  # a program's
            return (await answer()).sent
        key = change.visit.path.encode() + form.digest
        answered = await session.forms.once(key, answer)
        session.notice = answered.notice
        return answered.sent

    async def form(
        self, request: AnyRequest, fields: frozenset[str], owner: str = STRANGERS
    ) -> Form:
        """The form, whoever sent it, read in the share of `owner`. Raises what `forms.read`
        raises."""
        with self.broker.pending.reserve(owner, 0) as reservation:
            return await forms.read(request.receive, _headers(request.scope), fields, reservation)

    def look(self, request: AnyRequest, known: frozenset[str] = frozenset()) -> Visit:
        """Whoever it is. Raises BadRequestError."""
        scope = request.scope
        headers = _headers(scope)
        token = token_in(headers.get(b"cookie"))
        by_itself = b"seb-by-itself" in headers  # a page that looks for news
        client = scope.get("client")
        agent = headers.get(b"user-agent", b"")[: limits.USER_AGENT_CHARACTERS_MAX]
        # A client that says so falsely only keeps its own cookie from itself.
        proto = headers.get(b"x-forwarded-proto", scope["scheme"].encode())
        session = self.sessions.find(token, used=not by_itself)
        visit = Visit(
            session,
            token,
            forms.parse(b"", frozenset()),
            f"{proto.decode('latin-1')}://{headers.get(b'host', b'').decode('latin-1')}",
            scope["path"],
            headers.get(b"hx-target", b"").decode("latin-1") if b"hx-request" in headers else "",
            client[0] if client is not None else "",
            agent.decode("latin-1"),
            proto == b"https",
        )
        scope["state"][VISIT_STATE] = visit  # who is shown when the rest is refused
        query = forms.parse(scope["query_string"], known)
        return dataclasses.replace(visit, query=query)

    def page(
        self,
        visit: Visit,
        name: str,
        *,
        parts: frozenset[str] = frozenset(),
        status: int = 200,
        **model: Any,
    ) -> Sent:
        """Page `name`, or that one of its `parts` (ids of elements) that htmx asks for."""
        if visit.part in parts:
            template = f"partials/{visit.part.replace('-', '_')}.html"
            return answers.html(status, self._render(visit, template, "", model))
        notice = ""
        if visit.session is not None:
            notice, visit.session.notice = visit.session.notice, ""
        return answers.html(status, self._render(visit, f"pages/{name}.html", notice, model))

    def fragment(self, visit: Visit, name: str, **model: Any) -> str:
        """Partial `name` alone, for what is sent bit by bit."""
        return self._render(visit, f"partials/{name}.html", "", model)

    def see_other(self, visit: Visit, path: str, notice: str = "") -> Sent:
        """To another page after a change; `notice` is shown there, once."""
        if visit.session is not None:
            visit.session.notice = notice
        return answers.see_other(path)

    def refused(self, visit: Visit | None, error: SebError, request_id: str) -> Sent:
        """The page that says why not."""
        part = visit is not None and visit.part
        template = "partials/refused.html" if part else "pages/refused.html"
        headers = [(b"retry-after", b"6")] if error.status in (429, 503) else []
        model = {"error": error, "request_id": request_id}
        return answers.html(error.status, self._render(visit, template, "", model), headers)

    def log_in_first(self, request: AnyRequest) -> Sent:
        """To the log-in, and back here afterwards; a part of a page takes the whole page there."""
        scope = request.scope
        asked = scope["path"] + ("?" + scope["query_string"].decode("latin-1")).rstrip("?")
        way_back = answers.local_path(asked) if request.method == "GET" else answers.START
        # A query has characters of its own: it is a field of ours.
        quoted = way_back.replace("%", "%25").replace("&", "%26").replace("+", "%2B")
        path = LOGIN if way_back == answers.START else f"{LOGIN}?next={quoted}"
        if b"hx-request" in _headers(scope):
            return answers.html(401, "", [(b"hx-redirect", LOGIN.encode())])
        return answers.see_other(path)

    @staticmethod
    def cookie(token: str, visit: Visit) -> tuple[bytes, bytes]:
        return cookie_header(token, secure=visit.secure)

    def _render(
        self, visit: Visit | None, template: str, notice: str, model: dict[str, Any]
    ) -> str:
        return self._renderer.render(
            template, visit=visit, notice=notice, now_us=self.clock.wall_us(), **model
        )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Lower-case names; of a header that comes twice, the first."""
    return dict(reversed(list(scope["headers"])))
