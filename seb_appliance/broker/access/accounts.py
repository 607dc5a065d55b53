"""Changes of the users of the admin page, by operators."""

from __future__ import annotations

from seb_appliance import limits
from seb_appliance.broker.access.audit import Action, Actor, AuditedWrites, RowsAhead
from seb_appliance.broker.access.users import Users, check_user_name, row_of
from seb_appliance.broker.append.admission import Refusal
from seb_appliance.broker.append.window import Window
from seb_appliance.broker.append.writes import Writes
from seb_appliance.clock import Clock
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.formats.operations import Role, UserRemoved, UserSet


class Accounts:
    """`get` returns the same object until the user changes; `all` is sorted by name."""

    def __init__(self, users: Users, writes: Writes, *, clock: Clock) -> None:
        self.get, self.all = users.get, users.all
        self._writes = AuditedWrites(writes)
        self._clock = clock
        self._ahead = RowsAhead(
            {row.name: row for row in users.all()},
            lambda name: NotFoundError(f"There is no user {name[:100]!r}."),
        )

    async def add(self, name: str, role: Role, password_hash: str, by: Actor) -> None:
        """Raises BadNameError, BadRequestError when there is one of that name."""
        check_user_name(name)

        def admit(window: Window) -> Action:
            if name in self._ahead.rows:
                taken = BadRequestError(f"The user {name!r} already exists.")
                raise Refusal(taken, self._ahead.changed_in(name))
            if len(self._ahead.rows) >= limits.USERS_MAX:
                raise Refusal(
                    BadRequestError(
                        f"There are already {limits.USERS_MAX} users; remove one first."
                    ),
                    None,
                )
            return self._set(window, "user_added", name, role, password_hash)

        await self._writes.store(admit, by)

    async def set_password(self, name: str, password_hash: str, by: Actor) -> None:
        """This ends the user's sessions. Raises NotFoundError."""

        def admit(window: Window) -> Action:
            role = self._ahead.find(name).role
            return self._set(window, "user_password_set", name, role, password_hash)

        await self._writes.store(admit, by)

    async def remove(self, name: str, by: Actor) -> None:
        """Raises NotFoundError."""

        def admit(window: Window) -> Action:
            before = {"role": self._ahead.find(name).role}
            self._ahead.change(window, name, None, UserRemoved(name=name))
            return Action("user_removed", "user", name, before)

        await self._writes.store(admit, by)

    def _set(
        self, window: Window, action: str, name: str, role: Role, password_hash: str
    ) -> Action:
        set_us = self._clock.wall_us()
        event = UserSet(name=name, role=role, password_hash=password_hash, set_us=set_us)
        self._ahead.change(window, name, row_of(event), event)
        return Action(action, "user", name, None, {"role": role})
