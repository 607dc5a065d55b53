"""What every command that talks to an appliance has: where it is, an API key, and --json."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import is_local
from seb_appliance.cli.options import settings_from, with_settings
from seb_appliance.errors import ConfigurationError
from seb_appliance.settings import Settings

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

ADMIN_KEY_FILE: Final = "admin.key"  # seb serve puts it there
KEY_BYTES_MAX: Final = 4096

AnyCommand = Callable[..., Any]


class ListsByDefault(click.Group):
    """A group that lists when it is given no command: `seb topics` is `seb topics list`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


def talks(command: AnyCommand) -> AnyCommand:
    """Hand the command an HttpClient as `client` and the flag `as_json`."""

    @with_settings("url", "key_file")
    @click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
    @functools.wraps(command)
    def talking(
        config: Path | None, url: str | None, key_file: str | None, **given: Any
    ) -> int | None:
        client = make_client(config, {"url": url, "key_file": key_file})
        try:
            result: int | None = command(client=client, **given)
        finally:
            client.close()
        return result

    return talking


def make_client(config: Path | None, flags: dict[str, str | bool | None]) -> HttpClient:
    """Raises ConfigurationError that says which file or setting is wrong."""
    from seb_appliance.cli.http_client import HttpClient

    return HttpClient(*url_and_key(settings_from(config, flags)))


def url_and_key(settings: Settings, *, ours: bool = True) -> tuple[str, str]:
    """Where the appliance is, and with which API key to talk to it. `ours` False: a key of another
    broker, whatever it looks like. Raises ConfigurationError."""
    path = settings.key_file
    if path is None:
        # An admin key that lies around here is nobody else's business.
        if not is_local(settings.url):
            raise ConfigurationError(
                f"no API key for {settings.url}: name a file that holds one with --key-file or "
                "SEB_KEY_FILE"
            )
        path = settings.data / ADMIN_KEY_FILE
        if not path.exists():
            raise ConfigurationError(
                f"no API key: {path} is not there. Name a file that holds one with --key-file or "
                "SEB_KEY_FILE"
            )
    return settings.url, read_key(path, ours=ours)


def read_key(path: Path, *, ours: bool = True) -> str:
    """The API key in a file. Raises ConfigurationError; what the file holds is never shown."""
    try:
        with path.open("rb") as file:
            text = file.read(KEY_BYTES_MAX).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationError(
            f"cannot read the API key from {path} ({error.strerror})"
        ) from error
    except UnicodeDecodeError:
        text = ""
    if not text or (ours and not text.startswith("seb_")) or not text.isprintable() or " " in text:
        raise ConfigurationError(f"{path} does not hold an API key (seb_…) and nothing else")
    return text
