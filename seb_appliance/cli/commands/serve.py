"""`seb serve`, and other commands for its machine: snapshot, restore, clone, promote, admin."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.cli.errors import need_server
from seb_appliance.cli.options import (
    BUCKET,
    TIMEOUTS,
    Json,
    Result,
    Time,
    WholeSentences,
    file_option,
    other_bucket,
    shows,
    talks,
    with_settings,
)
from seb_appliance.cli.output import moment, outline, showing, size, table
from seb_appliance.errors import StartError
from seb_appliance.quantities import counted
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.connection import HttpClient
    from seb_appliance.ops.host.restoring import Restored


@click.command
@with_settings()
def serve(settings: Settings) -> int:
    """Run the appliance.

    Each setting can also be set in the settings file, and in the variable SEB_ and its name in
    capitals. Durations and sizes have units: 250ms, 10s, 7d, 64KiB, 8MiB.
    """
    with need_server():
        from rich.console import Console

        from seb_appliance.ops.serve import process
    return process.serve(settings, Console())


@click.command
@talks
def snapshot(client: HttpClient) -> Result:
    """Make a snapshot, so that the next start replays no journal entries. Needs an admin key."""
    made = client.ask("POST", "snapshots")
    return Result(made, lambda _: f"the newest snapshot is as of entry {made['seq']:,}")


# `seb restore` and `seb clone` read a bucket and write elsewhere.

_bucket_options = with_settings(*BUCKET, "data", "s3_immediate_list", *TIMEOUTS)
_into_config = file_option(
    "--into-config", "Settings file (TOML) with the s3_… settings of --into, if they differ."
)


@click.command
@click.option("--verify", is_flag=True, help="Only test it, and leave nothing behind.")
@file_option("--report", "With --verify: write the result to this file, as Prometheus metrics.")
@click.option("--until-seq", type=click.IntRange(0), metavar="N", help="As of journal entry N.")
@click.option("--until-time", type=Time(), help="As of that time, without what came later.")
@click.option("--into", metavar="ADDRESS", help="With --until-…: an empty bucket or prefix.")
@_into_config
@_bucket_options
@shows
def restore(
    verify: bool,
    report: Path | None,
    until_seq: int | None,
    until_time: int | None,
    into: str | None,
    into_config: Path | None,
    settings: Settings,
) -> Result:
    """Rebuild local state from the bucket alone, or go back to an earlier entry.

    Without options: write the state of the bucket to --data, which must have none. With --verify:
    do the same in a scratch directory below --data, as a test. With --until-seq or --until-time,
    and --into: copy the appliance as of that entry or time to another bucket or prefix, so that no
    offset is given twice. The bucket itself is only read, also while an appliance writes to it.
    """
    until = [one for one in (until_seq, until_time) if one is not None]
    if len(until) != (into is not None) or (verify and into is not None):
        raise click.UsageError(
            "--into belongs to either --until-seq or --until-time, and not to --verify."
        )
    if report is not None and not verify:
        raise click.UsageError("--report goes with --verify.")
    with need_server():
        from seb_appliance.ops.host import restoring
    if until_time is not None:
        until_seq = asyncio.run(restoring.entry_before(settings, until_time))
    if into is not None:
        return _clone(settings, into, into_config, until_seq)
    with showing("reading the bucket") as progress:
        if verify:
            restored = asyncio.run(restoring.drill(settings, report, progress))
        else:
            restored = asyncio.run(restoring.restore(settings, settings.data, progress))
    return _result(restored, {})


@click.command
@click.option(
    "--into", required=True, metavar="ADDRESS", help="An empty bucket or prefix, or a copy there."
)
@_into_config
@_bucket_options
@shows
def clone(into: str, into_config: Path | None, settings: Settings) -> Result:
    """Copy a bucket to another one, object by object, with checks.

    The source is only read, also while an appliance writes to it; the copy is as of the moment at
    which it begins. Run the same command again to continue an interrupted copy, or to bring a
    finished one up to date: only what is new is copied. Do not keep appliances running on both
    buckets: they would give the same offsets to different records.
    """
    return _clone(settings, into, into_config, None)


def _clone(
    settings: Settings, into: str, into_config: Path | None, until_seq: int | None
) -> Result:
    target = other_bucket(settings, "--into", into, into_config)
    with need_server():
        from seb_appliance.ops.host import restoring
    with showing("reading the bucket") as progress:
        cloned = asyncio.run(restoring.clone(settings, target, until_seq, progress))
    copied = cloned.copied
    return _result(
        cloned.restored,
        {
            "copied": f"{counted(copied.objects, 'object')}, {size(copied.size_bytes)}",
            "were there": copied.found,
            "into": cloned.target,
            "start it": "with --take-over, from a data directory of its own",
        },
    )


def _result(restored: Restored, more: Json) -> Result:
    rebuilt, state = restored.rebuilt, restored.state
    members = {
        "as of": f"entry {rebuilt.position.seq:,}, fencing mode {rebuilt.journal.mode}",
        "bucket id": rebuilt.journal.bucket_id.hex(),
        "began from": rebuilt.began_from,
        "entries replayed": rebuilt.entries_replayed,
        "topics": len(state.topics),
        "groups": len({row.group for row in state.group_offsets}),
        "API keys": len(state.api_keys),
        "objects": f"{len(restored.needed.objects):,}, {size(restored.needed.size_bytes)}",
        **({"files of tables gone": gone} if (gone := restored.needed.table_files_gone) else {}),
        "seconds": round(rebuilt.seconds, 2),
        "notes": list(rebuilt.notes),
        **more,
    }
    return Result(members, outline)


# `seb admin …` and `seb promote` ask the running appliance through the socket in its data
# directory, with one line of JSON each way: {"command": …, "arguments": {…}}, and {"ok": true, …}
# or {"error": {problem members}}.

SOCKET_NAME: Final = "control.sock"
ANSWER_BYTES_MAX: Final = 64 * 1024
PROMOTE_S: Final = 300.0  # a take-over in fencing mode B may have to wait a minute

Ask = Callable[..., dict[str, Any]]


def ask(
    data: Path, command: str, arguments: dict[str, str] | None = None, *, timeout_s: float = 60.0
) -> dict[str, Any]:
    """The answer's members. Raises StartError: no appliance there, no permission, or a refusal."""
    path = data / SOCKET_NAME
    asked = {"command": command} | ({"arguments": arguments} if arguments else {})
    try:
        answer = _exchange(path, json.dumps(asked).encode() + b"\n", timeout_s)
    except FileNotFoundError as error:
        raise StartError(f"no appliance runs on {data} ({path} is not there)") from error
    except ConnectionRefusedError as error:
        raise StartError(f"no appliance runs on {data} (nothing listens at {path})") from error
    except PermissionError as error:
        raise StartError(
            f"no permission to use {path}; run this as the appliance's user"
        ) from error
    except TimeoutError as error:
        raise StartError(
            f"the appliance on {data} did not answer in {timeout_s:.0f} s; it may still execute "
            "the command"
        ) from error
    except OSError as error:
        raise StartError(f"cannot talk to the appliance at {path} ({error})") from error
    if "error" in answer:
        raise StartError(f"the appliance says: {answer['error'].get('detail', answer['error'])}")
    return answer


def _exchange(path: Path, request: bytes, timeout_s: float) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(request)
        with connection.makefile("rb") as lines:
            line = lines.readline(ANSWER_BYTES_MAX)
    try:
        answer = json.loads(line)
    except ValueError as error:
        raise ConnectionError("it closed the connection without an answer") from error
    if not isinstance(answer, dict):
        raise ConnectionError("its answer is not a JSON object")
    return answer


def asks(command: Callable[..., Result]) -> Callable[..., Any]:
    """Hand the command `ask` for the appliance of `--data`, and print its result."""

    @with_settings("data")
    @shows
    @functools.wraps(command)
    def asking(settings: Settings, **given: Any) -> Result:
        return command(functools.partial(ask, settings.data), **given)

    return asking


@click.command
@asks
def promote(ask: Ask) -> Result:
    """Make the standby on this machine the writer.

    It reads all entries, takes over, and fences the appliance that it followed: that appliance
    acknowledges nothing more. The command ends once the standby is the writer.
    """
    answer = ask("promote", timeout_s=PROMOTE_S)
    return Result(
        {name: answer[name] for name in ("epoch", "seq", "seconds")},
        lambda _: (
            f"the writer now: epoch {answer['epoch']}, entry {answer['seq']:,}, "
            f"after {answer['seconds']:.1f} s"
        ),
    )


@click.group(cls=WholeSentences)
def admin() -> None:
    """Manage the appliance that runs on this machine."""


@admin.command
@asks
def reset_key(ask: Ask) -> Result:
    """Make a new admin key, if the file of the old one is lost. The old key stays valid."""
    path = ask("reset-key")["path"]
    return Result({"path": path}, f"new admin key in {path}")


password_option = click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the password from the first line of stdin."
)


def _password(from_stdin: bool) -> str:
    """Never an argument: those are in every process list."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))


@admin.command
@click.argument("name", default="admin")
@password_option
@asks
def set_password(ask: Ask, name: str, from_stdin: bool) -> Result:
    """Set the password of a user of the admin page; asks for it. Ends that user's sessions.

    NAME is admin unless given. The user admin is created if it does not exist.
    """
    answer = ask("set-password", {"name": name, "password": _password(from_stdin)})
    what = "added, with the role admin" if answer["added"] else "has a new password"
    return Result({"user": name, "added": answer["added"]}, f"user {name}: {what}")


@admin.command
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["viewer", "admin"]),
    required=True,
    help="A viewer sees everything and changes nothing.",
)
@password_option
@asks
def add_user(ask: Ask, name: str, role: str, from_stdin: bool) -> Result:
    """Add a user of the admin page; asks for the password."""
    ask("add-user", {"name": name, "role": role, "password": _password(from_stdin)})
    return Result({"user": name, "role": role}, f"user {name}: added, with the role {role}")


@admin.command
@click.argument("name")
@asks
def remove_user(ask: Ask, name: str) -> Result:
    """Remove a user of the admin page, and end the sessions of that user."""
    ask("remove-user", {"name": name})
    return Result({"removed": name}, f"user {name}: removed")


@admin.command
@asks
def list_users(ask: Ask) -> Result:
    """List the users of the admin page."""
    users = ask("list-users")["users"]
    rows = ((user["name"], user["role"], moment(user["set"])) for user in users)
    empty = "no users; seb admin set-password adds one"
    return Result({"users": users}, lambda _: table(("name", "role", "password set"), rows, empty))
