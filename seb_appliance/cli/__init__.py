"""The command line, `seb`. Each command imports what it needs when it runs, so that help is quick.

Exit codes: 0 done, 1 it failed, 130 interrupted; those of `seb serve` stand in docs/OPERATIONS.md,
those of the commands that talk to an appliance in docs/CLI.md.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from seb_appliance import __version__
from seb_appliance.cli.commands.admin import admin
from seb_appliance.cli.commands.api_keys import api_keys
from seb_appliance.cli.commands.apply import apply
from seb_appliance.cli.commands.audit import audit
from seb_appliance.cli.commands.bench import bench
from seb_appliance.cli.commands.checks import doctor, fsck
from seb_appliance.cli.commands.groups import groups
from seb_appliance.cli.commands.inspect import inspect
from seb_appliance.cli.commands.profiles import completion, profiles
from seb_appliance.cli.commands.record_keys import record_keys
from seb_appliance.cli.commands.records import consume, produce, tail
from seb_appliance.cli.commands.serve import clone, promote, restore, serve, snapshot
from seb_appliance.cli.commands.status import cost, status
from seb_appliance.cli.commands.topics import topics
from seb_appliance.cli.commands.transfer import export, import_
from seb_appliance.cli.output import as_utf8
from seb_appliance.cli.remote import NOT_WRITTEN, CommandError, OutputError, ReaderLeftError
from seb_appliance.errors import ConfigurationError, SebError, StartError

INTERRUPTED: Final = 130


class _InOrder(click.Group):
    """Lists commands in the order in which a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        """Told in our own words, because click would end the process with 1."""
        try:
            result: object = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as error:
            raise ReaderLeftError from error
        return result


@click.group(
    cls=_InOrder,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="seb %(version)s")
def seb() -> None:
    """Seb Appliance: an event broker for one small machine and one bucket.

    `seb serve` runs it on a directory, `seb serve --bucket s3://bucket/prefix` on a bucket.
    """


seb.add_command(serve)
seb.add_command(status)
seb.add_command(cost)
seb.add_command(produce)
seb.add_command(consume)
seb.add_command(tail)
seb.add_command(topics)
seb.add_command(groups)
seb.add_command(record_keys)
seb.add_command(api_keys)
seb.add_command(apply)
seb.add_command(audit)
seb.add_command(profiles)
seb.add_command(completion)
seb.add_command(export)
seb.add_command(import_)
seb.add_command(bench)
seb.add_command(snapshot)
seb.add_command(promote)
seb.add_command(restore)
seb.add_command(clone)
seb.add_command(doctor)
seb.add_command(inspect)
seb.add_command(fsck)
seb.add_command(admin)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit code. A failure is one sentence on stderr."""
    try:
        result = seb.main(list(arguments), prog_name="seb", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()  # a group without a command: its help
        return 0
    except click.UsageError as error:
        where = f" ({error.ctx.command_path} --help lists what there is)" if error.ctx else ""
        return _fail(f"{error.format_message()}{where}", ConfigurationError.exit_code)
    except StartError as error:
        return _fail(error.detail, error.exit_code)
    except SebError as error:
        return _fail(error.detail, 1)
    except CommandError as error:
        if error.exit_code == NOT_WRITTEN:
            _drop_output()
        return _fail(error.sentence, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except UnicodeEncodeError as error:
        if not any("\udc80" <= character <= "\udcff" for character in error.object):
            raise
        return _fail("an argument is not UTF-8", ConfigurationError.exit_code)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _drop_output()
        full = OutputError(error.strerror or "", 0)
        return _fail(full.sentence, full.exit_code)
    except ReaderLeftError:
        _drop_output()
        return 0
    return result if isinstance(result, int) else 0


def _drop_output() -> None:
    """What is left in the buffer goes nowhere, instead of failing when the process ends."""
    with contextlib.suppress(io.UnsupportedOperation):  # of what a test takes it with
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(sentence: str, exit_code: int) -> int:
    click.echo(f"seb: {sentence}", err=True)
    return exit_code


def main() -> None:
    """Entry point of the `seb` program."""
    as_utf8()
    # What was typed is UTF-8, whatever the locale made of it; what is none keeps its bytes.
    typed = [os.fsencode(text).decode(errors="surrogateescape") for text in sys.argv[1:]]
    sys.exit(run(typed))
