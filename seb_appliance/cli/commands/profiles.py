"""`seb profiles …`: named appliances, so that commands need neither --url nor --key-file."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from seb_appliance.addresses import parse_url
from seb_appliance.cli.options import (
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
    check_name,
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
    found = load(profiles_file())
    rows = [
        (name, profile.url, profile.key_from, name == found.default)
        for name, profile in sorted(found.profiles.items())
    ]
    members = ("profile", "url", "key_from", "default")
    shown = [dict(zip(members, row, strict=True)) for row in rows]
    cells = ((*row, "default" if is_default else None) for *row, is_default in rows)
    return Result(
        {"file": str(profiles_file()), "profiles": shown},
        lambda: table(("profile", "url", "key", ""), cells, "no profiles"),
    )


@profiles.command()
@click.argument("name")
@click.option("--url", required=True, metavar="URL", help="Where the appliance is.")
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

    Without --key-file or --key-command the API key is asked for, or read from stdin, and kept in
    the file of the profiles, which only you may read.
    """
    check_name(name)
    parse_url(url)
    if key_file is not None and key_command is not None:
        raise click.UsageError("say either --key-file or --key-command")
    profile = Profile(url, None, key_file, key_command)
    found = load(profiles_file())
    if key_file is None and key_command is None:
        profile = replace(profile, key=_asked_key())
    changed = Profiles(found.default or name, {**found.profiles, name: profile})
    save(profiles_file(), changed)
    return Result({"added": name}, f"{name} added" + ", the default" * (changed.default == name))


@profiles.command()
@click.argument("name", shell_complete=profile_names)
@shows
def use(name: str) -> Result:
    """Make the profile NAME the default."""
    found = load(profiles_file())
    found.named(name, profiles_file())
    save(profiles_file(), replace(found, default=name))
    return Result({"default": name}, f"{name} is the default")


@profiles.command()
@click.argument("name", shell_complete=profile_names)
@yes_option
@shows
def remove(name: str, yes: bool) -> Result:
    """Remove the profile NAME."""
    found = load(profiles_file())
    found.named(name, profiles_file())
    if not yes:
        ask(f"Remove the profile {name}?")
    left = {other: profile for other, profile in found.profiles.items() if other != name}
    save(profiles_file(), Profiles(None if found.default == name else found.default, left))
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


# `seb completion SHELL`: what a shell has to read to complete our commands.


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
