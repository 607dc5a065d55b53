"""Users of the admin page. The journal holds them, with hashes of passwords made elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from seb_appliance.broker.ports import UserRow
from seb_appliance.errors import BadNameError
from seb_appliance.formats.operations import UserRemoved, UserSet

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")


def check_user_name(name: str) -> str:
    """The name. Raises BadNameError."""
    if not _NAME.fullmatch(name):
        raise BadNameError(
            f"{name[:100]!r} is not a valid user name. Use 1 to 32 of a-z, 0-9, '.', '_' and "
            "'-', beginning with a letter or digit."
        )
    return name


class Users:
    """The users that are in force. Changed only by applying journal entries."""

    def __init__(self, rows: Iterable[UserRow]) -> None:
        self._rows = {row.name: row for row in rows}

    def apply(self, event: UserSet | UserRemoved) -> None:
        if isinstance(event, UserSet):
            self._rows[event.name] = row_of(event)
        else:
            del self._rows[event.name]

    def get(self, name: str) -> UserRow | None:
        return self._rows.get(name)

    def all(self) -> list[UserRow]:
        """By name."""
        return sorted(self._rows.values(), key=lambda row: row.name)


def row_of(event: UserSet) -> UserRow:
    return UserRow(event.name, event.role, event.password_hash, event.set_us)
