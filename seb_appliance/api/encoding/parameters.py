"""Paths, query parameters and request headers: all of them known, each checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import parse_qsl, unquote

from seb_appliance import limits, quantities
from seb_appliance.api.encoding.answers import parse_time
from seb_appliance.broker.access.api_keys import no_such_api_key
from seb_appliance.broker.topics.names import check_group_name, check_topic_name
from seb_appliance.broker.values import From
from seb_appliance.errors import BadParameterError, NotFoundError, UnauthenticatedError

T = TypeVar("T", bound=str)

# What parameters of reads mean when they are not sent.
DEFAULTS: Final = {"offset": "earliest", "wait": "0", "values": "text", "fresh": "false"}
_DIGITS: Final = re.compile(r"[0-9]{1,16}")
_API_KEY_START: Final = "seb_"
_NO_QUERY: Final[dict[str, str]] = {}

# These change what a write means: to ignore one would be a lie to a careful client.
_PROMISES: Final = {
    b"idempotency-key": "Idempotency-Key",
    b"producer-id": "Producer-Id",
    b"producer-epoch": "Producer-Epoch",
    b"producer-seq": "Producer-Seq",
    b"producer-checksum": "Producer-Checksum",
    b"if-match": "If-Match",
    b"if-unmodified-since": "If-Unmodified-Since",
    b"ce-specversion": "ce-specversion (CloudEvents)",
}
_ONCE: Final = frozenset({b"content-type", b"content-encoding", b"if-none-match"})


def read_headers(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Lower-case names; repeated ones joined by commas, which our own and single ones may not be.

    Raises BadParameterError, and UnauthenticatedError for a second Authorization.
    """
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name not in headers:
            headers[name] = value
        elif name == b"authorization":
            raise UnauthenticatedError("Two Authorization headers were sent; send one.")
        elif name in _ONCE or name in _PROMISES or name.startswith((b"seb-", b"ce-")):
            raise BadParameterError(f"The header {name.decode('latin-1')} was sent twice.")
        else:
            headers[name] += b", " + value
    return headers


def refuse_unsupported(
    headers: dict[bytes, bytes], understood: frozenset[bytes] = frozenset()
) -> None:
    """Raises BadParameterError for a header that asks for a promise this route cannot give."""
    for name in (_PROMISES.keys() & headers.keys()) - understood:
        raise BadParameterError(
            f"{_PROMISES[name]} is not supported here, and it would be unsafe to ignore it. "
            "Nothing was stored."
        )


def read_query(query_string: bytes, known: frozenset[str]) -> dict[str, str]:
    """The parameters of a query. Raises BadParameterError for unknown or repeated ones."""
    if not query_string:
        return _NO_QUERY
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=32,
        )
    except ValueError as error:
        raise BadParameterError(
            "The query must be name=value pairs joined by &, in UTF-8."
        ) from error
    query: dict[str, str] = {}
    for name, value in pairs:
        if value.startswith(_API_KEY_START) and name not in known:
            raise BadParameterError(
                "API keys are not accepted in a URL, because proxies log URLs. Replace this API "
                "key, and send the new one as Authorization: Bearer."
            )
        if name not in known:
            takes = ", ".join(sorted(known)) or "none"
            raise BadParameterError(
                f"The query parameter {name[:100]!r} is unknown; known are: {takes}."
            )
        if name in query:
            raise BadParameterError(f"The query parameter {name!r} is given twice.")
        query[name] = value
    return query


def position(text: str, name: str) -> From:
    """Where a read begins: `17`, `earliest`, `latest`, `-5`, `@2026-11-21T10:00:00Z`."""
    if text == "earliest":
        return From(earliest=True)
    if text == "latest":
        return From(latest=True)
    if text.startswith("@"):
        return _time(text[1:], name)
    digits = text.removeprefix("-")
    number = int(digits) if _DIGITS.fullmatch(digits) else None
    if number is None or number > limits.OFFSET_MAX or (digits != text and number == 0):
        raise BadParameterError(
            f"{name}={text[:100]!r} must be an offset (0 to 2^53-1), earliest, latest, -N (the "
            "last N) or @time (@2026-11-21T10:00:00Z)."
        )
    return From(offset=number) if digits == text else From(last=number)


def end_position(text: str, name: str) -> From:
    """An exclusive end: an offset or `@time`."""
    if text.startswith("@"):
        return _time(text[1:], name)
    if not _DIGITS.fullmatch(text) or int(text) > limits.OFFSET_MAX:
        raise BadParameterError(
            f"{name}={text[:100]!r} must be an offset or @time (@2026-11-21T10:00:00Z)."
        )
    return From(offset=int(text))


def _time(text: str, name: str) -> From:
    try:
        return From(timestamp_us=parse_time(text))
    except ValueError as error:
        raise BadParameterError(f"{name}: {error}.") from error


def integer(text: str, name: str, *, smallest: int, largest: int) -> int:
    """A whole number in a range."""
    if not _DIGITS.fullmatch(text) or not smallest <= int(text) <= largest:
        raise BadParameterError(
            f"{name}={text[:100]!r} must be a number from {smallest} to {largest}."
        )
    return int(text)


def size_bytes(text: str, name: str, *, largest: int) -> int:
    """At least one byte: `65536`, `64KiB`, `8MiB`."""
    try:
        size = quantities.size_bytes(text[:100])
    except ValueError as error:
        raise BadParameterError(f"{name}: {error}.") from error
    if not 1 <= size <= largest:
        raise BadParameterError(f"{name} must be from 1 byte to {quantities.format_size(largest)}.")
    return size


def duration_ms(text: str, name: str, *, largest: int) -> int:
    """`250ms`, `30s`; with its unit, only 0 needs none."""
    if text.isdigit() and text.strip("0"):
        raise BadParameterError(f"{name} needs a unit: write {text[:20]}ms or {text[:20]}s.")
    try:
        duration = quantities.duration_ms(text[:100])
    except ValueError as error:
        raise BadParameterError(f"{name}: {error}.") from error
    if duration > largest:
        raise BadParameterError(f"{name} must be at most {quantities.format_duration(largest)}.")
    return duration


def choice(text: str, name: str, choices: tuple[T, ...]) -> T:
    """The one of `choices` that `text` is."""
    for one in choices:
        if one == text:
            return one
    raise BadParameterError(f"{name}={text[:100]!r} must be one of {', '.join(choices)}.")


def topic_id(query: dict[str, str]) -> int | None:
    """Of the topic that a reader means; None: whichever has the name. Raises BadParameterError."""
    text = query.get("topic_id")
    if text is None:
        return None
    return integer(text, "topic_id", smallest=0, largest=limits.OFFSET_MAX)


def _no_api_key(name: str) -> str:
    raise no_such_api_key(name)


_NAMED: Final = (  # the segments of a path that come before a name
    (b"/v1/topics/", check_topic_name),
    (b"/v1/groups/", check_group_name),
    (b"/v1/api-keys/", _no_api_key),
)
_TOPIC_OF_GROUP: Final = re.compile(rb"/v1/groups/[^/]*/topics/([^/]*)")
_PLAIN_NAME: Final = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_PLAIN_PATH: Final = re.compile(rb"(?:/[A-Za-z0-9_.~-]+)+|/")


def check_raw_path(raw_path: bytes, others: tuple[bytes, ...] = ()) -> None:
    """`others`: beginnings of paths that a protocol checks itself. Raises BadNameError for an
    invalid name, NotFoundError for a path that no route can match."""
    if raw_path.startswith(others):
        return
    for prefix, check in _NAMED:
        if raw_path.startswith(prefix):
            _check_name(raw_path[len(prefix) :].partition(b"/")[0], check)
    if of_group := _TOPIC_OF_GROUP.match(raw_path):
        _check_name(of_group[1], check_topic_name)
    if not _PLAIN_PATH.fullmatch(raw_path):
        raise NotFoundError(
            "There is nothing at this path. Paths have no escapes, no empty parts and no slash "
            "at the end; /schema lists them."
        )


def _check_name(name: bytes, check: Callable[[str], str]) -> None:
    if not _PLAIN_NAME.fullmatch(name):
        check(unquote(name.decode("latin-1")))  # the error shows the name that was meant
        check(name.decode("latin-1"))
