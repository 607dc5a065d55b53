"""What a client of the Go broker says beside the body: API key, query, Accept."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from seb_appliance import limits
from seb_appliance.api.encoding.media_types import negotiate
from seb_appliance.api.server.auth import token_of
from seb_appliance.broker.topics.names import check_topic_name
from seb_appliance.broker.values import From, ReadRequest
from seb_appliance.errors import BadParameterError, NotAcceptableError
from seb_appliance.protocols.go.multipart import MULTIPART

TOPIC_QUERY: Final = frozenset({"topic-name"})
RECORD_QUERY: Final = TOPIC_QUERY | {"offset"}
RECORDS_QUERY: Final = RECORD_QUERY | {"max-records", "max-bytes", "timeout"}

MAX_RECORDS_DEFAULT: Final = 10
TIMEOUT_DEFAULT: Final = "10s"

_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_UINT64_MAX: Final = 2**64 - 1
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"(?:{_DURATION_PART.pattern})+|0")
_DURATION_CHARACTERS_MAX: Final = 50
_MS: Final = {
    "ns": Decimal("0.000001"),
    "us": Decimal("0.001"),
    "µs": Decimal("0.001"),  # the micro sign
    "μs": Decimal("0.001"),  # the Greek letter
    "ms": Decimal(1),
    "s": Decimal(1_000),
    "m": Decimal(60_000),
    "h": Decimal(3_600_000),
}


def go_token_of(authorization: bytes | None) -> str:
    """As `auth.token_of`, but the word `Bearer` may be left out. Raises UnauthenticatedError."""
    if authorization is None or b" " in authorization.strip():
        return token_of(authorization)
    return authorization.strip().decode("latin-1")


def topic_name(query: dict[str, str]) -> str:
    """Raises BadParameterError, BadNameError: a name has one spelling, once the URL is decoded."""
    return check_topic_name(_required(query, "topic-name"))


def offset(query: dict[str, str]) -> int:
    """A uint64; what is beyond any offset of ours is `OFFSET_MAX`, which no record has."""
    return min(_number(_required(query, "offset"), "offset"), limits.OFFSET_MAX)


def read_request(query: dict[str, str], owner: str) -> ReadRequest:
    """What a consumer asks for. More than this appliance gives at one time is no error: less comes,
    or 206 comes earlier. Raises BadParameterError."""
    max_records = _number(query.get("max-records", "0"), "max-records")
    max_bytes = _number(query.get("max-bytes", "0"), "max-bytes")
    return ReadRequest(
        start=From(offset=offset(query)),
        max_records=min(max_records or MAX_RECORDS_DEFAULT, limits.RECORDS_PER_REQUEST_MAX),
        max_bytes=min(max_bytes or limits.FETCH_BYTES_MAX, limits.FETCH_BYTES_MAX),
        wait_ms=duration_ms(query.get("timeout", TIMEOUT_DEFAULT)),
        owner=owner,
    )


def duration_ms(text: str) -> int:
    """A Go duration, rounded up: `10s`, `1m30s`, `1.5h`, `250ms`, `0`; at most `WAIT_MS_MAX`."""
    if len(text) > _DURATION_CHARACTERS_MAX or not _DURATION.fullmatch(text):
        raise BadParameterError(
            f"timeout={text[:100]!r} is not a duration such as 10s, 1m30s or 250ms."
        )
    parts = _DURATION_PART.findall(text)
    exact = sum((Decimal(number) * _MS[unit] for number, unit in parts), Decimal(0))
    return math.ceil(min(exact, Decimal(limits.WAIT_MS_MAX)))


def check_accept(accept: bytes | None) -> None:
    """Raises NotAcceptableError unless the client says that it takes a multipart answer."""
    if not accept:
        raise NotAcceptableError(f"set Accept: {MULTIPART}", supported=[MULTIPART])
    negotiate(accept, (MULTIPART,))


def _required(query: dict[str, str], name: str) -> str:
    if not query.get(name):
        raise BadParameterError(f"The query parameter {name} is missing.")
    return query[name]


def _number(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _UINT64_MAX:
        raise BadParameterError(f"{name}={text[:100]!r} is not a number (uint64).")
    return int(text)
