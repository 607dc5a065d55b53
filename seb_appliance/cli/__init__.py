"""The command line, `seb`.

Exit codes: 0 success, 1 failure, 130 interrupted. docs/OPERATIONS.md lists those of `seb serve`,
docs/CLI.md those of the commands that talk to an appliance.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from seb_appliance import __version__

INTERRUPTED: Final = 130
# Each command, in the order of need: its module, and its help, which is shown without an import.
_COMMANDS: Final = {
    "serve": ("serve", "Run the appliance."),
    "status": ("status", "Show the state of the appliance."),
    "cost": ("status", "Show what the bucket costs this month, and the forecast."),
    "produce": ("records", "Store each line of stdin as a record of TOPIC, in order."),
    "consume": (
        "records",
        "Write the values of TOPIC's records to stdout, one a line, up to the log end.",
    ),
    "tail": ("records", "Write the values of TOPIC's new records to stdout, one a line."),
    "topics": (
        "topics",
        "Topics: list (the default), create, fork, change, show, trim, reopen, delete.",
    ),
    "groups": ("groups", "Consumer groups: list (the default), show, commit, reset, delete."),
    "queues": (
        "queues.queues",
        "Work queues: list (the default), show, set, reset, purge, redrive, delete.",
    ),
    "work": ("queues.work", "Run COMMAND for each record of QUEUE, until it is stopped."),
    "subscriptions": (
        "queues.subscriptions",
        "Queues sent to a URL: list (the default), show, set, pause, resume, test, replay, delete.",
    ),
    "connections": (
        "protocols.connections",
        "Connections to the ports of protocols: list (the default), close.",
    ),
    "record-keys": (
        "record_keys",
        "Record keys of a topic with a key index: list, latest, history, delete.",
    ),
    "api-keys": ("api_keys", "API keys: list (the default), create, show, change, rotate, revoke."),
    "inlets": (
        "protocols.inlets",
        "Inlets for webhooks and log shippers: list (the default), show, set, delete.",
    ),
    "tables": (
        "tables",
        "Tables of topics: list (the default), show, suggest, pause, resume, repair, drop, attach.",
    ),
    "sql": ("tables", "Run STATEMENT, which reads tables."),
    "apply": (
        "apply",
        "Make topics, groups, queues, inlets, subscriptions and API keys match FILE (- is stdin).",
    ),
    "audit": ("status", "Show who did what to topics, groups and API keys, newest first."),
    "profiles": (
        "profiles",
        "Profiles (named URLs with API keys): list (the default), add, use, remove.",
    ),
    "completion": ("profiles", "Write the completion script for SHELL (bash, zsh or fish)."),
    "export": ("transfer", "Write one topic as lines, or topics as files of the Go broker."),
    "import": (
        "transfer",
        "Import topics of a Go broker's bucket with their offsets, or lines into one topic.",
    ),
    "demo": ("demo", "Run the demonstration, on an appliance of its own."),
    "bench": ("bench", "Measure an appliance, and check every record."),
    "snapshot": ("serve", "Make a snapshot, so that the next start replays no journal entries."),
    "promote": ("serve", "Make the standby on this machine the writer."),
    "restore": (
        "serve",
        "Rebuild local state from the bucket alone, or go back to an earlier entry.",
    ),
    "clone": ("serve", "Copy a bucket to another one, object by object, with checks."),
    "doctor": ("checks", "Check the settings, the bucket, the clock, the disk and SQLite."),
    "inspect": ("checks", "Show the content of OBJECT."),
    "fsck": ("checks", "Check the bucket: every entry, segment, snapshot, checksum and offset."),
    "admin": ("serve", "Manage the appliance that runs on this machine."),
}


class _LazyGroup(click.Group):
    """Imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f"seb_appliance.cli.commands.{_COMMANDS[cmd_name][0]}")
        attribute = "import_" if cmd_name == "import" else cmd_name.replace("-", "_")
        command: click.Command = getattr(module, attribute)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Raises ReaderLeftError, because click would end the process with 1."""
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            from seb_appliance.cli.errors import ReaderLeftError

            raise ReaderLeftError from error
        return result


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="seb %(version)s")
def seb() -> None:
    """Seb Appliance: an event broker for one small machine and one bucket.

    `seb serve` runs it on a directory, `seb serve --bucket s3://bucket/prefix` on a bucket.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. A failure is one sentence on stderr."""
    try:
        result = seb.main(list(arguments), prog_name="seb", standalone_mode=False)
    except BaseException as error:
        return _failure(error)
    return result if isinstance(result, int) else 0


def _failure(error: BaseException) -> int:
    """Print the sentence of `error`; its exit code. Raises what is a bug."""
    from seb_appliance.cli.errors import NOT_WRITTEN, CommandError, OutputError, ReaderLeftError
    from seb_appliance.errors import ConfigurationError, SebError, StartError, printable

    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()  # a group without a command shows its help
            return 0
        case click.UsageError():
            where = f" ({error.ctx.command_path} --help lists what there is)" if error.ctx else ""
            sentence = " ".join(error.format_message().split())  # choices have lines of their own
            return _fail(f"{sentence}{where}", ConfigurationError.exit_code)
        case StartError():
            return _fail(printable(error.detail), error.exit_code)
        case SebError():
            return _fail(printable(error.detail), 1)
        case CommandError():
            if error.exit_code == NOT_WRITTEN:
                _drop_output()
            return _fail(printable(error.sentence), error.exit_code)
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED
        case UnicodeEncodeError() if any("\udc80" <= c <= "\udcff" for c in error.object):
            return _fail("an argument is not UTF-8", ConfigurationError.exit_code)
        case OSError(errno=errno.ENOSPC, filename=None):
            _drop_output()
            full = OutputError(error.strerror or "", 0)
            return _fail(full.sentence, full.exit_code)
        case ReaderLeftError():
            _drop_output()
            return 0
    raise error


def _drop_output() -> None:
    """Discard the rest of the buffer, which would fail when the process ends."""
    with contextlib.suppress(io.UnsupportedOperation):  # a test captures stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, exit_code: int) -> int:
    click.echo(f"seb: {sentence}", err=True)
    return exit_code


def main() -> None:
    """Entry point of the `seb` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # UTF-8 in every locale
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    # Arguments are UTF-8 in every locale; invalid bytes stay as they are.
    typed = [os.fsencode(text).decode(errors="surrogateescape") for text in sys.argv[1:]]
    sys.exit(run(typed))
