"""docs/CLI.md names every command that talks to an appliance, with every option and exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from seb_appliance.cli import INTERRUPTED, seb
from seb_appliance.cli import errors as failures
from seb_appliance.errors import ConfigurationError

TEXT = (Path(__file__).parents[2] / "docs" / "CLI.md").read_text(encoding="utf-8")
ON_THE_MACHINE = {"serve", "promote", "doctor", "inspect", "fsck", "admin", "restore", "clone"}
EVERYWHERE = {"--url", "--key-file", "--profile", "--config", "--json", "--help"}
LOCAL = {"demo", "profiles", "completion"}  # they talk to no appliance


def commands() -> Iterator[tuple[str, click.Command]]:
    """By their full names, those that are described in docs/CLI.md."""
    context = click.Context(seb)
    for name in seb.list_commands(context):
        command = seb.get_command(context, name)
        assert command is not None, name
        if name in ON_THE_MACHINE:
            continue
        if isinstance(command, click.Group):
            for below, found in command.commands.items():
                yield f"seb {name} {below}", found
        else:
            yield f"seb {name}", command


COMMANDS = dict(commands())


def described(name: str) -> str:
    """The section of a command, or its row of a group's table."""
    if len(name.split()) == 2:
        section = re.search(rf"^## {name}\b.*?(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
        assert section is not None, name
        return section[0]
    row = re.search(rf"^\| `{name}\b.*$", TEXT, re.MULTILINE)
    assert row is not None, name
    return row[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_described_with_its_options_and_no_others(name: str) -> None:
    options = {
        flag
        for parameter in COMMANDS[name].params
        if isinstance(parameter, click.Option)
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    named = set(re.findall(r"--[a-z][a-z0-9-]*", described(name))) - {"--json"}
    if name.split()[1] in LOCAL:
        assert named == options - {"--json", "--help"}
        return
    assert named == options - EVERYWHERE
    assert options >= EVERYWHERE - {"--help"}
    for option in EVERYWHERE:
        assert f"| `{option}` |" in TEXT


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_described_with_its_arguments(name: str) -> None:
    shown = " ".join(
        (parameter.metavar or str(parameter.name).upper()).replace("...", "…")
        for parameter in COMMANDS[name].params
        if isinstance(parameter, click.Argument)
    )
    assert f"{name} {shown}".rstrip() in described(name)


def test_no_command_is_described_that_is_not_there() -> None:
    rows = re.findall(r"^\| `(seb [a-z-]+ [a-z-]+)", TEXT, re.MULTILINE)
    sections = re.findall(r"^## (seb [a-z-]+)", TEXT, re.MULTILINE)
    assert set(rows) == {name for name in COMMANDS if len(name.split()) == 3}
    assert {name.removeprefix("seb ") for name in sections} == set(
        seb.list_commands(click.Context(seb))
    ) - ON_THE_MACHINE


def test_every_exit_code_is_described() -> None:
    described_codes = {int(code) for code in re.findall(r"^\| (\d+) \|", TEXT, re.MULTILINE)}
    ours = {failures.REFUSED, failures.DIFFERS, failures.WRONG, failures.UNAVAILABLE}
    ours |= {failures.UNKNOWN, failures.NOT_WRITTEN}
    assert described_codes == {0, *ours, ConfigurationError.exit_code, INTERRUPTED}
