"""Before something is taken away: a person is asked, a program says --yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from seb_appliance.cli.failures import CommandError

T = TypeVar("T")

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def ask_for_the_name(what: str, name: str) -> None:
    """Raises CommandError unless the person types `name`; Abort at Ctrl-C."""
    question = f"Type {name} to delete {what}"
    if _answer(lambda: click.prompt(question, err=True, default="", show_default=False)) != name:
        raise CommandError("not the name; nothing was deleted")


def ask(question: str) -> None:
    """Raises CommandError unless the person says yes; Abort at Ctrl-C."""
    if not _answer(lambda: click.confirm(question, err=True)):
        raise CommandError("not confirmed; nothing was changed")


def _answer(put: Callable[[], T]) -> T | None:
    """None at the end of input. click says Abort of that and of Ctrl-C, which ends the command."""
    try:
        return put()
    except click.Abort as error:
        click.echo(err=True)  # behind the question
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        return None
