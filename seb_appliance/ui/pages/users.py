"""Users of this page: who they are, and, for admins, what becomes of them."""

from __future__ import annotations

import unicodedata
from typing import Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from seb_appliance.broker.access.users import check_user_name
from seb_appliance.broker.ports import UserRow
from seb_appliance.errors import BadNameError, BadRequestError, ForbiddenError, NotFoundError
from seb_appliance.formats.operations import Role
from seb_appliance.ui.page_context import AnyRequest, Change, Desk, FormProblem, Visit

_PATH: Final = "/ui/users"
_ROLES: Final[dict[str, Role]] = {"viewer": "viewer", "admin": "admin"}


def routes(desk: Desk) -> list[HTTPRouteHandler]:
    return [*_listing(desk), *_changing(desk)]


def _listing(desk: Desk) -> list[HTTPRouteHandler]:
    @get("/users")
    async def show(request: AnyRequest) -> ASGIApp:
        return _page(desk, desk.enter(request))

    @post("/users")
    @desk.changes(frozenset({"name", "role", "password"}))
    async def add(_request: AnyRequest, change: Change) -> ASGIApp:
        visit, form = change.visit, change.form
        name, asked = form.text("name"), form.text("role")
        try:
            check_user_name(name)
            role = _role(asked)
            password_hash = await _hash(desk, form.raw("password"))
            await desk.broker.accounts.add(name, role, password_hash, visit.actor)
        except (BadNameError, BadRequestError) as error:
            return _page(desk, visit, FormProblem(error.detail, {"name": name, "role": asked}))
        return desk.see_other(visit, _PATH, f"{name} can log in, as {role}.")

    @get("/users/{name:str}")
    async def show_one(request: AnyRequest) -> ASGIApp:
        visit = desk.enter(request)
        return _page_of(desk, visit, _user(desk, request))

    return [show, add, show_one]


def _changing(desk: Desk) -> list[HTTPRouteHandler]:
    @post("/users/{name:str}/password")
    @desk.changes(frozenset({"password"}))
    async def set_password(request: AnyRequest, change: Change) -> ASGIApp:
        user = _user(desk, request)
        try:
            password_hash = await _hash(desk, change.form.raw("password"))
        except BadRequestError as error:
            return _page_of(desk, change.visit, user, error.detail)
        await desk.broker.accounts.set_password(user.name, password_hash, change.visit.actor)
        words = f"{user.name} has another password, and is logged out everywhere."
        return desk.see_other(change.visit, f"{_PATH}/{user.name}", words)

    @post("/users/{name:str}/logout")
    @desk.changes()
    async def log_out(request: AnyRequest, change: Change) -> ASGIApp:
        user = _user(desk, request)
        desk.sessions.end_all(user.name)
        words = f"{user.name} is logged out everywhere."
        return desk.see_other(change.visit, f"{_PATH}/{user.name}", words)

    @post("/users/{name:str}/remove")
    @desk.changes(frozenset({"name"}))
    async def remove(request: AnyRequest, change: Change) -> ASGIApp:
        user = _user(desk, request)
        if user.name == change.visit.user.name:  # so that an admin is left
            raise ForbiddenError("Nobody removes themselves here. Another admin can do it.")
        if change.form.text("name") != user.name:
            words = "This is not the name of the user; nobody was removed."
            return _page_of(desk, change.visit, user, words)
        await desk.broker.accounts.remove(user.name, change.visit.actor)
        return desk.see_other(change.visit, _PATH, f"{user.name} is removed, and logged out.")

    return [set_password, log_out, remove]


def _role(text: str) -> Role:
    role = _ROLES.get(text)
    if role is None:
        raise BadRequestError("The role is viewer or admin.")
    return role


async def _hash(desk: Desk, password: str) -> str:
    """As the log-in will check it. Raises BadRequestError, OverloadedError."""
    return await desk.options.passwords.hash(unicodedata.normalize("NFC", password))


def _user(desk: Desk, request: AnyRequest) -> UserRow:
    """Raises NotFoundError."""
    name: str = request.scope["path_params"]["name"]
    user = desk.broker.accounts.get(name)
    if user is None:
        raise NotFoundError(f"There is no user {name[:100]!r}.")
    return user


def _page(desk: Desk, visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    status = 422 if problem else 200
    users = desk.broker.accounts.all()
    return desk.page(visit, "users", status=status, users=users, problem=problem)


def _page_of(desk: Desk, visit: Visit, user: UserRow, refused: str = "") -> ASGIApp:
    problem = FormProblem(refused, {}) if refused else None
    status = 422 if problem else 200
    return desk.page(visit, "user", status=status, user=user, problem=problem)
