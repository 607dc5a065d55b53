"""`seb completion SHELL`: what a shell has to read to complete our commands."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from seb_appliance.cli.output import say

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_SEB_COMPLETE"  # as click calls it: the shell asks by this


@click.command
@click.argument("shell", type=click.Choice(SHELLS), metavar="SHELL")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Write what SHELL (bash, zsh or fish) has to read to complete commands, options and topics.

    \b
    bash   eval "$(seb completion bash)" in ~/.bashrc
    zsh    eval "$(seb completion zsh)" in ~/.zshrc, after compinit
    fish   seb completion fish > ~/.config/fish/completions/seb.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    # Not its own `source`, which looks for a bash to ask how old it is.
    say(ShellComplete.source(kind(context.find_root().command, {}, "seb", VARIABLE)).rstrip())
