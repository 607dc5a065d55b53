"""What is asked of users of the admin page, and what operators do to them."""

from __future__ import annotations

from typing import Any

from seb_appliance import limits
from seb_appliance.broker.access import audit
from seb_appliance.broker.access.audit import Action, Actor
from seb_appliance.broker.access.users import Users, check_user_name, row_of
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.broker.ports import UserRow
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.formats.contents import encoded_bytes
from seb_appliance.formats.operations import Role, UserRemoved, UserSet


class Accounts:
    """What is asked of users, and done to them; `broker.accounts`."""

    def __init__(self, users: Users, writes: Writes, *, clock: Clock) -> None:
        self._users = users
        self._writes = writes
        self._clock = clock
        self._ahead = {row.name: row for row in users.all()}  # as they will be, once all is stored
        self._changed_in: dict[str, Window] = {}

    def get(self, name: str) -> UserRow | None:
        """The same object for as long as nothing of the user changes."""
        return self._users.get(name)

    def all(self) -> list[UserRow]:
        """By name."""
        return self._users.all()

    async def add(self, name: str, role: Role, password_hash: str, by: Actor) -> None:
        """Raises BadNameError, BadRequestError when there is one of that name."""
        check_user_name(name)

        def admit(window: Window) -> None:
            if name in self._ahead:
                error = BadRequestError(f"There is a user {name!r} already.")
                raise Refusal(error, self._changed_in.get(name))
            if len(self._ahead) >= limits.USERS_MAX:
                raise Refusal(BadRequestError(f"There are {limits.USERS_MAX} users already."), None)
            self._set(window, by, "user_added", self._event(name, role, password_hash))

        await self._writes.operate(admit, owner=by.owner)

    async def set_password(self, name: str, password_hash: str, by: Actor) -> None:
        """The sessions that the user has end. Raises NotFoundError."""

        def admit(window: Window) -> None:
            role = self._find(name).role
            self._set(window, by, "user_password_set", self._event(name, role, password_hash))

        await self._writes.operate(admit, owner=by.owner)

    async def remove(self, name: str, by: Actor) -> None:
        """Raises NotFoundError."""

        def admit(window: Window) -> None:
            before = {"role": self._find(name).role}
            del self._ahead[name]
            self._add(window, UserRemoved(name=name))
            action = Action("user_removed", "user", name, before)
            audit.note(window, by, self._clock.wall_us(), action)

        await self._writes.operate(admit, owner=by.owner)

    def _find(self, name: str) -> UserRow:
        """The user as it will be. Raises Refusal."""
        row = self._ahead.get(name)
        if row is None:
            error = NotFoundError(f"There is no user {name[:100]!r}.")
            raise Refusal(error, self._changed_in.get(name))
        return row

    def _event(self, name: str, role: Role, password_hash: str) -> UserSet:
        return UserSet(
            name=name, role=role, password_hash=password_hash, set_us=self._clock.wall_us()
        )

    def _set(self, window: Window, by: Actor, action_name: str, event: UserSet) -> None:
        self._ahead[event.name] = row_of(event)
        self._add(window, event)
        after: dict[str, Any] = {"role": event.role}
        audit.note(window, by, event.set_us, Action(action_name, "user", event.name, None, after))

    def _add(self, window: Window, event: UserSet | UserRemoved) -> None:
        self._changed_in = {
            name: within for name, within in self._changed_in.items() if not within.is_done
        }
        self._changed_in[event.name] = window
        window.add_event(event, encoded_bytes(event))
