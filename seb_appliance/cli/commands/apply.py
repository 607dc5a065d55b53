"""`seb apply`: topics, groups and API keys as a file says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance import limits
from seb_appliance.cli.errors import DIFFERS
from seb_appliance.cli.options import (
    CONNECTION,
    ask,
    file_option,
    json_option,
    settings_from,
    with_settings,
    yes_option,
)
from seb_appliance.cli.output import say_json, tell, write
from seb_appliance.errors import ConfigurationError

if TYPE_CHECKING:
    from seb_appliance.cli.apply_plan import Plan, Wanted
    from seb_appliance.client import Admin

STDIN: Final = "-"
# A person waits, and the command can be run again: it need not be as patient as a program.
PATIENCE_S: Final = 10.0


@click.command()
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--diff", is_flag=True, help="Only show what it would change.")
@click.option("--export", "exports", is_flag=True, help="Write the current state as such a file.")
@click.option("--prune", is_flag=True, help="Delete what is not in the file.")
@file_option(
    "--secrets-file",
    "Add the secrets of new API keys to this file (mode 0600), instead of showing them.",
    metavar="PATH",
)
@yes_option
@with_settings(*CONNECTION)
@json_option
def apply(
    config: Path | None,
    file: str | None,
    exports: bool,
    as_json: bool,
    **how: Any,
) -> int | None:
    """Make topics, groups and API keys as FILE says (- is stdin). Running it again changes nothing.

    What is not in the file stays, unless --prune is given.
    """
    from seb_appliance.cli.apply_file import read_wanted
    from seb_appliance.cli.connection import url_and_key
    from seb_appliance.client import Admin

    if exports != (file is None):
        raise click.UsageError("name a file, or say --export to write one")
    wanted = None if file is None else read_wanted(_read(file), file)
    flags = {name: how.pop(name) for name in CONNECTION}
    address, key = url_and_key(settings_from(config, flags))
    with Admin(address, key, patience_s=PATIENCE_S) as admin:
        if wanted is None:
            _export(admin, as_json=as_json)
            return None
        return _apply(admin, wanted, in_use=_id_of(key), as_json=as_json, **how)


def _id_of(key: str) -> str:
    """The id of `seb_<id>_…`."""
    return key.split("_")[1]


def _read(file: str) -> bytes:
    """All of it, or more than there may be. Raises ConfigurationError."""
    try:
        if file == STDIN:
            return sys.stdin.buffer.read(limits.APPLY_FILE_BYTES_MAX + 1)
        with Path(file).open("rb") as opened:
            return opened.read(limits.APPLY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file} ({error.strerror})") from error


def _export(admin: Admin, *, as_json: bool) -> None:
    from seb_appliance.cli.apply_changes import nothing_changed
    from seb_appliance.cli.apply_file import as_words, write_wanted
    from seb_appliance.cli.apply_plan import export

    with nothing_changed():
        found = export(admin)
    if as_json:
        say_json(as_words(found))
    else:
        write(write_wanted(found).encode())


def _apply(
    admin: Admin,
    wanted: Wanted,
    *,
    in_use: str,
    as_json: bool,
    diff: bool,
    prune: bool,
    secrets_file: Path | None,
    yes: bool,
) -> int | None:
    from seb_appliance.cli.apply_changes import Doing, Report, Secrets, carry_out, nothing_changed
    from seb_appliance.cli.apply_plan import look, plan

    with nothing_changed():
        planned = plan(wanted, look(admin, wanted), prune=prune, in_use=in_use)
        if planned.deletions and not (diff or yes):
            _confirm(admin, planned)
    report = Report(planned, as_json=as_json)
    if diff:
        report.end(only_planned=True)
        return DIFFERS if planned.changes else None
    with Secrets(secrets_file if planned.makes_api_keys else None, report) as secrets:
        carry_out(planned, Doing(admin, wanted, secrets.add), report)
    return None


def _confirm(admin: Admin, planned: Plan) -> None:
    """Raises CommandError unless a person says yes to the deletions."""
    from seb_appliance.cli.apply_changes import named

    for change in planned.deletions:
        records = ""
        if change.kind == "topic":
            topic = admin.topic(change.name)
            count = topic["log_end_offset"] - topic["log_start_offset"]
            records = f" with {count:,} records"
        tell(f"- {named(change)}{records}")
    ask("Delete them?")
