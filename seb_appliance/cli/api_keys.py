"""`seb api-keys …`: who may do what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from seb_appliance.addresses import path_of
from seb_appliance.cli.api_key_members import (
    grant_words,
    member_options,
    members_from,
    members_words,
)
from seb_appliance.cli.asking import ask, yes_option
from seb_appliance.cli.outline import outline
from seb_appliance.cli.output import moment, say, say_json, table, tell
from seb_appliance.cli.reaching import ListsByDefault, talks

if TYPE_CHECKING:
    from seb_appliance.cli.http_client import HttpClient

Json = dict[str, Any]


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
