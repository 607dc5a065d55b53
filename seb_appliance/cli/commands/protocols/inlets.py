"""`seb inlets …`: URLs for senders that cannot carry an API key."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click

from seb_appliance import limits
from seb_appliance.cli.connection import HttpClient
from seb_appliance.cli.errors import AnswerError
from seb_appliance.cli.options import (
    Json,
    ListsByDefault,
    Result,
    ask,
    declared_options,
    declared_value,
    file_option,
    talks,
    yes_option,
)
from seb_appliance.cli.output import moment, outline, table, tell
from seb_appliance.errors import ConfigurationError, NotFoundError
from seb_appliance.formats.api_key_members import QUOTAS
from seb_appliance.protocols.inlets.settings import SETTINGS, VERIFY

_UNSET: Final = "none"
_STDIN: Final = "-"

_DECLARED: Final = {**SETTINGS, **VERIFY, **QUOTAS}


@click.group(cls=ListsByDefault)
def inlets() -> None:
    """Inlets for webhooks and log shippers: list (the default), show, set, delete."""


@inlets.command("list")
@talks
def list_inlets(client: HttpClient) -> Result:
    """List the inlets of the topics that the API key manages."""
    answer = client.ask("GET", "inlets")
    names = ("inlet", "topic", "scheme", "body", "answer", "secrets", "changed")
    return Result(answer, lambda _: table(names, map(_row, answer["inlets"]), "no inlets"))


def _row(inlet: Json) -> tuple[Any, ...]:
    settings = inlet["settings"]
    shown = settings.get("body", "value"), settings.get("answer", "stored")
    scheme = settings["verify"]["scheme"]
    changed = moment(inlet["changed"])
    return inlet["inlet"], settings["topic"], scheme, *shown, inlet["secrets"], changed


@inlets.command()
@click.argument("inlet")
@talks
def show(client: HttpClient, inlet: str) -> Result:
    """Show INLET, the URL for its sender, and its latest deliveries."""
    found = client.ask("GET", "inlets", inlet)
    return _result(client, found)


def _result(client: HttpClient, inlet: Json, note: str = "") -> Result:
    return Result(inlet, _outline(inlet, client.caller.endpoint.address), note=note)


def _outline(inlet: Json, url: str) -> str:
    settings = inlet["settings"]
    verify = ", ".join(f"{name} {value}" for name, value in settings["verify"].items())
    members = {
        "inlet": inlet["inlet"],
        "url": f"{url}{inlet['path']}",
        "verify": verify,
        **{name: words(value) for name, value in settings.items() if name != "verify"},
        "secrets": inlet["secrets"],
        "changed": moment(inlet["changed"]),
        **{name: inlet[name] for name in ("secret",) if name in inlet},
    }
    deliveries = table(
        ("delivered", "from", "status", "records", "detail"),
        [
            (moment(one["at"]), one["address"], str(one["status"]), one["records"], one["detail"])
            for one in inlet["deliveries"]
        ],
        "no deliveries since the appliance started",
    )
    return f"{outline(members)}\n\n{deliveries}"


def words(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(value) if isinstance(value, list) else value


@inlets.command("set")
@click.argument("inlet")
@declared_options(_DECLARED)
@file_option(
    "--secret-file",
    "Read the secret from this file (- is stdin). A new inlet gets a random one without it.",
)
@click.option("--rotate", is_flag=True, help="The secret of now stays valid beside the new one.")
@click.option("--end-previous", is_flag=True, help="Only the newest secret stays valid.")
@talks
def set_inlet(
    client: HttpClient,
    inlet: str,
    secret_file: Path | None,
    rotate: bool,
    end_previous: bool,
    **given: str | None,
) -> Result:
    """Create INLET, or change what is named. A value of none removes a setting.

    A new inlet needs --topic and --scheme. --rotate makes a random secret, or takes that of
    --secret-file. --end-previous, or a second --rotate, drops the oldest one.
    """
    if end_previous and (rotate or secret_file is not None):
        raise click.UsageError("--end-previous comes with neither --rotate nor --secret-file")
    before = existing(client, "inlets", inlet)
    if before is None and not (given["topic"] and given["scheme"]):
        raise click.UsageError("a new inlet needs --topic and --scheme")
    body: Json = {} if before is None else before["settings"]
    for name, text in given.items():
        if text is not None:
            members = body.setdefault(_part_of(name), {}) if _part_of(name) else body
            flag = f"--{name.replace('_', '-')}"
            members[name] = declared_value(flag, _DECLARED[name], text, _UNSET)
            if members[name] is None:
                del members[name]
    body |= {"keep_previous": rotate, "end_previous": end_previous}
    if secret_file is not None:
        body["secrets"] = [read_secret(secret_file)]
    made = client.ask("PUT", "inlets", inlet, body=body)
    note = "Enter the URL and the secret at the sender. The secret is not shown again."
    return _result(client, made, note if "secret" in made else "")


def _part_of(name: str) -> str:
    """Where the API has a setting; "" for the top."""
    return "verify" if name in VERIFY else "quotas" if name in QUOTAS else ""


def existing(client: HttpClient, *path: str) -> Json | None:
    """None if there is no such thing."""
    try:
        found: Json = client.ask("GET", *path)
    except AnswerError as error:
        if error.status != NotFoundError.status:
            raise
        return None
    return found


def read_secret(path: Path) -> str:
    """The first line. Raises ConfigurationError."""
    try:
        with sys.stdin if str(path) == _STDIN else path.open(encoding="utf-8") as file:
            secret = file.readline(limits.KIB).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path} ({error})") from error
    if not secret:
        raise ConfigurationError(f"{path} holds no secret")
    return secret


@inlets.command()
@click.argument("inlet")
@yes_option
@talks
def delete(client: HttpClient, inlet: str, yes: bool) -> Result:
    """Delete INLET: its URL takes nothing more. Its topic stays."""
    if not yes:
        tell(str(_result(client, client.ask("GET", "inlets", inlet)).text))
        ask("Delete it?")
    client.request("DELETE", "inlets", inlet)
    return Result({"deleted": inlet}, f"{inlet} deleted")
