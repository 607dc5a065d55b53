"""`seb admin …`: for the person on the machine itself, through the running appliance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from seb_appliance.cli.control_client import ask
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.output import moment, say, say_json, table

json_option = click.option("--json", "as_json", is_flag=True, help="For scripts.")


@click.group
def admin() -> None:
    """Commands for the machine itself; they talk to the running appliance."""


@admin.command
@json_option
@with_settings("data")
def reset_key(as_json: bool, config: Path | None, **flags: str | bool | None) -> None:
    """Make a new admin key, when the file of the old one is lost. Other API keys stay."""
    settings = settings_from(config, flags)
    answer = ask(settings.data, "reset-key")
    _done(as_json, {"path": answer["path"]}, f"new admin key in {answer['path']}")


_from_stdin = click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the password from the first line of stdin."
)


@admin.command
@click.argument("name", default="admin")
@_from_stdin
@json_option
@with_settings("data")
def set_password(
    name: str,
    from_stdin: bool,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> None:
    """Give a user of the admin page a password; asks for it. Ends the sessions of that user.

    NAME is admin when it is not given. The user admin is made when it is not there yet.
    """
    settings = settings_from(config, flags)
    arguments = {"name": name, "password": _password(from_stdin)}
    answer = ask(settings.data, "set-password", arguments)
    what = "added, with the role admin" if answer["added"] else "has a new password"
    _done(as_json, {"user": name, "added": answer["added"]}, f"user {name}: {what}")


@admin.command
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "admin"]),
    required=True,
    help="A viewer sees everything and changes nothing.",
)
@_from_stdin
@json_option
@with_settings("data")
def add_user(
    name: str,
    role: str,
    from_stdin: bool,
    as_json: bool,
    config: Path | None,
    **flags: str | bool | None,
) -> None:
    """Add a user of the admin page; asks for the password."""
    settings = settings_from(config, flags)
    arguments = {"name": name, "role": role, "password": _password(from_stdin)}
    ask(settings.data, "add-user", arguments)
    sentence = f"user {name}: added, with the role {role}"
    _done(as_json, {"user": name, "role": role}, sentence)


@admin.command
@click.argument("name")
@json_option
@with_settings("data")
def remove_user(name: str, as_json: bool, config: Path | None, **flags: str | bool | None) -> None:
    """Remove a user of the admin page, and end the sessions of that user."""
    settings = settings_from(config, flags)
    ask(settings.data, "remove-user", {"name": name})
    _done(as_json, {"removed": name}, f"user {name}: removed")


@admin.command
@json_option
@with_settings("data")
def list_users(as_json: bool, config: Path | None, **flags: str | bool | None) -> None:
    """List the users of the admin page."""
    settings = settings_from(config, flags)
    users = ask(settings.data, "list-users")["users"]
    if as_json:
        say_json({"users": users})
        return
    rows = [(user["name"], user["role"], moment(user["set"])) for user in users]
    say(table(("name", "role", "password set"), rows, "no users; seb admin set-password adds one"))


def _done(as_json: bool, members: dict[str, Any], sentence: str) -> None:
    if as_json:
        say_json(members)
    else:
        say(sentence)


def _password(from_stdin: bool) -> str:
    """Never an argument: those are in every process list."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
