"""Log in, log out. Every failure has one answer, whether the user exists or not."""

from __future__ import annotations

import unicodedata
from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.errors import QuotaExceededError
from seb_appliance.ui import answers
from seb_appliance.ui.page_context import (
    LOGIN,
    AnyRequest,
    Desk,
    FormProblem,
    Visit,
    check_same_origin,
)
from seb_appliance.ui.sessions import Throttle

_QUERY: Final = frozenset({"next"})
_FIELDS: Final = frozenset({"name", "password", "next"})
_WRONG: Final = "There is no such user, or this is not the password."


def routes(desk: Desk, throttle: Throttle) -> list[HTTPRouteHandler]:
    @get("/login")
    async def show(request: AnyRequest) -> ASGIApp:
        visit = desk.look(request, _QUERY)
        way_back = answers.local_path(visit.query.raw("next", answers.START))
        if visit.session is not None:
            return answers.see_other(way_back)
        return _page(desk, visit, way_back)

    @post("/login")
    async def log_in(request: AnyRequest) -> ASGIApp:
        check_same_origin(dict(request.scope["headers"]))
        visit = desk.look(request, _QUERY)
        form = await desk.form(request, _FIELDS)
        name, password = form.text("name"), form.raw("password")
        way_back = answers.local_path(form.raw("next", answers.START))
        if not throttle.take(visit.address, name):
            raise QuotaExceededError(
                "Too many log-ins failed from this address or for this user. Wait "
                f"{limits.LOGIN_EVERY_S} seconds and try again.",
                retry_after_s=limits.LOGIN_EVERY_S,
            )
        user = desk.broker.accounts.get(name)
        # One too long would be a way to keep us busy; it is checked as an empty one would be.
        given = unicodedata.normalize("NFC", password[: limits.PASSWORD_CHARACTERS_MAX + 1])
        found = await desk.options.passwords.matches(given, user.password_hash if user else None)
        if not found or user is None or desk.broker.accounts.get(name) is not user:
            problem = FormProblem(_WRONG, {"name": name})
            return _page(desk, visit, way_back, problem, status=401)
        throttle.succeeded(visit.address, name)
        desk.sessions.end(visit.token)
        token = desk.sessions.begin(user)
        return answers.see_other(way_back, [desk.cookie(token, visit)])

    @post("/logout")
    async def log_out(request: AnyRequest) -> ASGIApp:
        visit = _leaving(desk, request)
        desk.sessions.end(visit.token)
        return answers.see_other(LOGIN, [desk.cookie("", visit)])

    @post("/logout-everywhere")
    async def log_out_everywhere(request: AnyRequest) -> ASGIApp:
        visit = _leaving(desk, request)
        desk.sessions.end_all(visit.user.name)
        return answers.see_other(LOGIN, [desk.cookie("", visit)])

    return [show, log_in, log_out, log_out_everywhere]


def _leaving(desk: Desk, request: AnyRequest) -> Visit:
    check_same_origin(dict(request.scope["headers"]))
    return desk.enter(request)


def _page(
    desk: Desk, visit: Visit, way_back: str, problem: FormProblem | None = None, status: int = 200
) -> ASGIApp:
    return desk.page(
        visit,
        "login",
        status=status,
        way_back=way_back,
        problem=problem,
        has_users=bool(desk.broker.accounts.all()),
    )
