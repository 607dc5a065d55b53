"""The commands of `seb admin …` on users of the admin page, through the command socket.

`set-password` (name, password) also creates the first user, `admin`.
`add-user` (name, role, password), `remove-user` (name), `list-users`.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from seb_appliance.api.encoding.answers import format_time
from seb_appliance.api.server.control import Answer, Arguments, Handler, argument
from seb_appliance.broker.access.audit import AT_THE_MACHINE
from seb_appliance.broker.broker import Broker
from seb_appliance.errors import BadRequestError, NotFoundError
from seb_appliance.formats.operations import Role
from seb_appliance.ops.host.passwords import Passwords

FIRST_USER: Final = "admin"
_ROLES: Final[dict[str, Role]] = {"viewer": "viewer", "admin": "admin"}


def set_password_command(data: Path) -> str:
    """What sets the first password of the appliance with this data directory, in a shell in any
    folder of this machine."""
    seb = Path(sys.executable).with_name("seb")
    program = [str(seb)] if seb.exists() else [sys.executable, "-m", "seb_appliance"]
    return shlex.join([*program, "admin", "set-password", "--data", str(data.absolute())])


def handlers(broker: Broker, passwords: Passwords) -> dict[str, Handler]:
    accounts = broker.accounts

    async def set_password(arguments: Arguments) -> Answer:
        name = argument(arguments, "name")
        known = accounts.get(name)
        if known is None and name != FIRST_USER:
            raise NotFoundError(f"There is no user {name[:100]!r}; seb admin add-user creates one.")
        password_hash = await passwords.hash(argument(arguments, "password"))
        if known is None:
            await accounts.add(name, "admin", password_hash, AT_THE_MACHINE)
        else:
            await accounts.set_password(name, password_hash, AT_THE_MACHINE)
        return {"name": name, "added": known is None}

    async def add_user(arguments: Arguments) -> Answer:
        name = argument(arguments, "name")
        role = _ROLES.get(argument(arguments, "role"))
        if role is None:
            raise BadRequestError("The role must be viewer or admin.")
        password_hash = await passwords.hash(argument(arguments, "password"))
        await accounts.add(name, role, password_hash, AT_THE_MACHINE)
        return {"name": name, "role": role}

    async def remove_user(arguments: Arguments) -> Answer:
        name = argument(arguments, "name")
        await accounts.remove(name, AT_THE_MACHINE)
        return {"name": name}

    async def list_users(_arguments: Arguments) -> Answer:
        return {
            "users": [
                {"name": user.name, "role": user.role, "set": format_time(user.set_us)}
                for user in accounts.all()
            ]
        }

    return {
        "set-password": set_password,
        "add-user": add_user,
        "remove-user": remove_user,
        "list-users": list_users,
    }
