"""The command line, `seb`. A command is imported when it is needed, so that each one starts fast.

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
# The commands in the order in which a newcomer needs them, and the modules that define them.
_MODULES: Final = {
    "serve": "serve",
    "status": "status",
    "cost": "status",
    "produce": "records",
    "consume": "records",
    "tail": "records",
    "topics": "topics",
    "groups": "groups",
    "record-keys": "record_keys",
    "api-keys": "api_keys",
    "apply": "apply",
    "audit": "status",
    "profiles": "profiles",
    "completion": "profiles",
    "export": "transfer",
    "import": "transfer",
    "bench": "bench",
    "snapshot": "serve",
    "promote": "admin",
    "restore": "serve",
    "clone": "serve",
    "doctor": "checks",
    "inspect": "checks",
    "fsck": "checks",
    "admin": "admin",
}


class _LazyGroup(click.Group):
    """Imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"seb_appliance.cli.commands.{_MODULES[cmd_name]}")
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
    from seb_appliance.errors import ConfigurationError, SebError, StartError

    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()  # a group without a command shows its help
            return 0
        case click.UsageError():
            where = f" ({error.ctx.command_path} --help lists what there is)" if error.ctx else ""
            return _fail(f"{error.format_message()}{where}", ConfigurationError.exit_code)
        case StartError():
            return _fail(error.detail, error.exit_code)
        case SebError():
            return _fail(error.detail, 1)
        case CommandError():
            if error.exit_code == NOT_WRITTEN:
                _drop_output()
            return _fail(error.sentence, error.exit_code)
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
