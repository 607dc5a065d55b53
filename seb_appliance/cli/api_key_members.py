"""What an API key is made of: as flags, as the API's JSON, as words for people."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from seb_appliance.cli.output import moment
from seb_appliance.quantities import duration_ms, format_size, size_bytes

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
    from seb_appliance.formats.operations import GRANT_OPERATIONS

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
