"""Before something is taken away: a person is asked, a program says --yes."""

from __future__ import annotations

import click

from seb_appliance.cli.failures import CommandError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def ask_for_the_name(what: str, name: str) -> None:
    """Raises CommandError unless the person types `name`."""
    try:
        typed = click.prompt(
            f"Type {name} to delete {what}", err=True, default="", show_default=False
        )
    except click.Abort:
        typed = ""
    if typed != name:
        raise CommandError("not the name; nothing was deleted")


def ask(question: str) -> None:
    """Raises CommandError unless the person says yes."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        raise CommandError("not confirmed; nothing was changed")
