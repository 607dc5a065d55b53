"""`seb profiles …`: named appliances, so that commands need neither --url nor --key-file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    profile_names,
    shows,
    yes_option,
)
from seb_appliance.cli.output import say, table, tell
from seb_appliance.cli.profiles_file import (
    KEY_BYTES_MAX,
    Profile,
    Profiles,
    checked_key,
    load,
    save,
)
from seb_appliance.errors import ConfigurationError
from seb_appliance.setting_sources import profiles_file


@click.group(cls=ListsByDefault)
def profiles() -> None:
    """Profiles (named URLs with API keys): list (the default), add, use, remove."""


@profiles.command("list")
@shows
def list_profiles() -> Result:
    """List the profiles, and where their API keys come from."""
    found = load()
    shown: list[Json] = [
        {"profile": n, "url": one.url, "key_from": one.key_from, "default": n == found.default}
        for n, one in sorted(found.profiles.items())
    ]
    cells = (
        (row["profile"], row["url"], row["key_from"], "default" if row["default"] else None)
        for row in shown
    )
    return Result(
        {"file": str(profiles_file()), "profiles": shown},
        lambda _: table(("profile", "url", "key", ""), cells, "no profiles"),
    )


@profiles.command()
@click.argument("name")
@click.option("--url", required=True, metavar="URL", help="URL of the appliance.")
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False, resolve_path=True),
    metavar="FILE",
    help="Read the API key from FILE each time.",
)
@click.option("--key-command", metavar="COMMAND", help="Take it from the output of COMMAND.")
@shows
def add(name: str, url: str, key_file: Path | None, key_command: str | None) -> Result:
    """Add the profile NAME, or replace it; the first one becomes the default.

    Without --key-file or --key-command, the API key is asked for or read from stdin, and is stored
    in the file of the profiles, which only you can read.
    """
    if key_file is not None and key_command is not None:
        raise click.UsageError("give either --key-file or --key-command")
    file = None if key_file is None else str(key_file)
    profile = Profile(url, key_file=file, key_command=key_command)
    found = load()
    changed = Profiles(found.default or name, {**found.profiles, name: profile}).check()
    if key_file is None and key_command is None:
        changed.profiles[name] = msgspec.structs.replace(profile, key=_asked_key())
    save(changed)
    return Result({"added": name}, f"{name} added" + ", the default" * (changed.default == name))


@profiles.command()
@click.argument("name", shell_complete=profile_names)
@shows
def use(name: str) -> Result:
    """Make the profile NAME the default."""
    found = load()
    found.named(name)
    save(msgspec.structs.replace(found, default=name))
    return Result({"default": name}, f"{name} is the default")


@profiles.command()
@click.argument("name", shell_complete=profile_names)
@yes_option
@shows
def remove(name: str, yes: bool) -> Result:
    """Remove the profile NAME."""
    found = load()
    found.named(name)
    if not yes:
        ask(f"Remove the profile {name}?")
    left = {other: profile for other, profile in found.profiles.items() if other != name}
    save(Profiles(None if found.default == name else found.default, left))
    return Result({"removed": name}, f"{name} removed")


def _asked_key() -> str:
    """Raises ConfigurationError."""
    if sys.stdin.isatty():
        tell("The API key is not shown while you type or paste it.")
        typed: str = click.prompt("API key", hide_input=True, err=True)
        return checked_key(typed.encode(), "what was typed")
    given = sys.stdin.buffer.read(KEY_BYTES_MAX)
    if not given.strip():
        raise ConfigurationError(
            "no API key: give it on stdin, or name --key-file or --key-command"
        )
    return checked_key(given, "stdin")


SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_SEB_COMPLETE"  # as click calls it: the shell asks by this


@click.command
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Write the completion script for SHELL (bash, zsh or fish).

    \b
    bash   eval "$(seb completion bash)" in ~/.bashrc
    zsh    eval "$(seb completion zsh)" in ~/.zshrc, after compinit
    fish   seb completion fish > ~/.config/fish/completions/seb.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Not its own `source`, which looks for a bash to ask how old it is.
    say(ShellComplete.source(kind(context.find_root().command, {}, "seb", VARIABLE)).rstrip())
