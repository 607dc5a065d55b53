"""`seb api-keys …`: who may do what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from seb_appliance.cli.asking import ask, yes_option
from seb_appliance.cli.outline import outline
from seb_appliance.cli.output import moment, say, say_json, table
from seb_appliance.cli.reaching import ListsByDefault, path_of, talks
from seb_appliance.quantities import duration_ms

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]


@click.group("api-keys", cls=ListsByDefault)
def api_keys() -> None:
    """API keys: list (also without a command), create, show, revoke. Needs an admin key."""


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
            moment(key["expires"]) or "never",
        )
        for key in answer["api_keys"]
    ]
    say(table(("id", "name", "grants", "created", "expires"), rows, "no API keys"))


@api_keys.command()
@click.argument("name")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    required=True,
    metavar="GRANT",
    help="OPERATION[:TOPICS[:GROUPS]], such as consume:orders.*:lake. May be given again.",
)
@click.option("--expires", metavar="DURATION", help="After so long, such as 90d. [never]")
@talks
def create(
    client: HttpClient, as_json: bool, name: str, grants: tuple[str, ...], expires: str | None
) -> None:
    """Make an API key called NAME. Its secret is shown once, now.

    Operations: produce, consume, manage, admin. Topics and groups are names or patterns (* is one
    word, ** any number), all when they are left out.
    """
    body = {"name": name, "grants": [parse_grant(grant) for grant in grants]}
    if expires is not None:
        body["expires"] = _after(expires)
    made = client.request("POST", path_of("api-keys"), json_body=body).json()
    if as_json:
        say_json(made)
    else:
        say(outline({**_members(made), "secret": made["secret"]}))
        click.echo("The secret is shown this once and stored nowhere.", err=True)


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@talks
def show(client: HttpClient, as_json: bool, api_key_id: str) -> None:
    """Show the API key ID, without its secret."""
    found = client.request("GET", path_of("api-keys", api_key_id)).json()
    if as_json:
        say_json(found)
    else:
        say(outline(_members(found)))


@api_keys.command()
@click.argument("api_key_id", metavar="ID")
@yes_option
@talks
def revoke(client: HttpClient, as_json: bool, api_key_id: str, yes: bool) -> None:
    """Revoke the API key ID, at once and for ever."""
    if not yes:
        found = client.request("GET", path_of("api-keys", api_key_id)).json()
        click.echo(outline(_members(found)), err=True)
        ask("Revoke it?")
    client.request("DELETE", path_of("api-keys", api_key_id))
    if as_json:
        say_json({"revoked": api_key_id})
    else:
        say(f"{api_key_id} is revoked")


def parse_grant(text: str) -> Json:
    """`consume:orders.*:lake` as the API has it. Raises UsageError."""
    members = dict(zip(("operation", "topics", "groups"), text.split(":", 2), strict=False))
    if not all(members.values()) or ":" in members.get("groups", ""):
        raise click.UsageError(
            f"{text!r} is not OPERATION[:TOPICS[:GROUPS]], such as produce:orders.*"
        )
    return dict(members)


def grant_words(grant: Json) -> str:
    """As `parse_grant` reads it, without what means "all"."""
    words = [grant["operation"], grant["topics"], grant["groups"]]
    while words[-1] == "**":
        words.pop()
    return ":".join(words)


def _members(key: Json) -> Json:
    return {
        "api key": key["api_key_id"],
        "name": key["name"],
        "grants": [grant_words(grant) for grant in key["grants"]],
        "created": moment(key["created"]),
        "expires": moment(key["expires"]) or "never",
    }


def _after(text: str) -> str:
    """The time that lies so far ahead, by this machine's clock. Raises UsageError."""
    try:
        ahead = timedelta(milliseconds=duration_ms(text))
        return (datetime.now(UTC) + ahead).isoformat()
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"--expires: {error}") from error
