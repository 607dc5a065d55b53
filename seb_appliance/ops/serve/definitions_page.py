"""The file of definitions, exported and applied by a user of the admin page, as by `seb apply`."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from litestar.types import ASGIApp

from seb_appliance.api.server.auth import OWN_KEY_STATE
from seb_appliance.broker.access.audit import Actor
from seb_appliance.broker.values import ApiKeyView
from seb_appliance.client import Admin, ApplianceError
from seb_appliance.definitions.making import make, word
from seb_appliance.definitions.own_admin import Ask, OwnAdmin, OwnAnswer, for_threads
from seb_appliance.definitions.state import (
    FILE_MEMBER,
    Change,
    Json,
    Plan,
    State,
    export,
    look,
    plan,
    read_wanted,
    write_words,
)
from seb_appliance.errors import BadRequestError, ConfigurationError
from seb_appliance.formats.api_key_members import Grant
from seb_appliance.ui.options import Applied, PlannedChange, PlanShown

_SOURCE: Final = "the file"
T = TypeVar("T")


class DefinitionsOfPage:
    """One user at a time. The work is done in a thread; its requests go through the API, as those
    of the command do, and are audited as the user's."""

    def __init__(self, app: Callable[[], ASGIApp]) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def export(self, by: Actor) -> str:
        """Raises BadRequestError."""
        return await self._run(by, lambda admin: write_words(export(admin)))

    async def plan(self, by: Actor, text: str) -> PlanShown:
        """Raises BadRequestError."""
        return await self._run(by, lambda admin: _shown(_plan(admin, text)[1]))

    async def apply(self, by: Actor, text: str, stood: str) -> Applied:
        """`stood`: of the plan that the user agreed to. Raises BadRequestError."""

        def work(admin: Admin) -> Applied:
            wanted, planned = _plan(admin, text)
            if _digest(planned) != stood:
                raise BadRequestError(
                    "The file or the appliance has changed since the preview; nothing was "
                    "changed. Look at the new preview."
                )
            return _make_all(admin, wanted, planned)

        return await self._run(by, work)

    async def _run(self, by: Actor, work: Callable[[Admin], T]) -> T:
        admin = for_threads(OwnAdmin(self._asking(by)), asyncio.get_running_loop())
        try:
            async with self._turn:
                return await asyncio.to_thread(work, admin)
        except (ApplianceError, ConfigurationError) as error:
            raise BadRequestError(error.detail) from error

    def _asking(self, by: Actor) -> Ask:
        key = ApiKeyView(by.name, by.name, (Grant(operation="admin"),), 0)
        agent = by.user_agent.encode("latin-1")

        async def ask(method: str, path: str, body: bytes) -> OwnAnswer:
            parts = urlsplit(path)
            headers = [
                (b"host", b"localhost"),
                (b"user-agent", agent),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ]
            scope: Any = {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": "1.1",
                "method": method,
                "scheme": "http",
                "path": parts.path,
                "raw_path": parts.path.encode(),
                "query_string": parts.query.encode(),
                "root_path": "",
                "headers": headers,
                "client": (by.address, 0),
                "server": ("localhost", 0),
                "state": {OWN_KEY_STATE: key},
                "extensions": {},
            }
            sent: list[Any] = []

            async def receive() -> Any:
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            await self._app()(scope, receive, send)
            named = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
            content = b"".join(one.get("body", b"") for one in sent[1:])
            return OwnAnswer(sent[0]["status"], named, content)

        return ask


def _plan(admin: Admin, text: str) -> tuple[State, Plan]:
    """Nothing is deleted: who wants that uses the command. Raises ConfigurationError,
    ApplianceError, BadRequestError."""
    wanted = read_wanted(text.encode(), _SOURCE)
    return wanted, plan(wanted, look(admin, wanted), prune=False, in_use="")


def _digest(planned: Plan) -> str:
    return hashlib.sha256(msgspec.json.encode(planned.changes)).hexdigest()


def _shown(planned: Plan) -> PlanShown:
    changes = [
        PlannedChange(
            one.action,
            one.kind,
            one.name,
            [
                (name, word(one.before.get(name)), word(one.after.get(name)))
                for name in {**one.before, **one.after}
            ],
        )
        for one in planned.changes
    ]
    return PlanShown(changes, [(one.kind, one.name) for one in planned.extra], _digest(planned))


def _make_all(admin: Admin, wanted: State, planned: Plan) -> Applied:
    """Stops at the first change that fails."""
    secrets: list[tuple[str, str]] = []

    def keep(made: Json) -> None:
        secrets.append((made["name"], made["secret"]))

    done = 0
    for change in planned.changes:
        try:
            make(admin, change, _members(wanted, change), keep)
        except ApplianceError as error:
            certain = "was not made" if error.side_effects == "none" else "may have been made"
            words = f"{change.action} {change.kind} {change.name} {certain}: {error.detail}"
            return Applied(done, len(planned.changes), secrets, words)
        done += 1
    return Applied(done, done, secrets, "")


def _members(wanted: State, change: Change) -> Json:
    """The file that its secret lies in is on another machine: a new one gets a random secret."""
    members = wanted[f"{change.kind}s"][change.name]
    members.pop(FILE_MEMBER, None)
    return members
