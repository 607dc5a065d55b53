"""What every command that talks to an appliance has: where it is, an API key, and --json."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from seb_appliance.addresses import is_local
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.cli.profiles_file import Profile, load, read_key
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import profiles_file
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient


ADMIN_KEY_FILE: Final = "admin.key"  # seb serve puts it there

AnyCommand = Callable[..., Any]


class ListsByDefault(click.Group):
    """A group that lists when it is given no command: `seb topics` is `seb topics list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        has_command = bool(args) and not args[0].startswith("-")
        if not (has_command or is_help or ctx.resilient_parsing):  # that completes a command
            args = ["list", *args]
        return super().parse_args(ctx, args)


def talks(command: AnyCommand) -> AnyCommand:
    """Hand the command an HttpClient as `client` and the flag `as_json`."""

    @with_settings("url", "key_file", "profile")
    @click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
    @functools.wraps(command)
    def talking(
        config: Path | None,
        url: str | None,
        key_file: str | None,
        profile: str | None,
        **given: Any,
    ) -> int | None:
        client = make_client(config, {"url": url, "key_file": key_file, "profile": profile})
        try:
            result: int | None = command(client=client, **given)
        except (LookupError, TypeError, ValueError) as error:
            stranger = client.stranger(error)
            if stranger is None:
                raise
            raise stranger from error
        finally:
            client.close()
        return result

    return talking


def make_client(config: Path | None, flags: dict[str, str | bool | None]) -> HttpClient:
    """Raises ConfigurationError that says which file or setting is wrong."""
    from seb_appliance.cli.http_client import HttpClient

    return HttpClient(*url_and_key(settings_from(config, flags)))


def url_and_key(
    settings: Settings, *, ours: bool = True, runs_commands: bool = True
) -> tuple[str, str]:
    """Where the appliance is, and with which API key to talk to it. `ours` False: a key of another
    broker, whatever it looks like. `runs_commands` False: not one that a command has to tell.

    A flag goes before a variable, that before a profile named by one, and that before the settings
    file; a profile that nobody named counts where nothing else is said. Whatever is said, the API
    key of a profile goes to its own url only. Raises ConfigurationError.
    """
    profile, rank = _profile(settings)
    if profile is None:
        return settings.url, _key(settings, ours=ours)
    url = settings.url if _rank(settings, "url") >= rank else profile.url
    if _rank(settings, "key_file") >= rank:
        return url, _key(settings, ours=ours)
    if url != profile.url:
        raise ConfigurationError(
            f"the API key of the profile is not for {url}: name a file that holds one with "
            "--key-file or SEB_KEY_FILE"
        )
    if profile.key_command is not None and not runs_commands:
        raise ConfigurationError("no API key without running a command")
    return url, profile.api_key(ours=ours)


def _profile(settings: Settings) -> tuple[Profile | None, int]:
    """The one that counts, and how much it counts. Raises ConfigurationError."""
    path = profiles_file()
    if settings.profile is not None:
        return load(path).named(settings.profile, path), max(1, _rank(settings, "profile"))
    if _rank(settings, "url") or _rank(settings, "key_file"):
        return None, 0
    found = load(path)
    return (None, 0) if found.default is None else (found.named(found.default, path), 1)


def _rank(settings: Settings, name: str) -> int:
    """How much it counts that a setting was said where it was; 0: nobody said it."""
    source = settings.sources[name]
    if source == "default":
        return 0
    return 3 if source.startswith("--") else 2 if source.startswith("SEB_") else 1


def _key(settings: Settings, *, ours: bool) -> str:
    """The API key in `key_file`, or the admin key that lies on this machine. Raises
    ConfigurationError."""
    path = settings.key_file
    if path is None:
        # An admin key that lies around here is nobody else's business.
        if not is_local(settings.url):
            raise ConfigurationError(
                f"no API key for {settings.url}: name a file that holds one with --key-file or "
                "SEB_KEY_FILE, or a profile with --profile"
            )
        path = settings.data / ADMIN_KEY_FILE
        if not path.exists():
            raise ConfigurationError(
                f"no API key: {path} is not there. Name a file that holds one with --key-file or "
                "SEB_KEY_FILE, or a profile with --profile"
            )
    return read_key(path, ours=ours)


# Why a command that talks to an appliance came to nothing: a sentence and an exit code.


REFUSED: Final = 1
DIFFERS: Final = 2  # seb apply --diff: there is something to do
WRONG: Final = 65  # what was read is not what was written
UNAVAILABLE: Final = 69  # nothing happened; the same command may work later
UNKNOWN: Final = 71  # whether anything happened is not known
NOT_WRITTEN: Final = 74  # our output has no room


class CommandError(Exception):
    """`sentence` goes to the terminal."""

    def __init__(self, sentence: str, exit_code: int = REFUSED) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exit_code = exit_code


class AnswerError(CommandError):
    """The appliance refused, or did not answer. `status` is 0 when it did not. `problem`: the
    members of the problem document."""

    def __init__(
        self,
        sentence: str,
        exit_code: int,
        *,
        status: int = 0,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(sentence, exit_code)
        self.status = status
        self.problem = problem or {}


class OutputError(CommandError):
    """Stdout takes no more. `written`: so many bytes of what was to be written were taken."""

    def __init__(self, why: str, written: int) -> None:
        super().__init__(f"cannot write to stdout ({why})", NOT_WRITTEN)
        self.why = why
        self.written = written


class ReaderLeftError(Exception):
    """Nobody reads our output any more (`seb consume … | head`): nothing is left to say."""


# Before something is taken away: a person is asked, a program says --yes.


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
