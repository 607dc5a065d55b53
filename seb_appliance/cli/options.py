"""What commands share: flags made from settings, the connection, --json, questions, completion."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from seb_appliance.cli.errors import CommandError
from seb_appliance.cli.output import bounded_nesting, say, say_json, tell
from seb_appliance.errors import ConfigurationError
from seb_appliance.formats.declared import Declared
from seb_appliance.quantities import READERS
from seb_appliance.setting_kinds import Setting
from seb_appliance.setting_sources import load
from seb_appliance.settings import SETTINGS, Settings

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")
Json = dict[str, Any]
Offer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

CONNECTION: Final = ("url", "key_file", "profile")
BUCKET: Final = ("bucket", "s3_endpoint", "s3_region", "s3_access_key_id", "s3_checksums")
TIMEOUTS: Final = ("s3_connect_timeout", "s3_read_timeout")
COMPLETION_S: Final = 0.25  # a person is typing; the interpreter's start comes on top

json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


class WholeSentences(click.Group):
    """A group whose help has the whole first sentence of each command: click cuts them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        rows = [(name, one.get_short_help_str(1000)) for name, one in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows))


class ListsByDefault(WholeSentences):
    """A group that lists when it is given no command: `seb topics` is `seb topics list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = bool(args) and args[0] in ctx.help_option_names
        has_command = bool(args) and not args[0].startswith("-")
        if not (has_command or is_help or ctx.resilient_parsing):  # resilient: completion
            args = ["list", *args]
        return super().parse_args(ctx, args)


# Settings as flags.


def with_settings(*names: str) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Hand the command `settings`: from `--config`, the flags of the named settings (without names:
    all of the appliance), variables and defaults."""
    chosen = [s for s in SETTINGS if s.has_flag and (s.name in names if names else not s.client)]

    def add(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def loaded(config: Path | None, **given: Any) -> T:
            flags = {setting.name: given.pop(setting.name) for setting in chosen}
            return command(settings=_settings_from(config, flags), **given)

        for setting in reversed(chosen):
            loaded = _option(setting)(loaded)
        return file_option("--config", "Settings file (TOML). Also SEB_CONFIG.")(loaded)

    return add


def _settings_from(config: Path | None, flags: dict[str, Any]) -> Settings:
    given = {name: value for name, value in flags.items() if value is not None}
    return load(flags=given, config=config)


def other_bucket(settings: Settings, flag: str, address: str, config: Path | None) -> Settings:
    """Settings for the bucket or directory at `address`, which `flag` names: these, or those of the
    file `config`. Raises ConfigurationError."""
    bucket = address if ":" in address else f"file:{address}"
    if config is None:
        found = replace(settings, bucket=bucket)
    else:
        loaded = load(flags={"bucket": bucket}, environment={}, config=config)
        found = replace(loaded, data=settings.data)
    if found.address.kind == "memory":
        raise ConfigurationError(
            f"{flag} memory: is lost when this command ends; name a bucket or a directory"
        )
    return found


def _option(setting: Setting) -> Callable[[Command], Command]:
    default = setting.words(setting.default)
    text = setting.help if setting.flag_only else f"{setting.help} [{default}]"
    if setting.kind == "switch":
        both = setting.flag if setting.flag_only else f"{setting.flag}/--no-{setting.flag[2:]}"
        return click.option(both, setting.name, default=None, is_flag=True, help=text)
    metavar = "|".join(setting.choices) or setting.kind.upper()
    complete = profile_names if setting.name == "profile" else None
    return click.option(
        setting.flag, setting.name, metavar=metavar, help=text, shell_complete=complete
    )


def file_option(flag: str, text: str, **more: Any) -> Callable[[Command], Command]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(flag, type=kind, help=text, **more)


# Options for what is declared: the settings of a topic, the quotas of an API key.


def declared_options(
    declared: Mapping[str, Declared], unset: str = ""
) -> Callable[[Command], Command]:
    """A flag for each declaration. `unset`: the word for "no value", if there is one."""

    def add(command: Command) -> Command:
        for one in reversed(list(declared.values())):
            text = f"{one.help} {unset}: {one.unset}." if unset else one.help
            flag = f"--{one.word.replace('_', '-')}"
            command = click.option(flag, metavar=one.metavar, help=text)(command)
        return command

    return add


def declared_value(name: str, one: Declared, text: str, unset: str) -> Any:
    """None for the word `unset`. Raises UsageError."""
    try:
        return None if text == unset else one.parse(text)
    except ValueError as error:
        raise click.UsageError(f"{name}: {error}") from error


class Quantity(click.ParamType[int]):
    """A DURATION in ms, or a SIZE in bytes, from `smallest` to `largest`."""

    def __init__(self, name: str, smallest: int, largest: int) -> None:
        self.name = name
        self._smallest, self._largest = smallest, largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int = READERS[self.name.lower()](str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not self._smallest <= number <= self._largest:
            self.fail(f"{value!r} is too small or too large", param, ctx)
        return number


class Time(click.ParamType[int]):
    """A TIME such as 2026-11-21T10:00:00Z, in µs since the epoch."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = None
        with contextlib.suppress(ValueError):
            found = datetime.fromisoformat(str(value))
        if found is None or found.tzinfo is None:
            self.fail(
                f"{value!r} is not a time with a zone such as 2026-11-21T10:00:00Z", param, ctx
            )
        return (found - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


# A command returns what it found; `--json` decides how it is printed.


class Result:
    """`data`: for programs; `text`: for people, or what makes it of `data`; `note`: for stderr."""

    def __init__(
        self, data: Any, text: str | Callable[[Any], str], exit_code: int = 0, note: str = ""
    ) -> None:
        self.data, self.text, self.exit_code, self.note = data, text, exit_code, note

    def show(self, *, as_json: bool) -> int:
        if as_json:
            say_json(self.data)
        else:
            with bounded_nesting():
                text = self.text if isinstance(self.text, str) else self.text(self.data)
            say(text)
            if self.note:
                tell(self.note)
        return self.exit_code


def shows(command: Callable[..., Result]) -> Callable[..., int]:
    """Print the command's result, with `--json` as JSON."""

    @json_option
    @functools.wraps(command)
    def showing(as_json: bool, **given: Any) -> int:
        return command(**given).show(as_json=as_json)

    return showing


def connects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Hand the command an HttpClient as `client` and the flag `as_json`."""

    @with_settings(*CONNECTION)
    @json_option
    @functools.wraps(command)
    def connected(settings: Settings, **given: Any) -> Any:
        from seb_appliance.cli.connection import HttpClient

        with HttpClient.of(settings) as client:
            return command(client=client, **given)

    return connected


def talks(command: Callable[..., Result]) -> Callable[..., Any]:
    """Hand the command an HttpClient as `client`, and print its result."""

    @connects
    @functools.wraps(command)
    def talking(as_json: bool, **given: Any) -> int:
        return command(**given).show(as_json=as_json)

    return talking


# Questions before something is taken away: a person is asked, a program says --yes.


def ask_for_the_name(what: str, name: str) -> None:
    """Raises CommandError unless the person types `name`; Abort at Ctrl-C."""
    question = f"Type {name} to delete {what}"
    if _answer(lambda: click.prompt(question, err=True, default="", show_default=False)) != name:
        raise CommandError("the name does not match; nothing was deleted")


def ask(question: str) -> None:
    """Raises CommandError unless the person says yes; Abort at Ctrl-C."""
    if not _answer(lambda: click.confirm(question, err=True)):
        raise CommandError("not confirmed; nothing was changed")


def _answer(put: Callable[[], T]) -> T | None:
    """None at the end of input, for which click raises Abort as it does for Ctrl-C."""
    try:
        return put()
    except click.Abort as error:
        click.echo(err=True)  # ends the line of the question
        if isinstance(error.__context__, KeyboardInterrupt):
            raise
        return None


# Names that the shell can complete. A completion takes a moment or offers nothing.


def _offers(find: Callable[[click.Context], list[str]]) -> Offer:
    def offer(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names = find(context)
        except Exception:
            return []  # nobody could read an error here
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]

    return offer


def _listed(path: str, rows: str, member: str) -> Callable[[click.Context], list[str]]:
    """Names out of a list of the HTTP API, in `member` of each of its `rows`."""

    def find(context: click.Context) -> list[str]:
        from random import random

        from seb_appliance.cli.connection import url_and_key
        from seb_appliance.client.transport import Caller, Endpoint
        from seb_appliance.clock import SystemClock

        given = {name: context.params.get(name) for name in CONNECTION}
        settings = _settings_from(context.params.get("config"), given)
        endpoint = Endpoint(*url_and_key(settings, runs_commands=False))

        async def request() -> Any:
            caller = Caller(endpoint, SystemClock(), random, connections=1, patience_s=0)
            async with asyncio.timeout(COMPLETION_S):
                answer = await caller.once(endpoint.request("GET", path))
            caller.close()
            return answer.json()

        return [row[member] for row in asyncio.run(request())[rows]]

    return find


def _profiles(_: click.Context) -> list[str]:
    from seb_appliance.cli.profiles_file import load as load_profiles

    return sorted(load_profiles().profiles)


topic_names: Final = _offers(_listed("/v1/topics", "topics", "topic"))
group_names: Final = _offers(_listed("/v1/groups", "groups", "group"))
profile_names: Final = _offers(_profiles)
topic_argument = click.argument("topic", shell_complete=topic_names)
