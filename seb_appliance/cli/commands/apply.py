"""`seb apply`: topics, groups, queues, inlets, subscriptions and API keys as a file says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from seb_appliance import limits
from seb_appliance.cli.commands.protocols.inlets import read_secret
from seb_appliance.cli.connection import url_and_key
from seb_appliance.cli.errors import (
    DIFFERS,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    CommandError,
    ReaderLeftError,
    in_our_words,
)
from seb_appliance.cli.options import (
    CONNECTION,
    ask,
    file_option,
    json_option,
    with_settings,
    yes_option,
)
from seb_appliance.cli.output import say, say_json, tell, write
from seb_appliance.client import Admin, ApplianceError
from seb_appliance.definitions.making import make, word
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
from seb_appliance.errors import BadRequestError, ConfigurationError, printable
from seb_appliance.quantities import counted
from seb_appliance.settings import Settings

STDIN: Final = "-"
# A person waits and can run the command again: it retries for less time than a program.
PATIENCE_S: Final = 10.0
_SIGNS: Final = {"create": "+", "change": "~", "delete": "-"}


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
    settings: Settings, file: str | None, exports: bool, as_json: bool, **given: Any
) -> int | None:
    """Make topics, groups, queues, inlets, subscriptions and API keys match FILE (- is stdin).

    Running it again changes nothing. What is not in the file stays, unless --prune is given.
    """
    if exports != (file is None):
        raise click.UsageError("name a file, or use --export to write one")
    wanted = None if file is None else read_wanted(_read(file), file)
    address, key = url_and_key(settings)
    with Admin(address, key, patience_s=PATIENCE_S) as admin:
        if wanted is not None:
            return _apply(admin, wanted, key.split("_")[1], as_json=as_json, **given)
        with _nothing_changed():
            found = export(admin)
            text = "" if as_json else write_words(found)
        if as_json:
            say_json(found)
        else:
            write(text.encode())
    return None


def _read(file: str) -> bytes:
    """All of it, or more than is allowed. Raises ConfigurationError."""
    try:
        if file == STDIN:
            return sys.stdin.buffer.read(limits.APPLY_FILE_BYTES_MAX + 1)
        with Path(file).open("rb") as opened:
            return opened.read(limits.APPLY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file} ({error.strerror})") from error


def _apply(
    admin: Admin,
    wanted: State,
    in_use: str,
    *,
    as_json: bool,
    diff: bool,
    prune: bool,
    secrets_file: Path | None,
    yes: bool,
) -> int | None:
    """`in_use`: the id of the API key that this command uses."""
    with _nothing_changed():
        planned = plan(wanted, look(admin, wanted), prune=prune, in_use=in_use)
        if secrets_file is not None and "api_keys" in wanted:
            _tell_lost(admin, wanted, secrets_file)
        deletions = [change for change in planned.changes if change.action == "delete"]
        if deletions and not (diff or yes):
            _confirm(admin, deletions)
    report = _Report(planned, as_json=as_json)
    if diff:
        report.end(only_planned=True)
        return DIFFERS if planned.changes else None
    _take_secrets(wanted, planned)
    makes_keys = any((c.action, c.kind) == ("create", "api_key") for c in planned.changes)
    with _secrets_to(secrets_file if makes_keys else None, report) as keep_secret:
        _make_all(admin, wanted, planned, keep_secret, report)
    return None


def _tell_lost(admin: Admin, wanted: State, path: Path) -> None:
    """Name the API keys of the file whose secrets are not in the file at `path`, and of which the
    appliance's machine knows no use: an earlier run may have ended before it could write them.
    Raises ConfigurationError."""
    try:
        text = path.read_text(errors="replace") if path.is_file() else ""
    except OSError as error:
        raise ConfigurationError(f"cannot read {path} ({error.strerror})") from error
    written = set(re.findall(r'"seb_(\w{8})_[\w-]+"', text))
    for key in admin.api_keys():
        name, api_key_id = printable(key["name"]), key["api_key_id"]
        is_lost = key["last_used"] is None and api_key_id not in written
        if is_lost and key["name"] in wanted["api_keys"]:
            tell(
                f"the secret of API key {name} ({api_key_id}) is not in {path}, and no use is "
                f"known: if nobody has it, seb api-keys rotate {api_key_id} gives it a new one"
            )


def _take_secrets(wanted: State, planned: Plan) -> None:
    """Give the inlets and subscriptions that are made, or get another scheme, the secrets of their
    files. Raises ConfigurationError."""
    for change in planned.changes:
        if change.kind not in ("inlet", "subscription") or change.action == "delete":
            continue
        members = wanted[f"{change.kind}s"][change.name]
        path, is_new = members.pop(FILE_MEMBER, None), change.action == "create"
        if is_new and path is None:
            raise ConfigurationError(
                f"the {change.kind} {change.name} is new: {FILE_MEMBER} names the file with its "
                "secret"
            )
        if path is not None and (is_new or "scheme" in change.after):
            members["secrets"] = [read_secret(Path(path))]


def _confirm(admin: Admin, deletions: list[Change]) -> None:
    """Raises CommandError unless a person says yes to the deletions."""
    for change in deletions:
        records = ""
        if change.kind == "topic":
            topic = admin.topic(change.name)
            count = topic["log_end_offset"] - topic["log_start_offset"]
            records = f" with {counted(count, 'record')}"
        tell(f"- {_named(change)}{records}")
    ask("Delete them?")


class _Report:
    """A line for each change, or one JSON document at the end. Changes continue when the reader of
    our output leaves: half of them would be worse."""

    def __init__(self, planned: Plan, *, as_json: bool) -> None:
        self._planned = planned
        self._as_json = as_json
        self._applied: list[Change] = []
        self._secrets: list[Json] = []
        self._shown = 0
        self._reader_left = False

    def applied(self, change: Change) -> None:
        self._applied.append(change)
        self._say(_line(change))
        self._show_secrets()

    def secret(self, made: Json) -> None:
        """`name`, `api_key_id` and `secret` of a new API key."""
        self._secrets.append(made)

    def _show_secrets(self) -> None:
        for made in self._secrets[self._shown :]:
            self._shown += 1
            self._say(f"  the secret of {printable(made['name'])}: {made['secret']}")

    def end(self, *, only_planned: bool = False) -> None:
        """Print the rest. Raises ReaderLeftError."""
        if self._as_json:
            changes = [
                {**c._asdict(), "applied": c in self._applied} for c in self._planned.changes
            ]
            extra = [change._asdict() for change in self._planned.extra]
            say_json({"changes": changes, "not_in_the_file": extra, "secrets": self._secrets})
        elif only_planned:
            for change in self._planned.changes:
                self._say(_line(change))
        self._show_secrets()
        for change in self._planned.extra:
            tell(f"{_named(change)} is not in the file and is kept")
        if self._secrets:
            tell("A secret is shown only once and stored nowhere.")
        if self._reader_left:
            raise ReaderLeftError

    def _say(self, text: str) -> None:
        if not self._as_json:
            try:
                say(text)
            except BrokenPipeError:
                self._reader_left = True


# Never through a symbolic link, nor into a pipe that waits for a reader.
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK


@contextlib.contextmanager
def _secrets_to(path: Path | None, report: _Report) -> Iterator[Callable[[Json], None]]:
    """Takes new API keys, and shows their secrets in the report or appends them to the file at
    `path`, one JSON object a line, synced. The file is opened before any API key is made, so that
    no secret is lost. Raises ConfigurationError if it cannot be written or others could read it."""
    file = None if path is None else _opened(path)

    def keep(made: Json) -> None:
        """Raises CommandError."""
        shown: Json = {one: made[one] for one in ("name", "api_key_id", "secret") if one in made}
        if file is None:
            report.secret(shown)
            return
        line = json.dumps(shown).encode() + b"\n"
        try:
            while line:
                line = line[os.write(file, line) :]
            os.fsync(file)
        except OSError as error:
            key = made.get("api_key_id", made["name"])
            raise CommandError(
                f"the API key {key} was created, but its secret could not be written to {path} "
                f"({error.strerror}): seb api-keys rotate {key} gives it a new one"
            ) from error

    try:
        yield keep
    finally:
        if file is not None:
            os.close(file)


def _opened(path: Path) -> int:
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {path} ({error.strerror})") from error
    found = os.fstat(descriptor)
    is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or stat.S_IMODE(found.st_mode) & 0o077:
        os.close(descriptor)
        raise ConfigurationError(
            f"{path} must be a regular file of yours that only you can read (chmod 600 {path})"
        )
    return descriptor


def _make_all(
    admin: Admin,
    wanted: State,
    planned: Plan,
    keep_secret: Callable[[Json], None],
    report: _Report,
) -> None:
    """Stops at the first change that fails. Raises CommandError that says how far it came."""
    done = 0
    try:
        for change in planned.changes:
            make(admin, change, wanted.get(f"{change.kind}s", {}).get(change.name, {}), keep_secret)
            report.applied(change)
            done += 1
    except ApplianceError as error:
        code = UNKNOWN if error.side_effects == "unknown" else _code(error)
        raise CommandError(f"{error} {_progress(planned, done, code)}", code) from error
    except CommandError as error:
        raise CommandError(f"{error}. {_progress(planned, done)}", error.exit_code) from error
    except KeyboardInterrupt:
        tell(_progress(planned, done, UNKNOWN))
        raise
    finally:
        report.end()


def _line(change: Change) -> str:
    """`~ topic orders.eu  linger 10ms -> 20ms, retention unset -> 7d`."""
    words = []
    for name in {**change.before, **change.after} if change.action != "delete" else ():
        was, will = word(change.before.get(name)), word(change.after.get(name))
        words.append(f"{name} {will}" if change.action == "create" else f"{name} {was} -> {will}")
    return f"{_SIGNS[change.action]} {_named(change)}  {printable(', '.join(words))}".rstrip()


def _named(change: Change) -> str:
    """`topic orders.eu`, `API key checkout (abcdefgh)`."""
    which = f" ({change.api_key_id})" if change.api_key_id else ""
    kind = "API key" if change.kind == "api_key" else change.kind
    return f"{kind} {printable(change.name)}{which}"


def _progress(planned: Plan, done: int, code: int = REFUSED) -> str:
    """What an operator has to know when it stops at change number `done`, from 0."""
    at = planned.changes[done]
    went = "may have been made" if code == UNKNOWN else "was not made"
    text = f"Changes made: {done} of {len(planned.changes)}; {at.action} {_named(at)} {went}. "
    if (at.kind, at.action) == ("api_key", "create") and code == UNKNOWN:
        text += (
            "If the API key exists, its secret is lost: seb api-keys rotate gives it a new one. "
        )
    return text + "Run the same command again to continue."


@contextlib.contextmanager
def _nothing_changed() -> Iterator[None]:
    """Turns an ApplianceError into a CommandError that says that nothing was changed."""
    try:
        yield
    except ApplianceError as error:
        raise CommandError(
            f"{in_our_words(str(error))} Nothing was changed.", _code(error)
        ) from error
    except BadRequestError as error:
        raise CommandError(error.detail) from error


def _code(error: ApplianceError) -> int:
    return UNAVAILABLE if error.retryable else REFUSED
