"""P23: users of the admin page. Who was removed cannot log in, nor go on in a session; who was
added can, with the newest password only; at whoever acknowledged that, and at all who wrote later.

An operator makes, changes and removes users, as `seb admin` does; a visitor logs in. The page's
log-in, its sessions and the check of passwords are the product's; the hash is a cheap one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from argon2.exceptions import VerificationError

from seb_appliance.broker.broker import Broker
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.ops.host import passwords
from seb_appliance.ops.serve import control_users
from seb_appliance.ui.pages.users import log_in
from seb_appliance.ui.sessions import Sessions, Throttle
from tests.simulation.clients import Failed, is_refusal
from tests.simulation.known import Known
from tests.simulation.process import Process
from tests.simulation.world import World

_USERS = ["ann", "bob", "eve"]
_TOKENS_KEPT = 20


class _CheapHasher:
    def hash(self, password: str) -> str:
        return "cheap$" + hashlib.sha256(password.encode()).hexdigest()

    def verify(self, password_hash: str, password: str) -> bool:
        if self.hash(password) != password_hash:
            raise VerificationError
        return True


def cheap_passwords() -> contextlib.AbstractContextManager[Any]:
    return mock.patch.object(passwords, "_HASHER", _CheapHasher())


@dataclass
class _User(Known):
    """`password`: "" if it is not there."""

    password: str = ""


@dataclass
class _Token:
    """Of a session that `process` began for a user of this version."""

    token: str
    name: str
    version: int
    process: Process


@dataclass
class _Desk:
    """What the admin page of one process has in memory."""

    passwords: passwords.Passwords
    sessions: Sessions
    throttle: Throttle
    broker: Broker = field(repr=False)


class Visitors:
    def __init__(self, world: World) -> None:
        self._world = world
        self._draws = Random(world.draws.getrandbits(64))
        self._users = {name: _User() for name in _USERS}
        self._desks: dict[Broker, _Desk] = {}
        self._tokens: list[_Token] = []
        self._tries = 0
        self._found: list[str] = []

    # --- the operator ---

    async def operate(self) -> None:
        """A name is used again once its user was removed for sure, and never if it is unsure."""
        while not self._world.over:
            await asyncio.sleep(2.0 * self._draws.random())
            name = self._draws.choice(list(self._users))
            user = self._users[name]
            if user.unsure:
                del self._users[name]
                self._users[f"{name}{len(name)}"] = _User()
                continue
            if not user.password:
                await self._change(name, user, "add-user", f"{name}-{user.version}-password")
            elif self._draws.random() < 0.4:
                await self._change(name, user, "set-password", f"{name}-{user.version}-password")
            else:
                await self._change(name, user, "remove-user", "")

    async def _change(self, name: str, user: _User, command: str, password: str) -> None:
        """Repeated until it is answered. Who adds or changes a user in vain leaves it unsure; once
        it is removed, only an attempt to add it may still be on its way."""
        arguments = {"name": name, "role": "viewer", "password": password}
        user.changing, maybe = True, False
        while True:
            try:
                _, by = await self._world.ask(lambda b: self._command(b, command, arguments))
            except (BadRequestError, NotFoundError):  # an earlier attempt did it
                user.unsure = True
                break
            except Failed as error:
                maybe = maybe or not is_refusal(error)
                if self._world.over or not getattr(error, "retryable", True):
                    user.unsure = user.unsure or maybe
                    user.changing = False
                    return
                await asyncio.sleep(0.3)
            else:
                user.acknowledged(by)
                user.unsure = user.unsure or (maybe and command != "remove-user")
                break
        user.password, user.changing = password, False
        self._world.note("operator", command, name, user.version, user.unsure)

    async def _command(self, broker: Broker, command: str, arguments: dict[str, Any]) -> object:
        handlers = control_users.handlers(broker, self._desk(broker).passwords)
        return await handlers[command](arguments)

    def _desk(self, broker: Broker) -> _Desk:
        desk = self._desks.get(broker)
        if desk is None:
            clock, draws = broker.clock, Random(self._draws.getrandbits(64))
            sessions = Sessions(broker.accounts.get, clock, draws.randbytes)
            desk = _Desk(passwords.Passwords(), sessions, Throttle(clock), broker)
            self._desks[broker] = desk
        return desk

    # --- the visitor ---

    async def visit(self) -> None:
        while not self._world.over:
            await asyncio.sleep(1.0 * self._draws.random())
            if self._tokens and self._draws.random() < 0.5:
                await self._go_on(self._draws.choice(self._tokens))
            else:
                await self._log_in(self._draws.choice(list(self._users)))

    async def _log_in(self, name: str) -> None:
        user, machine = self._users[name], self._draws.choice(self._world.machines)
        version, settled = user.version, user.is_settled
        of_version = self._draws.choice([version, version, max(0, version - 1)])
        password = f"{name}-{of_version - 1}-password" if of_version else "a wrong password"
        right = password == user.password
        found = await self._asked(lambda b: self._page(b, name, password), machine)
        if found is None:
            return
        (token, status), by = found
        if token:
            self._tokens = [*self._tokens, _Token(token, name, version, by)][-_TOKENS_KEPT:]
        same = settled and user.is_settled and user.version == version
        if not same or not user.is_known_to(by) or status == 429:
            return
        if bool(token) != right:
            what = "could" if token else "could not"
            self._found.append(f"P23 {name} {what} log in at {by.name} with {password}: {user}")

    async def _page(self, broker: Broker, name: str, password: str) -> tuple[str, int]:
        """The token of the session, "" if the page asks again; and the page's status."""
        desk, told = self._desk(broker), [200]
        given = {"name": name, "password": password, "next": "/ui"}
        self._tries += 1

        def page(*_: object, status: int = 200, **__: object) -> str:
            told[0] = status
            return ""

        visit: Any = SimpleNamespace(
            form=SimpleNamespace(text=given.__getitem__, raw=lambda field, _="": given[field]),
            desk=desk,
            broker=broker,
            options=SimpleNamespace(passwords=desk.passwords, first_log_in=""),
            address=f"192.0.2.{self._tries % 250}",
            token="",
            part="",
            page=page,
            with_cookie=lambda _, token: token,
        )
        answer: Any = await log_in(visit)
        return str(answer), told[0]

    async def _go_on(self, one: _Token) -> None:
        """Ask for a page in a session. It lives while its user is as at the log-in."""
        user = self._users.get(one.name, _User())
        version, settled = user.version, user.is_settled
        machine = next((m for m in self._world.machines if m.process is one.process), None)
        if machine is None or not one.process.runs:
            self._tokens.remove(one)
            return
        found = await self._asked(lambda b: self._session(b, one.token), machine)
        same = settled and user.is_settled and user.version == version
        if found is None or not same or not user.is_known_to(found[1]):
            return
        if found[0] and one.version < version:
            self._found.append(f"P23 {one.name} is still logged in at {found[1].name}: {user}")

    async def _session(self, broker: Broker, token: str) -> bool:
        return self._desk(broker).sessions.find(token) is not None

    async def _asked(
        self, work: Callable[[Broker], Awaitable[Any]], machine: Any
    ) -> tuple[Any, Process] | None:
        try:
            return await self._world.ask(work, machine)
        except Failed:
            return None

    # --- in the end ---

    def violations(self, broker: Broker) -> Iterator[str]:
        """`broker`: of a start from the bucket alone."""
        yield from self._found
        for name, user in self._users.items():
            row = broker.accounts.get(name)
            if not user.is_settled:
                continue
            if (row is not None) != bool(user.password):
                yield f"P23 {name} is there in the end: {row is not None}; {user}"
            elif row is not None and row.password_hash != _CheapHasher().hash(user.password):
                yield f"P23 {name} has another password in the end; {user}"
