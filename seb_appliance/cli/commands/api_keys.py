"""`seb api-keys …`: who may do what."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click
import msgspec

from seb_appliance import limits
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    declared_options,
    declared_value,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, table
from seb_appliance.formats.api_key_members import QUOTAS, Grant
from seb_appliance.quantities import duration_ms

NEVER: Final = "never"
NONE: Final = "none"
_GRANT: Final = "OPERATION[:TOPICS[:GROUPS]], such as consume:orders.*:lake. May be given again."

id_argument = click.argument("api_key_id", metavar="ID")


def member_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of what can be given and changed, `--grant` left out."""
    expires = click.option(
        "--expires", metavar="DURATION", help=f"Time from now, such as 90d; or {NEVER}."
    )
    command = expires(declared_options(QUOTAS, NONE)(command))
    return click.option("--description", metavar="TEXT", help="What it is for.")(command)


def members_from(
    *, grants: tuple[str, ...], description: str | None, expires: str | None, **quotas: str | None
) -> Json:
    """The members that were given, as the API has them. Raises UsageError."""
    body: Json = {}
    if grants:
        try:
            body["grants"] = [msgspec.to_builtins(Grant.parse(grant)) for grant in grants]
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    if description is not None:
        body["description"] = description
    if expires is not None:
        body["expires"] = None if expires == NEVER else _after(expires)
    given = {name: text for name, text in quotas.items() if text is not None}
    if given:
        body["quotas"] = {
            name: declared_value(f"--{name.replace('_', '-')}", QUOTAS[name], text, NONE)
            for name, text in given.items()
        }
    return body


def grant_words(key: Json) -> list[str]:
    return [grant.text() for grant in msgspec.convert(key["grants"], list[Grant])]


def _outline(key: Json) -> str:
    """The whole key, for people; `secret` only if it is new."""
    quotas = [
        f"{name.replace('_', '-')} {one.text(key['quotas'][name])}"
        for name, one in QUOTAS.items()
        if key["quotas"][name] is not None
    ]
    members = {
        "api key": key["api_key_id"],
        "name": key["name"],
        "description": key["description"] or None,
        "grants": grant_words(key),
        "quotas": ", ".join(quotas) or None,
        "created": moment(key["created"]),
        "expires": moment(key["expires"]) or NEVER,
        "disabled": key["disabled"],
        "old secret works until": moment(key["overlap_until"]),
        "last used": moment(key["last_used"]),
    }
    return outline(members | {name: key[name] for name in ("secret",) if name in key})


def _after(text: str) -> str:
    """The time that lies so far ahead, by this machine's clock. Raises UsageError."""
    try:
        ahead = timedelta(milliseconds=duration_ms(text))
        return (datetime.now(UTC) + ahead).isoformat()
    except (ValueError, OverflowError) as error:
        raise click.UsageError(f"--expires: {error}") from error


@click.group("api-keys", cls=ListsByDefault)
def api_keys() -> None:
    """API keys: list (the default), create, show, change, rotate, revoke.

    Needs an admin key.
    """


@api_keys.command("list")
@talks
def list_api_keys(client: HttpClient) -> Result:
    """List the API keys, without their secrets."""
    answer = client.ask("GET", "api-keys")
    names = ("id", "name", "grants", "created", "expires", "last used")
    return Result(answer, lambda _: table(names, map(_row, answer["api_keys"]), "no API keys"))


def _row(key: Json) -> tuple[str | None, ...]:
    ends = "disabled" if key["disabled"] else moment(key["expires"]) or NEVER
    grants, created = ", ".join(grant_words(key)), moment(key["created"])
    return key["api_key_id"], key["name"], grants, created, ends, moment(key["last_used"])


@api_keys.command()
@click.argument("name")
@click.option("--grant", "grants", multiple=True, required=True, metavar="GRANT", help=_GRANT)
@member_options
@talks
def create(client: HttpClient, name: str, **given: Any) -> Result:
    """Create an API key called NAME. Its secret is shown once, now.

    Operations: produce, consume, work, manage, admin. Topics and groups are names or patterns (*
    is one word, ** any number), all when they are left out.
    """
    return _secret(client.ask("POST", "api-keys", body={"name": name, **members_from(**given)}))


@api_keys.command()
@id_argument
@talks
def show(client: HttpClient, api_key_id: str) -> Result:
    """Show the API key ID, without its secret."""
    return Result(client.ask("GET", "api-keys", api_key_id), _outline)


@api_keys.command()
@id_argument
@click.option("--name", metavar="NAME", help="New name.")
@click.option(
    "--grant", "grants", multiple=True, metavar="GRANT", help=f"Replaces all its grants: {_GRANT}"
)
@member_options
@click.option("--disable/--enable", "disabled", default=None, help="Refuse or accept it.")
@talks
def change(client: HttpClient, api_key_id: str, **given: Any) -> Result:
    """Change the API key ID: only what is named. The change applies at once."""
    own = {name: given.pop(name) for name in ("name", "disabled")}
    body = members_from(**given) | {n: value for n, value in own.items() if value is not None}
    if not body:
        raise click.UsageError("nothing to change is named")
    return Result(client.ask("PATCH", "api-keys", api_key_id, body=body), _outline)


@api_keys.command()
@id_argument
@click.option("--overlap", metavar="DURATION", help="How long the old secret still works. [24h]")
@yes_option
@talks
def rotate(client: HttpClient, api_key_id: str, overlap: str | None, yes: bool) -> Result:
    """Give the API key ID a new secret, which is shown once, now.

    The old secret also works until the overlap is over; 0s ends it at once. At most two secrets
    work: another rotation within the overlap ends the older one, and asks.
    """
    if not yes and _may_end_a_secret(overlap):
        until = client.ask("GET", "api-keys", api_key_id)["overlap_until"]
        if until is not None and datetime.fromisoformat(until) > datetime.now(UTC):
            ask(f"This ends the secret before the newest (works until {moment(until)}). Do it?")
    body = {} if overlap is None else {"overlap": overlap}
    return _secret(client.ask("POST", "api-keys", api_key_id, "rotate", body=body))


@api_keys.command()
@id_argument
@yes_option
@talks
def revoke(client: HttpClient, api_key_id: str, yes: bool) -> Result:
    """Revoke the API key ID, at once. This cannot be undone."""
    if not yes:
        click.echo(_outline(client.ask("GET", "api-keys", api_key_id)), err=True)
        ask("Revoke it?")
    client.request("DELETE", "api-keys", api_key_id)
    return Result({"revoked": api_key_id}, f"{api_key_id} revoked")


def _may_end_a_secret(overlap: str | None) -> bool:
    """Whether it is to be asked for: not if no other secret is to work, as after a leak, nor if the
    appliance will refuse the overlap."""
    try:
        return overlap is None or 0 < duration_ms(overlap) <= limits.API_KEY_OVERLAP_MS_MAX
    except ValueError:
        return False


def _secret(made: Json) -> Result:
    note = "The secret is shown only once and stored nowhere."
    return Result(made, _outline, note=note)
