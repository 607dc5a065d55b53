"""Log-in, log-out, and the users of the admin page."""

from __future__ import annotations

import unicodedata
from operator import attrgetter as of
from typing import Final, cast

from litestar.types import ASGIApp

from seb_appliance import limits
from seb_appliance.broker.access.users import check_user_name
from seb_appliance.broker.ports import UserRow
from seb_appliance.errors import (
    BadRequestError,
    ForbiddenError,
    NotFoundError,
)
from seb_appliance.formats.operations import Role
from seb_appliance.ui import answers
from seb_appliance.ui.lists import FIELDS, Column, as_they_are, having, linked, listed
from seb_appliance.ui.page_context import LOGIN, FormProblem, Routes, Visit
from seb_appliance.ui.units import time_tag

routes = Routes()
_PATH: Final = "/ui/users"
_LOG_IN_PART: Final = "log-in"


@routes.get("/login", {"next"}, role="anyone")
async def show_log_in(visit: Visit) -> ASGIApp:
    way_back = answers.local_path(visit.form.raw("next", answers.START))
    if visit.session is not None:
        return answers.see_other(way_back)
    return _log_in_page(visit, way_back)


@routes.post("/login", {"name", "password", "next"}, role="anyone", query={"next"})
async def log_in(visit: Visit) -> ASGIApp:
    """Every failure has the same answer, whether the user exists or not."""
    name, password = visit.form.text("name"), visit.form.raw("password")
    way_back = answers.local_path(visit.form.raw("next", answers.START))
    sessions, throttle = visit.desk.sessions, visit.desk.throttle
    if not throttle.take(visit.address, name):
        words = "Too many log-ins failed from this address or for this user. Wait {} seconds."
        problem = FormProblem(words.format(limits.LOGIN_EVERY_S), {"name": name})
        return _log_in_page(visit, way_back, problem, status=429)
    user = visit.broker.accounts.get(name)
    # A very long password would cost much time: it is cut to one character over the limit.
    given = unicodedata.normalize("NFC", password[: limits.PASSWORD_CHARACTERS_MAX + 1])
    found = await visit.options.passwords.matches(given, user.password_hash if user else None)
    if not found or user is None or visit.broker.accounts.get(name) is not user:
        problem = FormProblem("Wrong user name or password.", {"name": name})
        return _log_in_page(visit, way_back, problem)
    throttle.succeeded(visit.address, name)
    sessions.end(visit.token)
    return visit.with_cookie(way_back, sessions.begin(user))


@routes.post("/logout", role="viewer")
async def log_out(visit: Visit) -> ASGIApp:
    visit.desk.sessions.end(visit.token)
    return visit.with_cookie(LOGIN, "")


@routes.post("/logout-everywhere", role="viewer")
async def log_out_everywhere(visit: Visit) -> ASGIApp:
    visit.desk.sessions.end_all(visit.user.name)
    return visit.with_cookie(LOGIN, "")


def _log_in_page(
    visit: Visit, way_back: str, problem: FormProblem | None = None, status: int = 401
) -> ASGIApp:
    return visit.page(
        "login",
        parts=[_LOG_IN_PART],
        status=status if problem else 200,
        way_back=way_back,
        problem=problem,
        has_users=bool(visit.broker.accounts.all()),
        command=visit.options.first_log_in,
        # The page waited for the first user, and only then asks for this part.
        first_user="admin" if visit.part == _LOG_IN_PART else "",
    )


_COLUMNS: Final[list[Column[UserRow, UserRow]]] = [
    Column("name", "Name", lambda user: linked(user.name, f"{_PATH}/{user.name}"), of("name")),
    Column("role", "Role", of("role"), of("role")),
    Column("set", "Password set", lambda user: time_tag(user.set_us), of("set_us"), "nowrap"),
]


async def _users_page(visit: Visit, problem: FormProblem | None = None) -> ASGIApp:
    users = await having(visit.form.text("filter"), visit.broker.accounts.all(), of("name"))
    listing = await listed(visit, "user-rows", _COLUMNS, users, as_they_are)
    return visit.page(
        "users", parts=["user-rows"], address=listing.address, listing=listing, problem=problem
    )


@routes.get("/users", FIELDS)
async def show(visit: Visit) -> ASGIApp:
    return await _users_page(visit)


@routes.post("/users", {"name", "role", "password"}, again=_users_page)
async def add(visit: Visit) -> ASGIApp:
    name, role = visit.form.text("name"), visit.form.text("role")
    check_user_name(name)
    if role not in ("viewer", "admin"):
        raise BadRequestError("The role must be viewer or admin.")
    await visit.broker.accounts.add(name, cast("Role", role), await _hash(visit), visit.actor)
    return visit.see_other(_PATH, f"{name} can log in, as {role}.")


async def _user_page(visit: Visit, name: str, problem: FormProblem | None = None) -> ASGIApp:
    return visit.page("user", user=_user(visit, name), problem=problem)


@routes.get("/users/{name:str}")
async def show_one(visit: Visit, name: str) -> ASGIApp:
    return await _user_page(visit, name)


@routes.post("/users/{name:str}/password", {"password"}, again=_user_page)
async def set_password(visit: Visit, name: str) -> ASGIApp:
    _user(visit, name)
    password_hash = await _hash(visit)
    await visit.broker.accounts.set_password(name, password_hash, visit.actor)
    words = f"{name} has a new password, and is logged out everywhere."
    return visit.see_other(f"{_PATH}/{name}", words)


@routes.post("/users/{name:str}/logout")
async def log_out_user(visit: Visit, name: str) -> ASGIApp:
    visit.desk.sessions.end_all(_user(visit, name).name)
    return visit.see_other(f"{_PATH}/{name}", f"{name} is logged out everywhere.")


@routes.post("/users/{name:str}/remove", {"name"}, again=_user_page)
async def remove(visit: Visit, name: str) -> ASGIApp:
    _user(visit, name)
    if name == visit.user.name:  # so that at least one admin remains
        raise ForbiddenError("You cannot remove yourself. Ask another admin to do it.")
    if visit.form.text("name") != name:
        raise BadRequestError("This is not the name of the user; nobody was removed.")
    await visit.broker.accounts.remove(name, visit.actor)
    return visit.see_other(_PATH, f"{name} is removed, and logged out.")


async def _hash(visit: Visit) -> str:
    """The hash of the form's password, normalized as in the log-in. Raises BadRequestError,
    OverloadedError."""
    password = unicodedata.normalize("NFC", visit.form.raw("password"))
    return await visit.options.passwords.hash(password)


def _user(visit: Visit, name: str) -> UserRow:
    """Raises NotFoundError."""
    user = visit.broker.accounts.get(name)
    if user is None:
        raise NotFoundError(f"There is no user {name[:100]!r}.")
    return user
