"""`seb api-keys …`: who may do what."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.output import moment, outline, say, say_json, table, tell
from seb_appliance.cli.remote import ListsByDefault, ask, talks, yes_option
from seb_appliance.quantities import duration_ms, format_size, size_bytes

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient


# What an API key is made of: as flags, as the API's JSON, as words for people.


Json = dict[str, Any]
AnyCommand = Callable[..., Any]

NEVER: Final = "never"
NONE: Final = "none"


def _count(text: str) -> int:
    """Raises ValueError that ends a sentence."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a number such as 50")
    return int(text)


# Members of `quotas`, and how their flags are read and their values shown.
QUOTAS: Final[dict[str, tuple[Callable[[str], int], Callable[[int], str]]]] = {
    "requests_per_second": (_count, str),
    "bytes_in_per_second": (size_bytes, format_size),
    "bytes_out_per_second": (size_bytes, format_size),
}


def member_options(command: AnyCommand) -> AnyCommand:
    """Add the flags of what can be given and changed, `--grant` left out."""
    for name in reversed(QUOTAS):
        metavar = "N" if name.startswith("requests") else "SIZE"
        command = click.option(
            f"--{name.replace('_', '-')}",
            metavar=metavar,
            help=f"A quota, on the mean; {NONE}: without.",
        )(command)
    command = click.option(
        "--expires", metavar="DURATION", help=f"After so long from now, such as 90d; or {NEVER}."
    )(command)
    return click.option("--description", metavar="TEXT", help="What it is for.")(command)


def members_from(
    *, grants: tuple[str, ...], description: str | None, expires: str | None, **quotas: str | None
) -> Json:
    """The members that were given, as the API has them. Raises UsageError."""
    body: Json = {}
    if grants:
        body["grants"] = [parse_grant(grant) for grant in grants]
    if description is not None:
        body["description"] = description
    if expires is not None:
        body["expires"] = None if expires == NEVER else _after(expires)
    limited = {name: _quota(name, text) for name, text in quotas.items() if text is not None}
    if limited:
        body["quotas"] = limited
    return body


def parse_grant(text: str) -> Json:
    """`consume:orders.*:lake` as the API has it. Raises UsageError."""
    from seb_appliance.formats.api_key_members import GRANT_OPERATIONS

    members = dict(zip(("operation", "topics", "groups"), text.split(":", 2), strict=False))
    is_whole = all(members.values()) and ":" not in members.get("groups", "")
    if not is_whole or members["operation"] not in GRANT_OPERATIONS:
        raise click.UsageError(
            f"{text!r} is no grant: OPERATION[:TOPICS[:GROUPS]], such as consume:orders.*:lake, "
            f"where OPERATION is one of {', '.join(GRANT_OPERATIONS)}"
        )
    return dict(members)


def grant_words(grant: Json) -> str:
    """As `parse_grant` reads it, without what means "all"."""
    words = [grant["operation"], grant["topics"], grant["groups"]]
    while words[-1] == "**":
        words.pop()
    return ":".join(words)


def members_words(key: Json) -> Json:
    """The whole key, for people."""
    return {
        "api key": key["api_key_id"],
        "name": key["name"],
        "description": key["description"] or None,
        "grants": [grant_words(grant) for grant in key["grants"]],
        "quotas": _quota_words(key["quotas"]),
        "created": moment(key["created"]),
        "expires": moment(key["expires"]) or NEVER,
        "disabled": key["disabled"],
        "old secret works until": moment(key["overlap_until"]),
        "last used": moment(key["last_used"]),
    }


def _quota_words(quotas: Json) -> str | None:
    """As the flags read them."""
    words = [
        f"{name.replace('_', '-')} {shown(quotas[name])}"
        for name, (_, shown) in QUOTAS.items()
        if quotas[name] is not None
    ]
    return ", ".join(words) or None


def _quota(name: str, text: str) -> int | None:
    if text == NONE:
        return None
    read, _ = QUOTAS[name]
    try:
        return read(text)
    except ValueError as error:
        raise click.UsageError(f"--{name.replace('_', '-')}: {error}") from error


def _after(text: str) -> str:
    """The time that lies so far ahead, by this machine's clock. Raises UsageError."""
    try:
        ahead = timedelta(milliseconds=duration_ms(text))
        return (datetime.now(UTC) + ahead).isoformat()
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"--expires: {error}") from error


@click.group("api-keys", cls=ListsByDefault)
def api_keys() -> None:
    """API keys: list (also without a command), create, show, change, rotate, revoke.

    Needs an admin key.
    """


@api_keys.command("list")
@talks
def list_api_keys(client: HttpClient, as_json: bool) -> None:
    """List the API keys. Their secrets are stored nowhere."""
    answer = client.request("GET", path_of("api-keys")).json()
    if as_json:
        say_json(answer)
        return
    rows = [
        (
            key["api_key_id"],
            key["name"],
            ", ".join(map(grant_words, key["grants"])),
            moment(key["created"]),
            "disabled" if key["disabled"] else moment(key["expires"]) or "never",
            moment(key["last_used"]),
        )
        for key in answer["api_keys"]
    ]
    say(table(("id", "name", "grants", "created", "expires", "last used"), rows, "no API keys"))


_GRANT: Final = "OPERATION[:TOPICS[:GROUPS]], such as consume:orders.*:lake. May be given again."


@api_keys.command()
@click.argument("name")
@click.option("--grant", "grants", multiple=True, required=True, metavar="GRANT", help=_GRANT)
@member_options
@talks
def create(client: HttpClient, as_json: bool, name: str, **given: Any) -> None:
    """Make an API key called NAME. Its secret is shown once, now.

    Operations: produce, consume, manage, admin. Topics and groups are names or patterns (* is one
    word, ** any number), all when they are left out.
    """
    body = {"name": name, **members_from(**given)}
    _show_secret(client.request("POST", path_of("api-keys"), json_body=body).json(), as_json)


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@talks
def show(client: HttpClient, as_json: bool, api_key_id: str) -> None:
    """Show the API key ID, without its secret."""
    _show(client.request("GET", path_of("api-keys", api_key_id)).json(), as_json)


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@click.option("--name", metavar="NAME", help="Call it so.")
@click.option(
    "--grant", "grants", multiple=True, metavar="GRANT", help=f"In place of all it has: {_GRANT}"
)
@member_options
@click.option("--disable/--enable", "disabled", default=None, help="Refuse it, or take it again.")
@talks
def change(
    client: HttpClient,
    as_json: bool,
    api_key_id: str,
    name: str | None,
    disabled: bool | None,
    **given: Any,
) -> None:
    """Change the API key ID: what is named, and nothing else. In force at once."""
    body = members_from(**given)
    if name is not None:
        body["name"] = name
    if disabled is not None:
        body["disabled"] = disabled
    if not body:
        raise click.UsageError("nothing to change is named")
    path = path_of("api-keys", api_key_id)
    _show(client.request("PATCH", path, json_body=body).json(), as_json)


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@click.option("--overlap", metavar="DURATION", help="How long the secret of now still works. [24h]")
@talks
def rotate(client: HttpClient, as_json: bool, api_key_id: str, overlap: str | None) -> None:
    """Give the API key ID a new secret, which is shown once, now.

    The secret of now works beside it until the overlap is over; 0s ends it at once.
    """
    body = {} if overlap is None else {"overlap": overlap}
    made = client.request("POST", path_of("api-keys", api_key_id, "rotate"), json_body=body)
    _show_secret(made.json(), as_json)


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@yes_option
@talks
def revoke(client: HttpClient, as_json: bool, api_key_id: str, yes: bool) -> None:
    """Revoke the API key ID, at once and for ever."""
    if not yes:
        found = client.request("GET", path_of("api-keys", api_key_id)).json()
        click.echo(outline(members_words(found)), err=True)
        ask("Revoke it?")
    client.request("DELETE", path_of("api-keys", api_key_id))
    if as_json:
        say_json({"revoked": api_key_id})
    else:
        say(f"{api_key_id} is revoked")


def _show(key: Json, as_json: bool) -> None:
    if as_json:
        say_json(key)
    else:
        say(outline(members_words(key)))


def _show_secret(made: Json, as_json: bool) -> None:
    if as_json:
        say_json(made)
    else:
        say(outline({**members_words(made), "secret": made["secret"]}))
        tell("The secret is shown this once and stored nowhere.")
